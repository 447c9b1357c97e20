// What a machine is at, for people who read a test.
#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_MACHINE_VIEW_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_MACHINE_VIEW_H_

#include <string>

#include "rendezvous/base/time.h"
#include "rendezvous/core/rendezvous_machine.h"

namespace ddprun::rendezvous {

// One sentence: the state and what it waits for.
std::string Explain(const RendezvousMachine& machine, TimePoint now);

// Several lines: the phase, then one line per node in order of id. `now` only dates the silence.
std::string RenderState(const RendezvousMachine& machine, TimePoint now);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_MACHINE_VIEW_H_
