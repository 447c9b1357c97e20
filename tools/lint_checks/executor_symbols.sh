#!/usr/bin/env bash
# executor_symbols.sh [TARGET...]: asks the archives of the code that runs on the agent's executor (or of
# the given targets) which symbols they need. None may open, make, rename or remove a file, wait for a
# thread or sleep: what may not answer is asked of a file thread (launcher/agent/file_thread.h). Asio's own
# calls are in these archives as well (its epoll, its lock), so the list holds only what Asio does not need.
set -euo pipefail
source "$(dirname "$0")/symbols.sh"

names='^std::j?thread::join|condition_variable(_any)?::wait|std::(__future_base|promise|async)|std::filesystem'
names+='|basic_[io]?f(stream|ilebuf)|std::this_thread|__atomic_futex'
calls='open(at)?(64)?|creat(64)?|fopen(64)?|opendir|mkdir(at)?|mkdtemp|mkstemp(64)?|mkfifo(at)?|rename(at2?)?|link(at)?|symlink(at)?'
calls+='|unlink(at)?|rmdir|remove|[fl]?stat(64|at|at64)?|access|faccessat|fsync|fdatasync|sync|ftruncate(64)?|read|readv|pread.*|readlink(at)?'
calls+='|flock|lockf|fopen(64)?|fgets|fread|getline|u?sleep|nanosleep|clock_nanosleep|waitpid|waitid|wait|system|popen|getaddrinfo'

labels=("$@")
((${#labels[@]} > 0)) || labels=(
  //launcher/agent //launcher/report:job_reporter //launcher/progress:trainer_progress //launcher/status:job_watch
  //launcher/control:control_plane //launcher/control:shared_text //launcher/control:http_server
)
refuse_symbols "$names|^($calls)\$" "${labels[@]}"
