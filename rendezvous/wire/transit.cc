#include "rendezvous/wire/transit.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace ddprun::rendezvous {

void AddWait(Duration waited, Event& event) {
  std::visit(
      [waited](auto& any) {
        if constexpr (requires { any.age; }) any.age += waited;
      },
      event);
}

void Transit::Correct(TimePoint receipt, Duration sent, Event& event) {
  AddWait(Excess(receipt, sent), event);
}

Duration Transit::Excess(TimePoint receipt, Duration sent) {
  // Beyond half of what a Duration holds the difference may not fit into one.
  if (sent <= Duration{0} || sent > Duration::max() / 2) return Duration{0};
  const Duration way = receipt.time_since_epoch() - sent;
  // A steady clock does not go back: what it said before was wrong, or is now.
  const bool is_new = last_sent_ == Duration{0} || sent < last_sent_;
  last_sent_ = sent;
  if (is_new) {
    older_ = newer_ = way;
    newer_since_ = receipt;
  } else if (receipt - newer_since_ >= kWindow) {
    older_ = std::exchange(newer_, way);
    newer_since_ = receipt;
  } else {
    newer_ = std::min(newer_, way);
  }
  return std::min(way - std::min(older_, newer_), kMost);
}

}  // namespace ddprun::rendezvous
