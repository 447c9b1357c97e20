#include "rendezvous/core/question_desk.h"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {
namespace {

// The wire's tags and lengths around one answer, and around the name of one silent node.
constexpr size_t kFrameBytes = 16;

size_t BytesOf(const NodeAnswer& answer) {
  return answer.body.size() + answer.host.size() + answer.node.value.size() + kFrameBytes;
}

}  // namespace

void QuestionDesk::Ask(TimePoint now, SessionId asker, const Question& question,
                       const Places& places, const Sink& send) {
  for (auto& [id, asked] : asked_) {
    const bool is_same = asked.to == question.to && asked.body == question.body;
    if (!is_same || (asked.is_done && asked.deadline <= now)) continue;
    if (asked.is_done) return Give(asked, {asker, question.id}, send);
    if (asked.askers.size() >= kMaxAskers) return Refuse(asker, question.id, send);
    asked.askers.push_back({asker, question.id});
    return;
  }
  if (asked_.size() >= kMaxQuestions) {
    std::erase_if(asked_, [](const auto& entry) { return entry.second.is_done; });
  }
  if (asked_.size() >= kMaxQuestions) return Refuse(asker, question.id, send);
  const uint64_t id = ++last_id_;
  Asked& asked = asked_[id];
  asked.to = question.to;
  asked.body = question.body;
  asked.asked_at = now;
  asked.deadline = now + std::clamp(question.patience, kPatience, kMaxPatience);
  asked.askers.push_back({asker, question.id});
  for (const RendezvousMachine::Place& place : places) {
    if (!question.to.value.empty() && place.node != question.to) continue;
    if (!place.session) {
      asked.silent.push_back(place.host);
      continue;
    }
    asked.awaited.emplace(*place.session, place);
    send(AskNode{.session = *place.session, .id = id, .body = question.body});
  }
  FinishIfDone(now, asked, send);
}

void QuestionDesk::Answer(TimePoint now, SessionId from, uint64_t id, const std::string& body,
                          const Sink& send) {
  const auto found = asked_.find(id);
  if (found == asked_.end() || found->second.is_done) return;
  Asked& asked = found->second;
  const auto place = asked.awaited.find(from);
  if (place == asked.awaited.end()) return;  // it was not asked, or has answered
  NodeAnswer answer{place->second.node, place->second.host, body};
  if (HeldBytes() + BytesOf(answer) <= kMaxHeldBytes) {
    asked.bytes += BytesOf(answer);
    asked.answers.push_back(std::move(answer));
  } else {
    asked.silent.push_back(std::move(answer.host));  // as one that has not answered
  }
  asked.awaited.erase(place);
  FinishIfDone(now, asked, send);
}

void QuestionDesk::Forget(TimePoint now, SessionId session, const Sink& send) {
  for (auto& [id, asked] : asked_) {
    std::erase_if(asked.askers, [&](const Asker& asker) { return asker.session == session; });
    const auto place = asked.awaited.find(session);
    if (place == asked.awaited.end()) continue;
    asked.silent.push_back(place->second.host);
    asked.awaited.erase(place);
    FinishIfDone(now, asked, send);
  }
}

void QuestionDesk::TimePassed(TimePoint now, const Sink& send) {
  for (auto& [id, asked] : asked_) {
    if (asked.is_done || asked.deadline > now) continue;
    for (const auto& [session, place] : asked.awaited) asked.silent.push_back(place.host);
    asked.awaited.clear();
    FinishIfDone(now, asked, send);
  }
  std::erase_if(asked_, [now](const auto& entry) {
    return entry.second.is_done && entry.second.deadline <= now;
  });
}

std::optional<TimePoint> QuestionDesk::NextDeadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, asked] : asked_) {
    next = std::min(next.value_or(asked.deadline), asked.deadline);
  }
  return next;
}

size_t QuestionDesk::HeldBytes() const {
  size_t bytes = 0;
  for (const auto& [id, asked] : asked_) bytes += asked.bytes;
  return bytes;
}

void QuestionDesk::FinishIfDone(TimePoint now, Asked& asked, const Sink& send) {
  if (asked.is_done || !asked.awaited.empty()) return;
  asked.is_done = true;
  asked.deadline = std::max(now, asked.asked_at + kFresh);
  for (const Asker& asker : std::exchange(asked.askers, {})) Give(asked, asker, send);
  // What one node was asked is nobody else's question.
  if (!asked.to.value.empty()) {
    asked.deadline = now;
    asked.answers.clear();
    asked.bytes = 0;
  }
}

void QuestionDesk::Give(const Asked& asked, const Asker& asker, const Sink& send) {
  const auto empty_part = [&asker] {
    return GiveAnswers{.session = asker.session, .id = asker.id, .answers = {}, .is_last = false};
  };
  GiveAnswers part = empty_part();
  size_t bytes = 0;
  const auto make_room = [&](size_t more) {
    if (bytes > 0 && bytes + more > kMaxPartBytes) {
      send(std::exchange(part, empty_part()));
      bytes = 0;
    }
    bytes += more;
  };
  for (const NodeAnswer& answer : asked.answers) {
    make_room(BytesOf(answer));
    part.answers.push_back(answer);
  }
  // Together where they fit, as they always do but in jobs of thousands of nodes.
  size_t silent_bytes = 0;
  for (const std::string& host : asked.silent) silent_bytes += host.size() + kFrameBytes;
  if (silent_bytes <= kMaxPartBytes) make_room(silent_bytes);
  for (const std::string& host : asked.silent) {
    if (silent_bytes > kMaxPartBytes) make_room(host.size() + kFrameBytes);
    part.silent.push_back(host);
  }
  part.is_last = true;
  send(std::move(part));
}

void QuestionDesk::Refuse(SessionId asker, uint64_t id, const Sink& send) {
  send(GiveAnswers{.session = asker, .id = id, .answers = {}});
}

}  // namespace ddprun::rendezvous
