// Gradients in 16 bits on a GPU: what is put on which stream, and in which order.
#include "worker_runtime/bucket_wire.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "tests/support/thread_group.h"
#include "tests/worker_runtime/all_reduce_only.h"
#include "worker_runtime/comm/graph_capture.h"
#include "worker_runtime/gradient_reducer.h"

namespace ddp::internal {
namespace {

using Lines = std::vector<std::string>;

char compute, optimizer;  // their addresses are the streams
const char* NameOf(Stream stream) { return stream == &compute ? " compute" : " optimizer"; }

struct Capture : GraphCapture {
  absl::Status BeginCapture(Stream) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<CapturedGraph>> EndCapture() override { return nullptr; }
  void Discard() override {}
  bool is_capturing() const override { return is_on; }
  bool is_on = false;
};

// A GPU's communicator on which nothing is ever done: whoever waits for it on the host fails.
class RecordingCommunicator : public AllReduceOnly {
 public:
  explicit RecordingCommunicator(Lines& lines) : lines_(lines) {}

  int rank() const override { return 1; }
  int world_size() const override { return 2; }
  const char* backend() const override { return "recording"; }
  DeviceType device_type() const override { return DeviceType::kCuda; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    lines_.push_back("allocate " + std::to_string(bytes));
    if (lines_.size() > max_allocations) return absl::ResourceExhaustedError("no memory");
    buffers_.push_back(std::vector<char>(bytes));
    return std::make_unique<Memory>(lines_, buffers_.back());
  }
  std::unique_ptr<Work> AllReduce(void* data, size_t count, DType type, ReduceOp op,
                                  Stream stream) override {
    lines_.push_back("reduce " + Describe(data) + " x " + std::to_string(count) + " " + Name(type) +
                     (op == ReduceOp::kSum ? " sum" : " average") + NameOf(stream));
    return std::make_unique<Pending>(lines_, Describe(data));
  }
  // In which rank 0's order is this rank's.
  Communicator& host() override { return alone_.communicator(0); }
  GraphCapture* graph_capture() override { return &capture; }
  void Abort(const std::string& reason) override { lines_.push_back("abort " + reason); }
  absl::Status error() const override { return absl::OkStatus(); }

  // "0+4096": the allocation and the offset.
  std::string Describe(const void* data) const {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const std::ptrdiff_t offset = static_cast<const char*>(data) - buffers_[i].data();
      if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(buffers_[i].size())) continue;
      return std::to_string(i) + "+" + std::to_string(offset);
    }
    return "?";
  }

  size_t max_allocations = 2;
  Capture capture;

 private:
  struct Memory : Buffer {
    Memory(Lines& lines, std::vector<char>& content) : lines(lines), content(content) {}
    ~Memory() override { lines.push_back("free " + std::to_string(content.size())); }
    void* data() const override { return content.data(); }
    size_t bytes() const override { return content.size(); }
    Lines& lines;
    std::vector<char>& content;
  };
  struct Pending : Work {
    Pending(Lines& lines, std::string what) : lines(lines), what(std::move(what)) {}
    absl::Status Wait() override {
      lines.push_back("host waits for " + what);
      return absl::OkStatus();
    }
    absl::Status WaitOn(Stream stream) override {
      lines.push_back("wait " + what + NameOf(stream));
      return absl::OkStatus();
    }
    bool IsDone() const override { return false; }
    Clock::time_point started_at() const override { return {}; }
    Clock::time_point ended_at() const override { return {}; }
    Lines& lines;
    const std::string what;
  };

  Lines& lines_;
  std::deque<std::vector<char>> buffers_;
  ddprun::testing::ThreadGroup alone_{1};
};

class RecordingCasts : public HalfCasts {
 public:
  RecordingCasts(Lines& lines, const RecordingCommunicator& communicator)
      : lines_(lines), communicator_(communicator) {}
  absl::Status Narrow(const float* input, void* output, size_t count, int divisor,
                      Stream stream) override {
    lines_.push_back("narrow " + communicator_.Describe(input) + " to " +
                     communicator_.Describe(output) + " x " + std::to_string(count) + " / " +
                     std::to_string(divisor) + NameOf(stream));
    return lines_.size() > 5 ? narrow_fails : absl::OkStatus();
  }
  absl::Status Widen(const void* input, float* output, size_t count, Stream stream) override {
    lines_.push_back("widen " + communicator_.Describe(input) + " to " +
                     communicator_.Describe(output) + " x " + std::to_string(count) +
                     NameOf(stream));
    return absl::OkStatus();
  }

  absl::Status narrow_fails;

 private:
  Lines& lines_;
  const RecordingCommunicator& communicator_;
};

