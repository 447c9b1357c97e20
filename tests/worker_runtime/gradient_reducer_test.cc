#include "worker_runtime/gradient_reducer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>

#include "tests/support/contains.h"
#include "tests/worker_runtime/all_reduce_only.h"

namespace ddp::internal {
namespace {

using std::chrono::milliseconds;
using TimePoint = Work::Clock::time_point;

// One rank's view of a group in virtual time: every all-reduce takes `delay`, one after the other,
// beside the caller. Waiting for one moves the clock to its end. So what a step costs is computed
// instead of measured.
class DelayedCommunicator : public AllReduceOnly {
 public:
  explicit DelayedCommunicator(milliseconds delay, int world_size = 2)
      : delay_(delay), world_size_(world_size) {}

  TimePoint now() const { return now_; }
  void Compute(milliseconds time) { now_ += time; }

  int rank() const override { return 0; }
  int world_size() const override { return world_size_; }
  const char* backend() const override { return "delayed"; }
  DeviceType device_type() const override { return DeviceType::kCpu; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return std::make_unique<Memory>(bytes);
  }
  std::unique_ptr<Work> AllReduce(void*, size_t, DType type, ReduceOp op, Stream) override {
    CHECK(op == (type == DType::kFloat32 ? ReduceOp::kAverage : ReduceOp::kSum));
    const TimePoint begin = std::max(now_, busy_until_);
    busy_until_ = begin + delay_;
    ++launched;
    return std::make_unique<Timed>(*this, begin, busy_until_);
  }
  void Abort(const std::string& reason) override {
    if (error_.ok()) error_ = absl::AbortedError(reason);
  }
  absl::Status error() const override { return error_; }

  int launched = 0;

 private:
  struct Memory : Buffer {
    explicit Memory(size_t bytes) : storage(bytes, 0) {}
    void* data() const override { return const_cast<char*>(storage.data()); }
    size_t bytes() const override { return storage.size(); }
    std::vector<char> storage;
  };
  struct Timed : Work {
    Timed(DelayedCommunicator& owner, TimePoint begin, TimePoint end)
        : owner(owner), begin(begin), end(end), is_refused(!owner.error_.ok()) {}
    absl::Status Wait() override {
      owner.now_ = std::max(owner.now_, end);
      return owner.error_;
    }
    absl::Status WaitOn(Stream) override { return Wait(); }
    bool IsDone() const override { return owner.now_ >= end; }
    bool was_refused() const override { return is_refused; }
    TimePoint started_at() const override { return begin; }
    TimePoint ended_at() const override { return end; }
    DelayedCommunicator& owner;
    const TimePoint begin, end;
    const bool is_refused;
  };

