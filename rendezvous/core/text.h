// Small pieces of the sentences that the rendezvous says to people. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_TEXT_H_
#define DDPRUN_RENDEZVOUS_CORE_TEXT_H_

#include <string>

#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// What people call the node: its host, or its id where no host is known.
std::string NodeName(const NodeInfo& node);
// "30 s", rounded up; "200 ms" below one second.
std::string DurationText(Duration duration);
// "exit code 1 (ValueError: boom)": how the worker ended and, in short, what it says of it. On one
// line, escaped: every node tells it to its user's terminal.
std::string CauseText(const FailureReport& report);
// "1 node", "2 nodes".
std::string Counted(int count, const std::string& noun);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_TEXT_H_
