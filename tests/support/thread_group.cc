#include "tests/support/thread_group.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/support/fewer_operations.h"

namespace ddprun::testing {

using ddp::DType;
using ddp::ReduceOp;

namespace {

constexpr std::chrono::seconds kTimeout(30);

enum class Kind { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kBarrier };

struct Operation {
  Kind kind = Kind::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  DType dtype = DType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;

  bool Matches(const Operation& other) const {
    return kind == other.kind && count == other.count && dtype == other.dtype && op == other.op &&
           root == other.root;
  }
};

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

template <typename T>
T Combine(ReduceOp op, T left, T right) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return static_cast<T>(left + right);
    case ReduceOp::kMax:
      return std::max(left, right);
    case ReduceOp::kMin:
      return std::min(left, right);
    case ReduceOp::kProduct:
      return static_cast<T>(left * right);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;  // not in this double
  }
  return left;
}

template <typename T>
std::string Combine(const std::vector<Operation>& ops) {
  const size_t count =
      ops[0].kind == Kind::kReduceScatter ? ops[0].count * ops.size() : ops[0].count;
  std::string bytes(count * sizeof(T), '\0');
  T* results = reinterpret_cast<T*>(bytes.data());
  Copy(results, ops[0].input, bytes.size());
  for (size_t rank = 1; rank < ops.size(); ++rank) {
    const T* values = static_cast<const T*>(ops[rank].input);
    for (size_t i = 0; i < count; ++i) results[i] = Combine(ops[0].op, results[i], values[i]);
  }
  if (ops[0].op == ReduceOp::kAverage) {
    for (size_t i = 0; i < count; ++i)
      results[i] = static_cast<T>(results[i] / static_cast<T>(ops.size()));
  }
  return bytes;
}

absl::StatusOr<std::string> Combine(const std::vector<Operation>& ops) {
  switch (ops[0].dtype) {
    case DType::kFloat32:
      return Combine<float>(ops);
    case DType::kFloat64:
      return Combine<double>(ops);
    case DType::kInt32:
      return Combine<int32_t>(ops);
    case DType::kInt64:
      return Combine<int64_t>(ops);
    case DType::kUint8:
      return Combine<uint8_t>(ops);
    case DType::kInt8:
      return Combine<int8_t>(ops);
    case DType::kFloat16:
    case DType::kBFloat16:
      break;
  }
  return absl::UnimplementedError("thread group: no 16-bit types");
}

// What the last rank to arrive does for all.
absl::Status Execute(const std::vector<Operation>& ops) {
  const Operation& first = ops[0];
  for (size_t rank = 1; rank < ops.size(); ++rank) {
    if (!ops[rank].Matches(first)) {
      return absl::InvalidArgumentError(
          absl::StrCat("thread group: rank ", rank, " calls something else than rank 0"));
    }
  }
  const size_t bytes = first.count * SizeOf(first.dtype);
  switch (first.kind) {
    case Kind::kBarrier:
      return absl::OkStatus();
    case Kind::kBroadcast:
      for (const Operation& operation : ops) {
        Copy(operation.output, ops[first.root].output, bytes);
      }
      return absl::OkStatus();
    case Kind::kAllGather:
      for (const Operation& operation : ops) {
        for (size_t rank = 0; rank < ops.size(); ++rank) {
          Copy(static_cast<char*>(operation.output) + rank * bytes, ops[rank].input, bytes);
        }
      }
      return absl::OkStatus();
    case Kind::kAllReduce:
    case Kind::kReduceScatter: {
      const absl::StatusOr<std::string> sums = Combine(ops);
      if (!sums.ok()) return sums.status();
      for (size_t rank = 0; rank < ops.size(); ++rank) {
        const size_t offset = first.kind == Kind::kReduceScatter ? rank * bytes : 0;
        Copy(ops[rank].output, sums->data() + offset, bytes);
      }
      return absl::OkStatus();
    }
  }
  return absl::InternalError("unknown operation");
}

class HeapBuffer : public ddp::Buffer {
 public:
  explicit HeapBuffer(size_t bytes)
      : bytes_(bytes), data_(::operator new(bytes, std::align_val_t(4096))) {
    std::memset(data_, 0, bytes);
  }
  ~HeapBuffer() override { ::operator delete(data_, std::align_val_t(4096)); }
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  size_t bytes_;
  void* data_;
};

}  // namespace

// Where the ranks meet: one operation at a time, done by the last to arrive.
class ThreadGroupState {
 public:
  explicit ThreadGroupState(int world_size) : ops_(world_size) {}

  absl::Status Meet(int rank, const Operation& operation) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!error_.ok()) return error_;
    ops_[rank] = operation;
    const int64_t turn = turn_;
    if (++arrived_ == static_cast<int>(ops_.size())) {
      error_ = Execute(ops_);
      arrived_ = 0;
      ++turn_;
      changed_.notify_all();
      return error_;
    }
    const bool met =
        changed_.wait_for(lock, kTimeout, [&] { return turn_ != turn || !error_.ok(); });
    if (!met) {
      error_ = absl::DeadlineExceededError("thread group: not all ranks arrived");
      changed_.notify_all();
    }
    return error_;
  }

  void Fail(absl::Status error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_.ok()) error_ = std::move(error);
    changed_.notify_all();
  }

  absl::Status error() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Operation> ops_;
  int arrived_ = 0;
  int64_t turn_ = 0;
  absl::Status error_;
};

