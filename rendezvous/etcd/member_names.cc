#include "rendezvous/etcd/member_names.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::rendezvous {

struct MemberNames::Found {
  struct Name {
    bool is_asked = false;
    std::optional<Resolution> answer;  // that nobody has taken yet
    std::optional<Resolution> last;    // that found it
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Name> names;
  bool is_cancelled = false;
};

MemberNames::MemberNames(std::vector<EtcdMember> members, Resolver resolver)
    : members_(std::move(members)),
      resolver_(std::move(resolver)),
      found_(std::make_shared<Found>()) {
  found_->names.resize(members_.size());
}

MemberNames::~MemberNames() = default;

Resolution MemberNames::Resolve(size_t member, TimePoint by) {
  const EtcdMember& to = members_[member];
  if (const auto address = ParseIp(to.host, to.port)) {
    return {Resolution::Outcome::kFound, "", {*address}};
  }
  const bool is_first = !thread_;
  if (is_first) thread_.emplace(Duration{0}, SteadyClock());
  if (!thread_->is_running()) return {Resolution::Outcome::kTemporary, kNoThreadText, {}};
  DropOldRefusal(member);
  Ask(member);
  // The others' too: a resolver that hangs later is not missed then.
  for (size_t other = 0; is_first && other < members_.size(); ++other) Ask(other);
  std::unique_lock lock(found_->mutex);
  Found::Name& name = found_->names[member];
  found_->changed.wait_until(lock, ToSteady(by),
                             [&] { return name.answer || found_->is_cancelled; });
  if (name.answer) return *std::exchange(name.answer, std::nullopt);
  if (name.last) return *name.last;
  return {Resolution::Outcome::kTemporary, "the resolver does not answer", {}};
}

void MemberNames::DropOldRefusal(size_t member) {
  const std::lock_guard lock(found_->mutex);
  std::optional<Resolution>& answer = found_->names[member].answer;
  if (answer && answer->outcome != Resolution::Outcome::kFound) answer.reset();
}

void MemberNames::Ask(size_t member) {
  {
    const std::lock_guard lock(found_->mutex);
    Found::Name& name = found_->names[member];
    if (name.answer || std::exchange(name.is_asked, true)) return;
  }
  thread_->Post([found = found_, resolver = resolver_, to = members_[member], member] {
    Resolution answer = resolver(to.host, to.port);
    const std::lock_guard lock(found->mutex);
    Found::Name& name = found->names[member];
    name.is_asked = false;
    if (answer.outcome == Resolution::Outcome::kFound) name.last = answer;
    name.answer = std::move(answer);
    found->changed.notify_all();
  });
}

void MemberNames::Cancel() {
  const std::lock_guard lock(found_->mutex);
  found_->is_cancelled = true;
  found_->changed.notify_all();
}

}  // namespace ddprun::rendezvous
