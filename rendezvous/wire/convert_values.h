// The values inside messages: failures, verdicts, assignments, policies. What comes from the wire
// is believed only after the checks; the first thing wrong is noted in `check`.
#ifndef DDPRUN_RENDEZVOUS_WIRE_CONVERT_VALUES_H_
#define DDPRUN_RENDEZVOUS_WIRE_CONVERT_VALUES_H_

#include <cstddef>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/types.h"
#include "rendezvous/wire/checked_fields.h"

namespace ddprun::rendezvous {

inline constexpr size_t kMaxStderrTailBytes = 64 * 1024;
inline constexpr size_t kMaxTextBytes = kMaxCleanTextBytes;  // reasons, messages: cut when sent

void FailureToProto(const FailureReport& report, v1::Failure& out);
FailureReport FailureFromProto(const v1::Failure& in, CheckedFields& check);

void VerdictToProto(const Verdict& verdict, v1::Verdict& out);
Verdict VerdictFromProto(const v1::Verdict& in, CheckedFields& check);

// Without the instance, the epoch and the round: they are the message's.
void AssignmentToProto(const Assignment& in, v1::Assignment& out);
Assignment AssignmentFromProto(const v1::Assignment& in, CheckedFields& check);

// Without the run id, which stands in the Join itself.
void PolicyToProto(const Policy& policy, v1::JobPolicy& out);
Policy PolicyFromProto(const v1::JobPolicy& in, CheckedFields& check);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_CONVERT_VALUES_H_