namespace {

// Shared by the caller and the communicator's thread.
struct Progress {
  std::mutex mutex;
  std::condition_variable done;
  bool is_done = false;
  absl::Status status;
  ddp::Work::Clock::time_point started, ended;
};

class ThreadWork : public ddp::Work {
 public:
  explicit ThreadWork(std::shared_ptr<Progress> progress) : progress_(std::move(progress)) {}
  absl::Status Wait() override {
    std::unique_lock<std::mutex> lock(progress_->mutex);
    progress_->done.wait(lock, [this] { return progress_->is_done; });
    return progress_->status;
  }
  absl::Status WaitOn(ddp::Stream) override { return Wait(); }
  bool IsDone() const override {
    const std::lock_guard<std::mutex> lock(progress_->mutex);
    return progress_->is_done;
  }
  Clock::time_point started_at() const override { return progress_->started; }
  Clock::time_point ended_at() const override { return progress_->ended; }

 private:
  std::shared_ptr<Progress> progress_;
};

class ThreadCommunicator : public FewerOperations {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroupState> state, int rank, int world_size)
      : state_(std::move(state)),
        rank_(rank),
        world_size_(world_size),
        thread_([this] { Loop(); }) {}
  ~ThreadCommunicator() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_closed_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  const char* backend() const override { return "thread"; }
  ddp::DeviceType device_type() const override { return ddp::DeviceType::kCpu; }

  absl::StatusOr<std::unique_ptr<ddp::Buffer>> Allocate(size_t bytes) override {
    return std::make_unique<HeapBuffer>(bytes);
  }
  std::unique_ptr<ddp::Work> AllReduce(void* data, size_t count, DType dtype, ReduceOp op,
                                       ddp::Stream) override {
    return Enqueue({Kind::kAllReduce, data, data, count, dtype, op, 0});
  }
  // One after the other: the last is done when all are, and fails when one does.
  std::unique_ptr<ddp::Work> AllReduceCoalesced(std::vector<ddp::Piece> pieces, DType dtype,
                                                ReduceOp op, ddp::Stream stream) override {
    std::unique_ptr<ddp::Work> work;
    for (const ddp::Piece& piece : pieces) {
      work = AllReduce(piece.data, piece.count, dtype, op, stream);
    }
    return work;
  }
  std::unique_ptr<ddp::Work> Broadcast(void* data, size_t count, DType dtype, int root,
                                       ddp::Stream) override {
    return Enqueue({Kind::kBroadcast, data, data, count, dtype, ReduceOp::kSum, root});
  }
  std::unique_ptr<ddp::Work> AllGather(const void* input, void* output, size_t count, DType dtype,
                                       ddp::Stream) override {
    return Enqueue({Kind::kAllGather, input, output, count, dtype, ReduceOp::kSum, 0});
  }
  std::unique_ptr<ddp::Work> ReduceScatter(const void* input, void* output, size_t count,
                                           DType dtype, ReduceOp op, ddp::Stream) override {
    return Enqueue({Kind::kReduceScatter, input, output, count, dtype, op, 0});
  }
  std::unique_ptr<ddp::Work> Barrier() override { return Enqueue({}); }
  void Abort(const std::string& reason) override { state_->Fail(absl::AbortedError(reason)); }
  absl::Status error() const override { return state_->error(); }

 private:
  std::unique_ptr<ddp::Work> Enqueue(const Operation& operation) {
    auto progress = std::make_shared<Progress>();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back({operation, progress});
    }
    changed_.notify_all();
    return std::make_unique<ThreadWork>(std::move(progress));
  }

  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return is_closed_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto [operation, progress] = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      const auto started = ddp::Work::Clock::now();
      const absl::Status status = state_->Meet(rank_, operation);
      {
        const std::lock_guard<std::mutex> done(progress->mutex);
        progress->started = started;
        progress->ended = ddp::Work::Clock::now();
        progress->status = status;
        progress->is_done = true;
        progress->done.notify_all();
      }
      lock.lock();
    }
  }

  const std::shared_ptr<ThreadGroupState> state_;
  const int rank_;
  const int world_size_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::pair<Operation, std::shared_ptr<Progress>>> queue_;
  bool is_closed_ = false;
  std::thread thread_;
};

}  // namespace

ThreadGroup::ThreadGroup(int world_size) : state_(std::make_shared<ThreadGroupState>(world_size)) {
  for (int rank = 0; rank < world_size; ++rank) {
    communicators_.push_back(std::make_unique<ThreadCommunicator>(state_, rank, world_size));
  }
}

ThreadGroup::~ThreadGroup() = default;

ddp::Communicator& ThreadGroup::communicator(int rank) { return *communicators_[rank]; }

void ThreadGroup::Run(const std::function<void(ddp::Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (const std::unique_ptr<ddp::Communicator>& communicator : communicators_) {
    threads.emplace_back([&body, &communicator] { body(*communicator); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ddprun::testing
