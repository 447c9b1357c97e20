#include "tools/bench/farm/part.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

namespace ddprun::bench {

void Fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  std::_Exit(1);
}

double CpuTime_ms(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

int64_t FromStatus(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t number = 0;
    if (word == name + ":" && status >> number) return number;
  }
  return 0;
}

void BeginPeakAnew() { std::ofstream("/proc/self/clear_refs") << "5"; }

void Obey(const std::function<void(const std::string& verb, int number)>& command) {
  for (std::string line; std::fflush(stdout), std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    int number = 0;
    words >> verb >> number;
    command(verb, number);
  }
}

}  // namespace ddprun::bench
