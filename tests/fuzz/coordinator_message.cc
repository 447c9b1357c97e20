// What a coordinator, or whoever answers in its place, sends an agent.
#include <chrono>
#include <cstdint>
#include <string>

#include "rendezvous/wire/convert.h"
#include "tests/fuzz/promise.h"

namespace ddprun::rendezvous {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  v1::CoordinatorMessage message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  const TimePoint now{std::chrono::hours(1)};
  const absl::StatusOr<Action> action = FromProto(message, now);
  if (!action.ok()) {
    const std::string why(action.status().message());
    Promise(fuzz::IsPlain(why, false), "an error is one plain line", why);
    return 0;
  }
  const Stamp stamp{.session = {},
                    .epoch = Epoch{message.epoch()},
                    .round = Round{message.round()},
                    .instance = InstanceOf(message)};
  const v1::CoordinatorMessage said = ToProto(*action, stamp, now);
  const absl::StatusOr<Action> heard = FromProto(said, now);
  Promise(heard.ok(), "what was taken from a message makes a message that is taken",
          heard.status().ToString());
  // Of what came too early, as facts before the last part of answers, nothing is said.
  const v1::CoordinatorMessage again = ToProto(*heard, stamp, now);
  Promise(again.SerializeAsString() == said.SerializeAsString(),
          "an action is heard as it was said", said.ShortDebugString());
  return 0;
}

}  // namespace ddprun::rendezvous
