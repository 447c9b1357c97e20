#include "worker_runtime/comm/queued_communicator.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"
#include "worker_runtime/comm/refused.h"
#include "worker_runtime/comm/slice.h"
#include "worker_runtime/counters.h"

namespace ddp::internal {
namespace {

// Below this an operation takes less time than waking a thread for it.
constexpr size_t kSmallBytes = 256 << 10;
// Of pieces that are reduced together: what copying them costs is less than a further meeting.
constexpr size_t kPackedBytes = 64 << 10;
// How soon the thread looks for small operations that nobody waits for, and how long it does so
// after the last one before it sleeps for good.
constexpr std::chrono::microseconds kLightSleep(250);
constexpr std::chrono::milliseconds kActive(2);
// How long the destructor lets queued operations finish.
constexpr std::chrono::seconds kDrain(5);

// This thread calls operations. One that only waits for them, as Python's for futures does, says
// nothing of whether somebody else is blocked.
thread_local bool is_caller = false;

}  // namespace

// Shared by the queue and the caller's handle, which may go first. Guarded by mutex_ until is_done.
struct QueuedCommunicator::State {
  Op op;
  bool is_done = false;
  bool has_caller_waited = false;
  absl::Status status;
  Clock::time_point started_at;
  Clock::time_point ended_at;
};

class QueuedCommunicator::QueuedWork final : public Work {
 public:
  QueuedWork(QueuedCommunicator& owner, std::shared_ptr<State> state)
      : owner_(owner), state_(std::move(state)) {}

  absl::Status Wait() override { return owner_.Await(*state_); }
  bool WaitFor(std::chrono::milliseconds patience) const override {
    return owner_.AwaitFor(*state_, patience);
  }
  absl::Status WaitOn(ddp::Stream) override { return Wait(); }
  bool IsDone() const override {
    std::lock_guard lock(owner_.mutex_);
    return state_->is_done;
  }
  bool was_refused() const override { return state_->op.sequence == 0; }
  std::string missing() const override { return owner_.WhoIsMissing(*state_); }
  Clock::time_point started_at() const override {
    std::lock_guard lock(owner_.mutex_);
    return state_->started_at;
  }
  Clock::time_point ended_at() const override {
    std::lock_guard lock(owner_.mutex_);
    return state_->ended_at;
  }

