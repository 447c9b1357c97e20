#!/usr/bin/env bash
# pure_symbols.sh TARGET...: asks the archives of the pure targets (graph.py pure-labels) which symbols
# they need. None may be a clock, thread, lock, random number, I/O, gRPC, Boost, spdlog, fmt or Protobuf.
set -euo pipefail
source "$(dirname "$0")/symbols.sh"

names='(steady|system|high_resolution|file)_clock::now|std::j?thread\b|std::this_thread|random_device'
names+='|basic_[io]?f(stream|ilebuf)|std::(cout|cerr|clog|cin|wcout)\b|std::filesystem|std::(recursive_|timed_|shared_)*mutex'
names+='|condition_variable|__atomic_(wait|notify)|std::__(detail::__)?(platform_wait|waiter)|std::promise|std::(__future|async)'
names+='|pthread_|sem_(wait|post)|grpc|boost::|spdlog|fmt::|google::protobuf|absl::.*(Mutex|Time|Duration|Now|BitGen|Cord|Log)'
calls='(s?rand(om)?(_r)?|[delmn]rand48|time|gettimeofday|clock|clock_(gettime|nanosleep)|timespec_get|nanosleep|u?sleep|alarm|timer_.*'
calls+='|(secure_)?getenv|setenv|putenv|getrandom|getentropy|arc4random.*|open(at)?(64)?|creat(64)?|close|read(v|64)?|pread.*|pwrite.*'
calls+='|write(v)?|unlink(at)?|rename(at2?)?|mkdir(at)?|stat(64)?|fstat(64)?|mmap(64)?|shm_open|memfd_create|f?printf|v?f?printf|v?dprintf'
calls+='|__v?f?printf_chk|__v?dprintf_chk|puts|putchar|fputs|fwrite|fread|fopen(64)?|fdopen|fgets|getline|perror|socket|connect|bind'
calls+='|listen|accept4?|send(to|msg)?|recv(from|msg)?|poll|ppoll|select|epoll_.*|getaddrinfo|gethostname|fork|vfork|posix_spawnp?'
calls+='|exec[lv].*|kill|raise|signal|sigaction|wait(pid|id)?|syscall|dlopen|system|popen|std(out|err|in)|_?exit|quick_exit)'

(($# > 0)) || { echo "pure_symbols: no target was given"; exit 1; }
refuse_symbols "$names|^$calls\$" "$@"