// Three float32 parameters and, as the second, one of float64; a bucket each.
absl::StatusOr<std::unique_ptr<GradientReducer>> Made(RecordingCommunicator& communicator,
                                                      std::unique_ptr<HalfCasts> casts) {
  const GradientSpec floats{.count = 2000, .dtype = DType::kFloat32, .device = DeviceType::kCuda};
  GradientSpec doubles = floats;
  doubles.dtype = DType::kFloat64;
  return GradientReducer::Create(communicator, {"a", "b", "c", "d"},
                                 {floats, doubles, floats, floats},
                                 {.first_bytes = 100, .cap_bytes = 100},
                                 {.type = DType::kBFloat16, .casts = std::move(casts)});
}

TEST_CASE("bucket wire: on a GPU casts are queued around the reduction, and the host never waits") {
  Lines lines;
  RecordingCommunicator communicator(lines);
  auto reducer = Made(communicator, std::make_unique<RecordingCasts>(lines, communicator));
  REQUIRE(reducer.ok());
  // 3 x 8000 bytes and 16000, in pages; the wire takes 3 x 4000.
  CHECK(lines == Lines{"allocate 40960", "allocate 12288"});
  for (int pass = 0; pass < 2; ++pass) {
    lines.clear();
    for (const int parameter : {3, 2, 1, 0}) {
      REQUIRE((*reducer)->MarkReady(parameter, &compute).ok());
    }
    REQUIRE((*reducer)->Finish(&optimizer).ok());
    CHECK(lines == Lines{
                       "narrow 0+0 to 1+0 x 2000 / 2 compute",
                       "reduce 1+0 x 2000 bfloat16 sum compute",
                       "narrow 0+8192 to 1+4096 x 2000 / 2 compute",
                       "reduce 1+4096 x 2000 bfloat16 sum compute",
                       "reduce 0+16384 x 2000 float64 average compute",
                       "narrow 0+32768 to 1+8192 x 2000 / 2 compute",
                       "reduce 1+8192 x 2000 bfloat16 sum compute",
                       "wait 1+0 optimizer",
                       "widen 1+0 to 0+0 x 2000 optimizer",
                       "wait 1+4096 optimizer",
                       "widen 1+4096 to 0+8192 x 2000 optimizer",
                       "wait 1+8192 optimizer",
                       "widen 1+8192 to 0+32768 x 2000 optimizer",
                   });
  }
}

TEST_CASE("bucket wire: a cast that cannot be queued tells the other ranks, and the error stays") {
  Lines lines;
  RecordingCommunicator communicator(lines);
  auto casts = std::make_unique<RecordingCasts>(lines, communicator);
  casts->narrow_fails = absl::InternalError("the device is gone");
  auto reducer = Made(communicator, std::move(casts));
  REQUIRE(reducer.ok());
  absl::Status status;
  for (const int parameter : {3, 2, 1, 0}) {
    status.Update((*reducer)->MarkReady(parameter, &compute));
  }
  CHECK(status == absl::InternalError("the device is gone"));
  CHECK(lines.back() == "abort rank 1: the device is gone");
  CHECK((*reducer)->Finish(&optimizer) == status);
}

TEST_CASE("bucket wire: without memory for it the error says what for") {
  Lines lines;
  RecordingCommunicator communicator(lines);
  communicator.max_allocations = 1;
  const auto reducer = Made(communicator, std::make_unique<RecordingCasts>(lines, communicator));
  CHECK(reducer.status() ==
        absl::ResourceExhaustedError("allocate 12288 bytes for gradients as bfloat16: no memory"));
}

// Whether the first wire's memory is freed when the buckets are filled anew, behind two passes of
// which the first is in a graph or not.
bool FreesWire(bool is_captured) {
  Lines lines;
  RecordingCommunicator communicator(lines);
  communicator.max_allocations = 1000;
  auto reducer = Made(communicator, std::make_unique<RecordingCasts>(lines, communicator));
  REQUIRE(reducer.ok());
  (*reducer)->RebuildBuckets({.first_bytes = 100, .cap_bytes = 100});
  for (const bool is_on : {is_captured, false}) {
    communicator.capture.is_on = is_on;
    for (const int parameter : {1, 2, 3, 0}) {
      REQUIRE((*reducer)->MarkReady(parameter, &compute).ok());
    }
    REQUIRE((*reducer)->Finish(&optimizer).ok());
  }
  CHECK(std::count(lines.begin(), lines.end(), "allocate 12288") == 2);
  return std::count(lines.begin(), lines.end(), "free 12288") == 1;
}

TEST_CASE("bucket wire: one that a graph uses stays when buckets are filled anew") {
  CHECK(FreesWire(/*is_captured=*/false));
  CHECK_FALSE(FreesWire(/*is_captured=*/true));
}

}  // namespace
}  // namespace ddp::internal
