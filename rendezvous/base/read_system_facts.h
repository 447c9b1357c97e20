// Asks the system for the facts of system_facts.h. CUDA is not opened here.
#ifndef DDPRUN_RENDEZVOUS_BASE_READ_SYSTEM_FACTS_H_
#define DDPRUN_RENDEZVOUS_BASE_READ_SYSTEM_FACTS_H_

#include <string>

#include "rendezvous/base/system_facts.h"

namespace ddprun {

// `proc`: where the kernel's files are; tests have a folder of their own.
SystemFacts ReadSystemFacts(const std::string& proc = "/proc");

// A small file's text; empty when it cannot be read (a device's `speed` refuses when it is down).
std::string ReadSmallFile(const std::string& path);

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_READ_SYSTEM_FACTS_H_
