// Between the wire and the core's values, both ways. What comes from the wire is believed only
// after the checks here: sizes, ranges, text. Messages quote what was wrong and name the field.
#ifndef DDPRUN_RENDEZVOUS_WIRE_CONVERT_H_
#define DDPRUN_RENDEZVOUS_WIRE_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"
#include "rendezvous/wire/checked_fields.h"

namespace ddprun::rendezvous {

inline constexpr size_t kMaxJoinBytes = 64 * 1024;
inline constexpr size_t kMaxHeartbeatBytes = 4 * 1024;
inline constexpr size_t kMaxMessageBytes = 256 * 1024;
inline constexpr size_t kMaxStderrTailBytes = 64 * 1024;

// The agent's side. An event that agents do not say (SessionBroken, TimePassed) is a bug. Texts
// are cleaned and cut; RESOURCE_EXHAUSTED: a Join is larger than the coordinator would take.
absl::StatusOr<v1::AgentMessage> ToProto(const Event& event, Duration round_trip);
// INVALID_ARGUMENT: malformed. A deadline counts from `now`. `message` is no HeartbeatReply.
absl::StatusOr<Action> FromProto(const v1::CoordinatorMessage& message, TimePoint now);
// The job's instance by the coordinator's word; every message carries it.
JobInstance InstanceOf(const v1::CoordinatorMessage& message);

// The coordinator's side. Stamp::session and the addresses of a Join are the caller's to fill in.
// INVALID_ARGUMENT: malformed; RESOURCE_EXHAUSTED: larger than its kind may be.
absl::StatusOr<Event> FromProto(const v1::AgentMessage& message);
// `action` is never CloseSession or Finish; `current` is what every message carries where the
// action names no epoch and round of its own.
v1::CoordinatorMessage ToProto(const Action& action, const Stamp& current, TimePoint now);

// A question from outside the job, and what is answered there.
void QuestionToProto(const Question& question, v1::Question& out);
Question QuestionFromProto(const v1::Question& in, CheckedFields& check);
void AnswersToProto(const GiveAnswers& given, TimePoint now, v1::Answers& out);
// A deadline counts from `now`.
GiveAnswers AnswersFromProto(const v1::Answers& in, TimePoint now, CheckedFields& check);

// The values inside messages. The first thing wrong is noted in `check`.
void FailureToProto(const FailureReport& report, v1::Failure& out);
FailureReport FailureFromProto(const v1::Failure& in, CheckedFields& check);
void VerdictToProto(const Verdict& verdict, v1::Verdict& out);
Verdict VerdictFromProto(const v1::Verdict& in, CheckedFields& check);
// The instance, the epoch and the round are the message's.
void AssignmentToProto(const Assignment& in, v1::Assignment& out);
Assignment AssignmentFromProto(const v1::Assignment& in, const Stamp& stamp, CheckedFields& check);
// Without the run id, which stands in the Join itself.
void PolicyToProto(const Policy& policy, v1::JobPolicy& out);
Policy PolicyFromProto(const v1::JobPolicy& in, CheckedFields& check);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CONVERT_H_
