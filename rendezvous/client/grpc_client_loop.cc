#include "rendezvous/client/grpc_client_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/channel.h"

namespace ddprun::rendezvous {
namespace {

// An endpoint that comes up within this is not worth a line on somebody's terminal.
constexpr Duration kQuietStart = std::chrono::milliseconds(500);
// A port that accepts and closes for so long is no coordinator that is just starting or stopping.
constexpr Duration kClosedLimit = std::chrono::seconds(5);

}  // namespace

void GrpcClientLoop::Wake::Notify() {
  {
    const std::lock_guard lock(mutex);
    ++changes;
  }
  changed.notify_all();
}

void GrpcClientLoop::Wake::Wait(uint64_t& seen, TimePoint deadline) {
  std::unique_lock lock(mutex);
  changed.wait_until(lock, ToSteady(deadline), [&] { return changes != seen; });
  seen = changes;
}

GrpcClientLoop::GrpcClientLoop(GrpcClientOptions options, RendezvousClient::EventHandler handler)
    : options_(std::move(options)),
      handler_(std::move(handler)),
      random_(std::random_device{}()),
      without_contact_since_(SteadyNow()),
      record_(options_.policy) {
  PrepareGrpc();
  thread_ = std::thread([this] { Run(); });
}

GrpcClientLoop::~GrpcClientLoop() { FlushAndStop(Duration{0}); }

void GrpcClientLoop::Join(const NodeInfo& node) {
  Say([&](AgentRecord& record) {
    record.Join(node);
    joined_at_ = SteadyNow();
  });
}

void GrpcClientLoop::FlushAndStop(Duration timeout) {
  if (!thread_.joinable()) return;
  const TimePoint deadline = SteadyNow() + timeout;
  {
    std::unique_lock lock(mutex_);
    flush_by_ = deadline;
    if (!is_conversing_) stop_.Set();
    lock.unlock();
    wake_->Notify();
    lock.lock();
    done_.wait_until(lock, ToSteady(deadline), [this] { return is_done_; });
  }
  stop_.Set();
  wake_->Notify();
  thread_.join();
}

void GrpcClientLoop::Run() {
  for (;;) {
    const std::optional<SocketAddress> address = Seek();
    if (!address || BeginConversation() == Step::kEnd) break;
    const Step step = Converse(*address);
    EndConversation();
    if (step == Step::kEnd) break;
  }
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
  }
  done_.notify_all();
}

std::optional<SocketAddress> GrpcClientLoop::Seek() {
  for (;;) {
    const double jitter = static_cast<double>(random_() - std::minstd_rand::min()) /
                          (static_cast<double>(std::minstd_rand::max()) + 1.0);
    if (!stop_.Wait(backoff_.Next(SteadyNow(), jitter))) return std::nullopt;
    const SeekResult result = SeekOnce(options_.endpoint, options_.resolver, stop_);
    if (result.probe.outcome == ProbeResult::Outcome::kOurs) return result.address;
    if (JudgeAttempt(result) == Step::kEnd) return std::nullopt;
  }
}

GrpcClientLoop::Step GrpcClientLoop::JudgeAttempt(const SeekResult& result) {
  if (result.probe.outcome == ProbeResult::Outcome::kInterrupted) return Step::kEnd;
  const bool is_refused = result.probe.outcome == ProbeResult::Outcome::kRefused;
  if (is_lost_ && is_refused != is_refused_) LoseContact(result.probe.text, is_refused);
  if (is_assigned()) return Step::kGoOn;
  if (const std::optional<std::string> trouble = FinalTrouble(result)) return Fail(*trouble);
  if (SteadyNow() >= GiveUpAt()) {
    const auto limit =
        std::chrono::duration_cast<std::chrono::seconds>(options_.policy.join_timeout);
    return Fail(absl::StrCat("no coordinator answered at ",
                             PlaceText(options_.endpoint, result.address), " within ",
                             limit.count(), " s; last try: ", result.probe.text));
  }
  TellSeeking(result);
  return Step::kGoOn;
}

std::optional<std::string> GrpcClientLoop::FinalTrouble(const SeekResult& result) {
  using Outcome = ProbeResult::Outcome;
  const TimePoint now = SteadyNow();
  if (result.probe.outcome != Outcome::kClosed) closed_since_.reset();
  switch (result.probe.outcome) {
    case Outcome::kOtherRun:
    case Outcome::kForeign:
      return SeekErrorText(options_.endpoint, result);
    case Outcome::kClosed:
      if (!closed_since_) closed_since_ = now;
      if (had_contact_ || now - *closed_since_ < kClosedLimit) return std::nullopt;
      return SeekErrorText(options_.endpoint, result);
    case Outcome::kUnreachable:
      // A name that worked before may be in the middle of an update.
      if (!result.is_final || had_contact_) return std::nullopt;
      return absl::StrCat("endpoint ", PlaceText(options_.endpoint, {}), ": ", result.probe.text,
                          "; expected a host name that resolves here, or an IP address");
    case Outcome::kOurs:
    case Outcome::kSilent:  // a stopped process may be continued
    case Outcome::kRefused:
    case Outcome::kInterrupted:
      break;
  }
  return std::nullopt;
}

void GrpcClientLoop::TellSeeking(const SeekResult& result) {
  const TimePoint now = SteadyNow();
  if (result.probe.text == told_trouble_ || now - without_contact_since_ < kQuietStart) return;
  told_trouble_ = result.probe.text;
  const std::string reason =
      absl::StrCat("waiting for the coordinator at ", PlaceText(options_.endpoint, {}),
                   " (last try: ", result.probe.text, ")");
  Emit(Waiting{reason, GiveUpAt()});
}

void GrpcClientLoop::LoseContact(const std::string& reason, bool is_refused) {
  if (!had_contact_) return;
  if (!std::exchange(is_lost_, true)) without_contact_since_ = SteadyNow();
  is_refused_ = is_refused;
  Emit(ContactLost{reason, is_refused});
}

GrpcClientLoop::Step GrpcClientLoop::Fail(const std::string& message) {
  Emit(RendezvousFailed{message});
  return Step::kEnd;
}

TimePoint GrpcClientLoop::GiveUpAt() const {
  const std::lock_guard lock(mutex_);
  return std::max(without_contact_since_, joined_at_) + options_.policy.join_timeout;
}

bool GrpcClientLoop::is_assigned() const {
  const std::lock_guard lock(mutex_);
  return record_.is_assigned();
}

}  // namespace ddprun::rendezvous
