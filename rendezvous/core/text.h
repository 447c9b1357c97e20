// What the rendezvous says to people: pieces of its sentences; events and actions, for logs and
// transcripts. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_TEXT_H_
#define DDPRUN_RENDEZVOUS_CORE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/ids.h"
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
// "rank 2 on node b failed: exit code 1": the same with whose end it was.
std::string FailureText(const FailureReport& report);
// For a countdown: rounded up, and 0 when it is over.
int64_t SecondsLeft(Duration left);
// What a sentence calls the job: "the job "x"", or "this job" where the user gave no id: "none".
std::string JobText(const std::string& run_id);
// "1 node", "2 nodes".
std::string Counted(int count, const std::string& noun);

// One line each: "join session=2 stamp=0.0 node=b ...". A stamp is epoch.round.
std::string RenderEvent(const Event& event);

// One line each, without the session, which TargetOf gives: "assign 1.1 node_rank=0/2 ...".
std::string RenderAction(const Action& action);
// The session that the action concerns; empty for Finish, Record and TellSite.
std::optional<SessionId> TargetOf(const Action& action);

const char* RefusalName(Refusal kind);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_TEXT_H_
