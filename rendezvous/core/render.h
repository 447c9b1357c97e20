// Events and actions as text, for logs and transcripts. [pure]
#ifndef DDPRUN_RENDEZVOUS_CORE_RENDER_H_
#define DDPRUN_RENDEZVOUS_CORE_RENDER_H_

#include <optional>
#include <string>

#include "rendezvous/core/action.h"
#include "rendezvous/core/event.h"

namespace ddprun::rendezvous {

// One line each: "join session=2 stamp=0.0 node=b ...". A stamp is epoch.round.
std::string RenderEvent(const Event& event);

// One line each, without the session, which TargetOf gives: "assign 1.1 node_rank=0/2 ...".
std::string RenderAction(const Action& action);
// The session that the action concerns; empty for Finish.
std::optional<SessionId> TargetOf(const Action& action);

const char* RefusalName(Refusal kind);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RENDER_H_
