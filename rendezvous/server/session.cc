#include "rendezvous/server/session.h"

#include <variant>

namespace ddprun::rendezvous {

SessionId SessionOf(const Event& event) {
  return std::visit(
      [](const auto& any) {
        if constexpr (requires { any.stamp; }) return any.stamp.session;
        if constexpr (requires { any.session; }) return any.session;
        return SessionId{};
      },
      event);
}

void SetSession(Event& event, SessionId session) {
  std::visit(
      [session](auto& any) {
        if constexpr (requires { any.stamp; }) any.stamp.session = session;
        if constexpr (requires { any.session; }) any.session = session;
      },
      event);
}

}  // namespace ddprun::rendezvous
