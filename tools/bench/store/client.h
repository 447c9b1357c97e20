// What the clients of the store's benchmarks share. An error ends the program.
#ifndef DDPRUN_TOOLS_BENCH_STORE_CLIENT_H_
#define DDPRUN_TOOLS_BENCH_STORE_CLIENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/wire.h"

namespace ddprun::bench {

// Says what failed, and errno, and exits with 1.
[[noreturn]] void Fail(const std::string& what);

std::string Encode(const rendezvous::StoreCommand& command);

// A connection without Nagle's delay; blocking.
UniqueFd Connect(const std::string& host, const std::string& port);
void SendAll(int fd, std::string_view bytes);

// Processor time of all threads of a process so far, in nanoseconds; 0 for pid 0.
int64_t CpuTime(int pid);

// As many descriptors as the system allows.
void RaiseDescriptorLimit();

// Reads "--name=value" arguments; prints `usage` and exits with 2 at an unknown name.
void ParseArguments(int argc, char** argv, const std::map<std::string, std::string*>& texts,
                    const std::map<std::string, int*>& numbers, const char* usage);

}  // namespace ddprun::bench

#endif  // DDPRUN_TOOLS_BENCH_STORE_CLIENT_H_