 private:
  QueuedCommunicator& owner_;
  const std::shared_ptr<State> state_;
};

QueuedCommunicator::QueuedCommunicator(std::unique_ptr<Engine> engine,
                                       std::chrono::milliseconds timeout, std::string error_file,
                                       std::vector<int> job_ranks, MemoryCheck check_memory,
                                       const GroupLabel& label)
    : engine_(std::move(engine)),
      check_memory_(std::move(check_memory)),
      note_(std::move(error_file), engine_->rank(), std::move(job_ranks),
            [engine = engine_.get()](int of) { return engine->ProcessOf(of); }),
      timeout_(timeout),
      recorder_(engine_->rank(), engine_->world_size(), engine_->backend(), label) {}

absl::Status QueuedCommunicator::Start() {
  thread_ = ddprun::StartQuietThread([this] { ThreadMain(); });
  return thread_.joinable() ? absl::OkStatus() : NoThread("execute the group's operations");
}

QueuedCommunicator::~QueuedCommunicator() {
  bool is_drained;
  {
    std::unique_lock lock(mutex_);
    work_arrived_.notify_one();
    is_drained = work_done_.wait_for(lock, kDrain, [&] { return queue_.empty(); });
  }
  if (!is_drained) Abort("the communicator was destroyed");
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  work_arrived_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (!has_left_ && error_.ok()) engine_->Leave();
}

void QueuedCommunicator::Leave() {
  std::unique_lock lock(mutex_);
  work_done_.wait_for(lock, timeout_, [&] { return queue_.empty(); });
  if (has_left_ || !queue_.empty() || !error_.ok()) return;
  has_left_ = true;
  error_ = absl::FailedPreconditionError("the process group was shut down");
  engine_->Leave();
}

std::unique_ptr<Work> QueuedCommunicator::Submit(Op op, ddp::Stream) {
  is_caller = true;
  absl::Status refused = CheckArguments(op, rank(), world_size());
  if (refused.ok() && check_memory_ != nullptr) refused = check_memory_(op);
  auto state = std::make_shared<State>();
  state->op = op;
  bool must_wake = false;
  {
    std::lock_guard lock(mutex_);
    state->started_at = Clock::now();
    state->status = error_.ok() ? std::move(refused) : AfterEnd(error_, "this call");
    if (!state->status.ok()) {
      // Without a number: the next call takes the one that the other ranks are at.
      state->ended_at = state->started_at;
      state->is_done = true;
    } else {
      state->op.sequence = ++last_sequence_;
      last_called_at_ = state->started_at;
      state->op.timeout = timeout_;
      state->op.deadline = state->started_at + timeout_;
      recorder_.Queued(state->op, state->started_at);
      queue_.push_back(state);
      must_wake = is_asleep_ || queue_.size() > 1 || op.bytes() > kSmallBytes;
    }
  }
  if (world_size() == 1) {
    (void)Await(*state);  // the Work says how it ended
  } else if (must_wake) {
    work_arrived_.notify_one();
  }
  return std::make_unique<QueuedWork>(*this, std::move(state));
}

absl::Status QueuedCommunicator::Await(State& state) {
  std::unique_lock lock(mutex_);
  if (state.is_done) return state.status;
  const Clock::time_point begin = Clock::now();
  while (!state.is_done) {
    if (!is_executing_) {
      ExecuteHead(lock, true);
    } else {
      // Every operation ends by its deadline, so this wait does too.
      work_done_.wait(lock);
    }
  }
  CountWaited(begin, state.ended_at);
  return state.status;
}

void QueuedCommunicator::CountWaited(Clock::time_point since, Clock::time_point until) const {
  if (world_size() == 1) return;
  if (Counters* page = Counters::OfThisProcess()) page->AddWaited(until - since);
}

bool QueuedCommunicator::AwaitFor(State& state, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (state.is_done) return true;
  if (!is_executing_) work_arrived_.notify_one();
  const Clock::time_point begin = Clock::now();
  work_done_.wait_for(lock, patience, [&] { return state.is_done; });
  if (is_caller) {
    // Who gives up and comes again counts from then on.
    state.has_caller_waited = true;
    CountWaited(begin, state.is_done ? state.ended_at : Clock::now());
  } else if (state.is_done && !state.has_caller_waited) {
    // Whoever calls nothing more is taken to be blocked by then, as PyTorch's DDP is once backward
    // has called the last.
    CountWaited(std::max(last_called_at_, counted_until_), state.ended_at);
    counted_until_ = std::max(counted_until_, state.ended_at);
  }
  return state.is_done;
}

std::string QueuedCommunicator::WhoIsMissing(const State& state) const {
  const std::lock_guard lock(mutex_);
  if (state.is_done || !is_executing_) return "";
  // Of an operation that is not at the head yet: these hold up the head, for which it waits.
  const std::vector<int> late = engine_->LateRanks();
  return late.empty() ? "" : absl::StrCat(NameRanks(late), " did not arrive");
}

// REQUIRES: the queue is not empty and nobody executes. Unlocks while the engine works.
void QueuedCommunicator::ExecuteHead(std::unique_lock<std::mutex>& lock, bool is_awaited) {
  std::shared_ptr<State> state = queue_.front();
  is_executing_ = true;
  state->op.is_awaited = is_awaited;
  state->started_at = Clock::now();
  recorder_.Changed(state->op.sequence, FlightState::kRunning, state->started_at);
  lock.unlock();
  // Told before anybody hears of it, since who does may end the process.
  absl::Status status = note_.Told(Run(state->op));
  lock.lock();
  is_executing_ = false;
  queue_.pop_front();
  if (!status.ok() && error_.ok()) error_ = status;
  state->ended_at = Clock::now();
  if (status.ok()) {
    recorder_.Ran(state->op.sequence, state->started_at, state->ended_at);
  } else {
    recorder_.Changed(state->op.sequence, FlightState::kFailed, state->ended_at);
  }
  state->status = std::move(status);
  state->is_done = true;
  if (!error_.ok()) FailQueued();
  if (!queue_.empty()) work_arrived_.notify_one();
  work_done_.notify_all();
}

// Engines have memory of their own, which may not be there.
absl::Status QueuedCommunicator::Run(const Op& op) {
  try {
    return op.pieces.empty() ? engine_->Run(op) : RunPieces(op);
  } catch (const std::bad_alloc&) {
    absl::Status status = NoMemory(Describe(op));
    engine_->Abort(std::string(status.message()), rank());
    return status;
  }
}

// Those that go together lie one behind the other in memory of ours meanwhile.
absl::Status QueuedCommunicator::RunPieces(const Op& op) {
  const size_t size = SizeOf(op.dtype);
  const auto& pieces = op.pieces;
  std::vector<char> packed;
  absl::Status status;
  for (size_t begin = 0, end = 0; begin < pieces.size() && status.ok(); begin = end) {
    size_t count = pieces[end++].count;
    while (end < pieces.size() && (count + pieces[end].count) * size <= kPackedBytes) {
      count += pieces[end++].count;
    }
    if (end == begin + 1) {
      status = engine_->Run(WithoutPieces(op, pieces[begin].data, count));
      continue;
    }
    packed.resize(count * size);
    const auto for_each = [&](const auto& copy) {
      char* place = packed.data();
      for (size_t i = begin; i < end; ++i) {
        copy(pieces[i].data, place, pieces[i].count * size);
        place += pieces[i].count * size;
      }
    };
    for_each([](const void* data, char* place, size_t bytes) { Copy(place, data, bytes); });
    status = engine_->Run(WithoutPieces(op, packed.data(), count));
    if (!status.ok()) break;
    for_each([](void* data, const char* place, size_t bytes) { Copy(data, place, bytes); });
  }
  return status;
}

void QueuedCommunicator::FailQueued() {
  // An executing head ends by itself: the engine has been told.
  auto first = queue_.begin() + (is_executing_ ? 1 : 0);
  for (auto it = first; it != queue_.end(); ++it) {
    (*it)->status = AfterEnd(error_, Describe((*it)->op));
    (*it)->ended_at = Clock::now();
    (*it)->is_done = true;
    recorder_.Changed((*it)->op.sequence, FlightState::kFailed, (*it)->ended_at);
  }
  queue_.erase(first, queue_.end());
}

void QueuedCommunicator::ThreadMain() {
  std::unique_lock lock(mutex_);
  Clock::time_point last_active = Clock::now();
  uint64_t last_seen = 0;
  while (!is_stopping_) {
    if (!queue_.empty() && !is_executing_) {
      ExecuteHead(lock, false);
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (last_seen != last_sequence_) {
      last_seen = last_sequence_;
      last_active = now;
    }
    if (now - last_active < kActive) {
      work_arrived_.wait_for(lock, kLightSleep);
    } else {
      is_asleep_ = true;
      work_arrived_.wait(lock);
      is_asleep_ = false;
      last_active = Clock::now();
    }
  }
}

void QueuedCommunicator::AbortFor(const std::string& reason, std::optional<int> left_peer) {
  engine_->Abort(reason, left_peer);
  std::lock_guard lock(mutex_);
  if (error_.ok()) {
    error_ = absl::AbortedError(absl::StrCat("aborted by rank ", engine_->rank(), ": ", reason));
  }
  FailQueued();
  work_done_.notify_all();
  if (messages_ != nullptr) messages_->Fail(error_);
}

void QueuedCommunicator::SetTimeout(std::chrono::milliseconds timeout) {
  std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

absl::Status QueuedCommunicator::MarkedError() const {
  {
    std::lock_guard lock(mutex_);
    if (!error_.ok()) return error_;
  }
  return engine_->peer_error();
}

absl::StatusOr<std::unique_ptr<Buffer>> QueuedCommunicator::Allocate(size_t bytes) {
  std::unique_ptr<Buffer> buffer;
  Op op;
  op.kind = OpKind::kAllocate;
  op.count = bytes;
  op.output = &buffer;
  absl::Status status = Submit(op, nullptr)->Wait();
  if (!status.ok()) return status;
  return buffer;
}

void QueuedCommunicator::TakeMessages(MessagePeers peers, ddprun::UniqueFd listener,
                                      std::shared_ptr<const LinkKey> key) {
  messages_ = std::make_unique<Messages>(rank(), std::move(peers), std::move(listener),
                                         std::move(key), [this] { return error(); });
}

std::unique_ptr<Work> QueuedCommunicator::Send(const void* data, size_t count, DType dtype,
                                               int destination, uint64_t tag) {
  return Post({.kind = OpKind::kSendReceive, .dtype = dtype, .count = count, .input = data}, true,
              destination, tag);
}

std::unique_ptr<Work> QueuedCommunicator::Receive(void* data, size_t count, DType dtype, int source,
                                                  uint64_t tag) {
  return Post({.kind = OpKind::kSendReceive, .dtype = dtype, .count = count, .output = data}, false,
              source, tag);
}

std::unique_ptr<Work> QueuedCommunicator::Post(const Op& op, bool is_send, int peer, uint64_t tag) {
  absl::Status refused = CheckArguments(op, rank(), world_size());
  if (refused.ok() && check_memory_ != nullptr) refused = check_memory_(op);
  if (refused.ok() && messages_ == nullptr) {
    refused = absl::InvalidArgumentError("a message in a group of one rank: there is no other");
  }
  Message message{.is_send = is_send, .peer = peer, .tag = tag};
  // A send does not write to it.
  message.data =
      is_send ? static_cast<char*>(const_cast<void*>(op.input)) : static_cast<char*>(op.output);
  message.bytes = op.bytes();
  {
    const std::lock_guard lock(mutex_);
    message.timeout = timeout_;
    if (!error_.ok()) refused = AfterEnd(error_, "this call");
  }
  return refused.ok() ? messages_->Start(std::move(message)) : Refused(std::move(refused));
}

std::unique_ptr<Work> QueuedCommunicator::Refused(absl::Status status) {
  auto state = std::make_shared<State>();
  state->status = std::move(status);
  state->started_at = state->ended_at = Clock::now();
  state->is_done = true;
  return std::make_unique<QueuedWork>(*this, std::move(state));
}

std::unique_ptr<Work> QueuedCommunicator::Barrier() {
  return Submit({.kind = OpKind::kBarrier}, nullptr);
}

}  // namespace ddp::internal