  const milliseconds delay_;
  const int world_size_;
  TimePoint now_ = TimePoint(std::chrono::hours(1));
  TimePoint busy_until_{};
  absl::Status error_;
};

// Ten parameters, each a bucket of its own.
std::unique_ptr<GradientReducer> TenBuckets(DelayedCommunicator& communicator) {
  std::vector<std::string> names;
  for (int i = 0; i < 10; ++i) names.push_back("p" + std::to_string(i));
  auto reducer =
      GradientReducer::Create(communicator, names, std::vector<GradientSpec>(10, {.count = 100}),
                              {.first_bytes = 400, .cap_bytes = 400}, {}, {},
                              [&communicator] { return communicator.now(); });
  REQUIRE(reducer.ok());
  REQUIRE((*reducer)->layout().buckets.size() == 10);
  return *std::move(reducer);
}

void Backward(GradientReducer& reducer, DelayedCommunicator& communicator, milliseconds each) {
  for (int parameter = 9; parameter >= 0; --parameter) {
    communicator.Compute(each);
    REQUIRE(reducer.MarkReady(parameter, nullptr).ok());
  }
}

TEST_CASE("gradients: in the first pass a bucket's reduction begins before the last is ready") {
  DelayedCommunicator communicator(milliseconds(5));
  const auto reducer = TenBuckets(communicator);
  Backward(*reducer, communicator, milliseconds(10));
  REQUIRE(reducer->Finish().ok());

  const PassRecord& record = reducer->record();
  const TimePoint last_ready = *std::max_element(record.gradient_ready.begin(),  //
                                                 record.gradient_ready.end());
  CHECK(record.buckets[0].started < last_ready);
  CHECK(record.buckets[0].launched == record.gradient_ready[9]);
  for (size_t i = 1; i < record.buckets.size(); ++i) {
    CHECK(record.buckets[i].started >= record.buckets[i - 1].ended);
  }
}

TEST_CASE("gradients: a slow communicator costs its delay once, not once per bucket") {
  const milliseconds delay(10), each(10);
  DelayedCommunicator communicator(delay);
  const auto reducer = TenBuckets(communicator);
  for (int pass = 0; pass < 3; ++pass) {
    const TimePoint begin = communicator.now();
    Backward(*reducer, communicator, each);
    REQUIRE(reducer->Finish().ok());
    CHECK(communicator.now() - begin == 10 * each + delay);  // without overlap: 200 ms
  }
  CHECK(communicator.launched == 30);
}

TEST_CASE("gradients: communication that is slower than backward hides behind all of it") {
  DelayedCommunicator communicator(milliseconds(30));
  const auto reducer = TenBuckets(communicator);
  const TimePoint begin = communicator.now();
  Backward(*reducer, communicator, milliseconds(10));
  REQUIRE(reducer->Finish().ok());
  CHECK(communicator.now() - begin == milliseconds(10 + 10 * 30));  // without overlap: 400 ms
}

TEST_CASE("gradients: a group of one reduces nothing and waits for nothing") {
  DelayedCommunicator communicator(milliseconds(10), /*world_size=*/1);
  const auto reducer = TenBuckets(communicator);
  const TimePoint begin = communicator.now();
  Backward(*reducer, communicator, milliseconds(10));
  CHECK(reducer->IsReduced(9));
  REQUIRE(reducer->Finish().ok());
  CHECK(communicator.launched == 0);
  CHECK(communicator.now() - begin == milliseconds(100));
  CHECK(reducer->record().buckets[9].ended == communicator.now());
}

TEST_CASE("gradients: a bucket is reduced when its work is done, not when it is launched") {
  DelayedCommunicator communicator(milliseconds(5));
  const auto reducer = TenBuckets(communicator);
  CHECK_FALSE(reducer->IsReduced(0));
  REQUIRE(reducer->MarkReady(9, nullptr).ok());
  CHECK_FALSE(reducer->IsReduced(0));
  communicator.Compute(milliseconds(5));
  CHECK(reducer->IsReduced(0));
  CHECK_FALSE(reducer->IsReduced(1));
}

TEST_CASE("gradients: one that is missing at Finish aborts the group, and the error stays") {
  DelayedCommunicator communicator(milliseconds(5));
  const auto reducer = TenBuckets(communicator);
  REQUIRE(reducer->MarkReady(9, nullptr).ok());
  const absl::Status status = reducer->Finish();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() == Contains("9 of 10 parameters got no gradient: 'p0'"));
  CHECK(communicator.error().code() == absl::StatusCode::kAborted);
  CHECK(communicator.error().message().find("rank 0: Expected to have finished") == 0);
  CHECK(reducer->MarkReady(9, nullptr) == status);
  CHECK(reducer->MarkUnsynchronized(9) == status);
  CHECK(reducer->ZeroGradients() == status);
  CHECK(reducer->Finish() == status);
}

TEST_CASE("gradients: one that was refused is repeated at the end of the pass, which is over") {
  DelayedCommunicator communicator(milliseconds(5));
  const auto reducer = TenBuckets(communicator);
  CHECK(reducer->MarkReady(10, nullptr).code() == absl::StatusCode::kInvalidArgument);
  CHECK(reducer->MarkReady(11, nullptr).code() == absl::StatusCode::kInvalidArgument);
  Backward(*reducer, communicator, milliseconds(1));
  const absl::Status status = reducer->Finish();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() ==
        "a gradient of this pass was refused: parameter 10: there are 10, "
        "numbered from 0");
  CHECK(communicator.launched == 10);
  CHECK(communicator.error().ok());
  Backward(*reducer, communicator, milliseconds(1));
  CHECK(reducer->Finish().ok());
  // Without synchronisation, and where the one that was meant is missing.
  CHECK_FALSE(reducer->MarkUnsynchronized(-1).ok());
  CHECK(reducer->TakeRefusal().message() == Contains("parameter -1: there are 10"));
  CHECK(reducer->TakeRefusal().ok());
  for (int parameter = 10; parameter > 0; --parameter) {
    reducer->MarkReady(parameter, nullptr).IgnoreError();
  }
  CHECK(reducer->Finish().message() ==
        Contains(
            "1 of 10 parameters got no gradient: 'p0'; every registered parameter must be marked "
            "ready in every synchronised backward pass, or set find_unused_parameters; before it a "
            "gradient of this pass was refused: parameter 10"));
}

TEST_CASE("gradients: an error of the communicator is the result of the next launch") {
  DelayedCommunicator communicator(milliseconds(5));
  const auto reducer = TenBuckets(communicator);
  REQUIRE(reducer->MarkReady(9, nullptr).ok());
  communicator.Abort("rank 3 died");
  const absl::Status status = reducer->MarkReady(8, nullptr);
  CHECK(status.code() == absl::StatusCode::kAborted);
  CHECK(status.message() == "rank 3 died");
  CHECK(reducer->Finish() == status);
}

TEST_CASE("gradients: zeroing in the middle of a pass is refused, between passes it zeroes") {
  DelayedCommunicator communicator(milliseconds(5));
  const auto reducer = TenBuckets(communicator);
  float* gradient = static_cast<float*>(reducer->GradientPtr(4));
  gradient[99] = 7;
  REQUIRE(reducer->MarkReady(9, nullptr).ok());
  CHECK(reducer->ZeroGradients().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(gradient[99] == 7);
  for (int parameter = 8; parameter >= 0; --parameter) {
    REQUIRE(reducer->MarkReady(parameter, nullptr).ok());
  }
  REQUIRE(reducer->Finish().ok());
  CHECK(reducer->ZeroGradients().ok());
  CHECK(gradient[99] == 0);
}

TEST_CASE("gradients: released in the middle of a pass they tell the other ranks") {
  // The first bucket is that of parameter 9: with 8 alone none is under way.
  for (const int parameter : {9, 8}) {
    DelayedCommunicator communicator(milliseconds(5));
    auto reducer = TenBuckets(communicator);
    REQUIRE(reducer->MarkReady(parameter, nullptr).ok());
    reducer.reset();
    CHECK(communicator.error().code() == absl::StatusCode::kAborted);
  }

  DelayedCommunicator idle(milliseconds(5));
  TenBuckets(idle).reset();
  CHECK(idle.error().ok());
}

}  // namespace
}  // namespace ddp::internal
