// The question desk, with what each call hands out as a list.
#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_DESK_BENCH_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_DESK_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/question_desk.h"

namespace ddprun::rendezvous::testing {

class DeskBench {
 public:
  std::vector<Action> Ask(TimePoint now, SessionId asker, const Question& question,
                          const QuestionDesk::Places& places) {
    return Of([&](const auto& send) { desk_.Ask(now, asker, question, places, send); });
  }
  std::vector<Action> Answer(TimePoint now, SessionId from, uint64_t id, const std::string& body) {
    return Of([&](const auto& send) { desk_.Answer(now, from, id, body, send); });
  }
  std::vector<Action> Forget(TimePoint now, SessionId session) {
    return Of([&](const auto& send) { desk_.Forget(now, session, send); });
  }
  std::vector<Action> TimePassed(TimePoint now) {
    return Of([&](const auto& send) { desk_.TimePassed(now, send); });
  }
  std::optional<TimePoint> NextDeadline() const { return desk_.NextDeadline(); }

 private:
  static std::vector<Action> Of(const std::function<void(const QuestionDesk::Sink&)>& call) {
    std::vector<Action> actions;
    call([&actions](Action action) { actions.push_back(std::move(action)); });
    return actions;
  }

  QuestionDesk desk_;
};

}  // namespace ddprun::rendezvous::testing

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_DESK_BENCH_H_
