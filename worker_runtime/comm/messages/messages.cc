#include "worker_runtime/comm/messages/messages.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "worker_runtime/comm/messages/message_driver.h"
#include "worker_runtime/comm/refused.h"

namespace ddp::internal {

std::string Describe(const Message& message) {
  const std::string peer = message.peer < 0 ? "any rank" : absl::StrCat("rank ", message.peer);
  return absl::StrCat(message.is_send ? "send to " : "receive from ", peer, " (tag ", message.tag,
                      ", ", message.bytes, " bytes)");
}

class MessageWork final : public Work {
 public:
  MessageWork(Messages& owner, std::shared_ptr<Message> message)
      : owner_(owner), message_(std::move(message)) {}

  absl::Status Wait() override {
    std::unique_lock lock(owner_.mutex_);
    // Every message ends by its deadline, so this wait does too.
    owner_.ended_.wait(lock, [&] { return message_->is_done; });
    return message_->status;
  }
  bool WaitFor(std::chrono::milliseconds patience) const override {
    std::unique_lock lock(owner_.mutex_);
    return owner_.ended_.wait_for(lock, patience, [&] { return message_->is_done; });
  }
  absl::Status WaitOn(ddp::Stream) override { return Wait(); }
  bool IsDone() const override {
    const std::lock_guard lock(owner_.mutex_);
    return message_->is_done;
  }
  bool was_refused() const override { return message_->id == 0; }
  std::string missing() const override {
    {
      const std::lock_guard lock(owner_.mutex_);
      if (message_->is_done || message_->is_accepted) return "";
    }
    return absl::StrCat(message_->peer < 0 ? "no rank" : NameRanks({message_->peer}),
                        message_->peer < 0  ? " sent it"
                        : message_->is_send ? " did not receive it"
                                            : " did not send it");
  }
  int source() const override {
    const std::lock_guard lock(owner_.mutex_);
    return message_->source;
  }
  Clock::time_point started_at() const override { return message_->started_at; }
  Clock::time_point ended_at() const override {
    const std::lock_guard lock(owner_.mutex_);
    return message_->ended_at;
  }

 private:
  Messages& owner_;
  const std::shared_ptr<Message> message_;
};

Messages::Messages(int rank, MessagePeers peers, ddprun::UniqueFd listener,
                   std::shared_ptr<const LinkKey> key, std::function<absl::Status()> group_error)
    : rank_(rank),
      peers_(std::move(peers)),
      listener_(std::move(listener)),
      key_(std::move(key)),
      group_error_(std::move(group_error)) {}

Messages::~Messages() {
  Fail(absl::AbortedError("the communicator was destroyed"));
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    Wake();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status Messages::Check(const Message& message) const {
  const int world_size = static_cast<int>(peers_.places.size());
  const bool is_any = !message.is_send && message.peer == -1;
  if (!is_any && (message.peer < 0 || message.peer >= world_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(message), ": the group has ", world_size, " ranks"));
  }
  if (message.peer == rank_) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(message), ": that is this rank itself"));
  }
  if (message.bytes != 0 && message.data == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(message), ": a null pointer"));
  }
  if (!is_any && peers_.places[static_cast<size_t>(message.peer)].port == 0) {
    return absl::UnavailableError(absl::StrCat(
        Describe(message), ": the rank could not listen on its address \"",
        peers_.places[static_cast<size_t>(message.peer)].address, "\" when the group formed"));
  }
  return absl::OkStatus();
}

std::unique_ptr<Work> Messages::Start(Message given) {
  auto message = std::make_shared<Message>(std::move(given));
  message->started_at = Clock::now();
  absl::Status status = Check(*message);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) status = failure_;
    if (status.ok() && !thread_.joinable()) status = StartThread(*message);
    if (status.ok()) {
      message->id = ++last_id_;
      started_.push_back(message);
    } else {
      message->status = std::move(status);
      message->is_done = true;
      message->ended_at = message->started_at;
    }
    Wake();
  }
  return std::make_unique<MessageWork>(*this, std::move(message));
}

void Messages::Fail(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = status;
    Wake();
  }
}

// What most groups never need is made for the first message.
absl::Status Messages::StartThread(const Message& first) {
  if (!wake_.is_open()) wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.is_open()) return Refused(absl::StrCat(Describe(first), ": eventfd"), errno);
  const absl::Status no_memory = NoMemory(absl::StrCat("pass messages on rank ", rank_));
  thread_ = ddprun::StartQuietThread([this, no_memory] { MessageDriver(*this, no_memory).Run(); });
  return thread_.joinable() ? absl::OkStatus() : NoThread(Describe(first));
}

void Messages::Wake() {
  if (!wake_.is_open()) return;
  const uint64_t one = 1;
  // Full is woken, too.
  if (write(wake_.get(), &one, sizeof one) < 0) return;
}

}  // namespace ddp::internal
