// What the system says of the machine that a process runs on: for `ddprun doctor` and for the
// record of a training run. [pure]
#ifndef DDPRUN_RENDEZVOUS_BASE_SYSTEM_FACTS_H_
#define DDPRUN_RENDEZVOUS_BASE_SYSTEM_FACTS_H_

#include <string>

namespace ddprun {

// What is not known is empty or 0. Control characters are escaped.
struct SystemFacts {
  std::string host;           // its name
  std::string kernel;         // "Linux 6.1.0-25-amd64"
  std::string glibc;          // "2.36", the one that this process runs with
  std::string cpu;            // the model's name
  int cpus = 0;               // that this process may use
  std::string nvidia_module;  // the version of the driver's kernel module; empty: it is not loaded
};

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_SYSTEM_FACTS_H_
