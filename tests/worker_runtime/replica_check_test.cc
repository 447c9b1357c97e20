#include "ddp/replica_check.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/thread_group.h"
#include "tests/worker_runtime/on_device.h"

namespace ddp {
namespace {

using ddprun::testing::ThreadGroup;

struct Model {
  std::vector<float> weight = {1, 2, 3};
  std::vector<double> bias = {0.5};
  std::vector<float> empty;

  std::vector<Tensor> Tensors() {
    return {{"weight", weight.data(), weight.size(), DType::kFloat32},
            {"bias", bias.data(), bias.size(), DType::kFloat64},
            {"empty", empty.data(), empty.size(), DType::kFloat32}};
  }
};

std::string Advice(int64_t last_equal) {
  return ". Usual causes are other seeds, settings or data-dependent code on some ranks, a "
         "parameter that DistributedDataParallel does not reduce, and faulty memory; set later "
         "checkpoints aside and resume from one of step " +
         std::to_string(last_equal) + " or before";
}

// What the ranks are told after `change` was applied to each one's model, up to the advice; it must
// be one word.
std::string Told(int ranks, const std::function<void(int rank, Model&)>& change) {
  ThreadGroup group(ranks);
  std::mutex mutex;
  std::set<std::string> told;
  group.Run([&](Communicator& communicator) {
    Model model;
    ReplicaCheck check(communicator, {.every = 5});
    absl::Status status = check.Compare(5, model.Tensors());
    CHECK(status.ok());
    change(communicator.rank(), model);
    status = check.Compare(10, model.Tensors());
    CHECK((status.ok() || absl::IsDataLoss(status)));
    const std::lock_guard lock(mutex);
    told.insert(std::string(status.message()));
  });
  REQUIRE(told.size() == 1);
  const std::string text = *told.begin();
  if (text.empty()) return text;
  CHECK_MESSAGE(text.ends_with(Advice(5)), text);
  return text.substr(0, text.find(Advice(5)));
}

TEST_CASE("replica check: equal replicas are, NaNs and negative zeros by their bits") {
  CHECK(Told(3, [](int, Model&) {}) == "");
  CHECK(Told(3, [](int, Model& model) { model.weight[0] = std::nanf(""); }) == "");
  CHECK(Told(2, [](int rank, Model& model) { model.weight[0] = rank == 0 ? 0.0f : -0.0f; }) != "");
}

TEST_CASE("replica check: a rank against a majority is named, with the parameter and the step") {
  CHECK(Told(4,
             [](int rank, Model& model) {
               if (rank == 2) model.weight[1] = std::nextafter(model.weight[1], 9.0f);
             }) ==
        "the replicas differ after step 10, and did not after step 5; parameter 'weight': rank 2 "
        "differs from the others");
  CHECK(
      Told(5, [](int rank, Model& model) { model.bias[0] += rank == 1   ? 1
                                                            : rank == 4 ? 2
                                                                        : 0; }) ==
      "the replicas differ after step 10, and did not after step 5; parameter 'bias': ranks 1 "
      "and 4 differ from the others");
}

TEST_CASE("replica check: without a majority nobody is blamed") {
  CHECK(Told(2, [](int rank, Model& model) { model.weight[2] += static_cast<float>(rank); }) ==
        "the replicas differ after step 10, and did not after step 5; parameter 'weight': rank 0 "
        "against rank 1");
  CHECK(Told(4,
             [](int rank, Model& model) {
               model.weight[2] += static_cast<float>(rank % 2);
               model.bias[0] += rank / 2;
             }) ==
        "the replicas differ after step 10, and did not after step 5; parameter 'weight': ranks 0 "
        "and 2 against ranks 1 and 3; parameter 'bias': ranks 0 and 1 against ranks 2 and 3");
}

TEST_CASE("replica check: of many parameters the first are named, and the rest counted") {
  ThreadGroup group(2);
  group.Run([](Communicator& communicator) {
    std::vector<float> values(100, static_cast<float>(communicator.rank()));
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < values.size(); ++i) {
      tensors.push_back({"p" + std::to_string(i), &values[i], 1, DType::kFloat32});
    }
    const std::string text(ReplicaCheck(communicator).Compare(1, tensors).message());
    CHECK(text == Contains("parameter 'p2': rank 0 against rank 1; and 97 more parameters. "));
    CHECK_MESSAGE(text.ends_with("; no step of this run is known to be good: resume from a "
                                 "checkpoint of an earlier run, or start over"),
                  text);
    CHECK(text != Contains("did not after"));
  });
}

TEST_CASE("replica check: ranks that compare different numbers of parameters are told") {
  ThreadGroup group(2);
  group.Run([](Communicator& communicator) {
    Model model;
    std::vector<Tensor> tensors = model.Tensors();
    if (communicator.rank() == 1) tensors.pop_back();
    const absl::Status status = ReplicaCheck(communicator).Compare(1, tensors);
    CHECK_MESSAGE(absl::IsInvalidArgument(status), status.ToString());
    CHECK(status.message() == Contains("3 parameters on rank 0, 2 on rank 1;"));
  });
}

// A hash by a device, which knows no more of a tensor than its first element.
class FirstElements final : public TensorHash {
 public:
  explicit FirstElements(Stream expected) : expected_(expected) {}
  absl::StatusOr<std::vector<int64_t>> Of(std::span<const Tensor> tensors, Stream stream) override {
    if (stream != expected_) return absl::InternalError("another stream");
    std::vector<int64_t> hashes;
    for (const Tensor& tensor : tensors) {
      hashes.push_back(tensor.count == 0 ? 0
                                         : static_cast<int64_t>(*static_cast<float*>(tensor.data)));
    }
    return hashes;
  }

 private:
  const Stream expected_;
};

class HashingDevice final : public internal::OnDevice {
 public:
  HashingDevice(Communicator& host, Stream stream, absl::Status refusal)
      : OnDevice(host), stream_(stream), refusal_(std::move(refusal)) {}
  absl::StatusOr<std::unique_ptr<TensorHash>> MakeTensorHash() override {
    if (!refusal_.ok()) return refusal_;
    return std::make_unique<FirstElements>(stream_);
  }

 private:
  const Stream stream_;
  const absl::Status refusal_;
};

TEST_CASE("replica check: on a device its own hash decides, in the order of the stream") {
  ThreadGroup group(3);
  int stream = 0;
  group.Run([&](Communicator& host) {
    HashingDevice device(host, &stream, absl::OkStatus());
    ReplicaCheck check(device, {.every = 1, .on_device = true});
    Model model;
    model.weight[1] = static_cast<float>(host.rank());  // not seen by that hash
    absl::Status status = check.Compare(1, model.Tensors(), &stream);
    CHECK_MESSAGE(status.ok(), status.ToString());
    model.weight[0] = host.rank() == 1 ? 7 : 1;
    status = check.Compare(2, model.Tensors(), &stream);
    CHECK(status.message() ==
          "the replicas differ after step 2, and did not after step 1; parameter 'weight': rank 1 "
          "differs from the others" +
              Advice(1));
  });
}

TEST_CASE("replica check: a rank that cannot hash says why, and the others name it") {
  ThreadGroup group(3);
  group.Run([](Communicator& host) {
    const bool is_refused = host.rank() == 1;
    HashingDevice device(host, nullptr,
                         is_refused ? absl::InternalError("no kernels here") : absl::OkStatus());
    Model model;
    const absl::Status status =
        ReplicaCheck(device, {.every = 1, .on_device = true}).Compare(4, model.Tensors());
    CHECK(status.message() == (is_refused ? "no kernels here"
                                          : "compare replicas after step 4: rank 1 could not hash "
                                            "its parameters, and says why"));
  });
}

TEST_CASE("replica check: ranks that compare different steps are told, and not that they differ") {
  ThreadGroup group(3);
  group.Run([](Communicator& host) {
    Model model;
    model.weight[0] = static_cast<float>(host.rank());
    const absl::Status status =
        ReplicaCheck(host, {.every = 2}).Compare(host.rank() == 1 ? 3 : 2, model.Tensors());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message() ==
          "compare replicas after step 2 on rank 0, 3 on rank 1; all ranks compare the same step, "
          "with the same ReplicaCheckOptions::every");
  });
}

TEST_CASE("replica check: a negative number of steps is an error, and no end of the process") {
  ThreadGroup group(1);
  ReplicaCheck check(group.communicator(0), {.every = -1});
  check.CountStep();
  CHECK(absl::IsInvalidArgument(check.Compare(1, Model().Tensors())));
}

TEST_CASE("replica check: it is due after so many steps, on all ranks, and never with one") {
  ThreadGroup group(2);
  group.Run([](Communicator& communicator) {
    Model model;
    ReplicaCheck check(communicator, {.every = 3});
    std::string due;
    for (int step = 1; step <= 9; ++step) {
      const bool is_due = check.CountStep();
      due += is_due ? 'x' : '.';
      if (is_due) CHECK(check.Compare(step, model.Tensors()).ok());
    }
    CHECK(due == "..x..x..x");
    CHECK(check.every() == 3);
  });
  ThreadGroup alone(1);
  ReplicaCheck check(alone.communicator(0), {.every = 1});
  CHECK_FALSE(check.CountStep());
}

// The steps take no time here, so that any comparison costs too much.
TEST_CASE("replica check: by default they grow rarer until they cost little, alike on all ranks") {
  ThreadGroup group(3);
  std::mutex mutex;
  std::set<int64_t> every;
  group.Run([&](Communicator& communicator) {
    Model model;
    ReplicaCheck check(communicator);
    CHECK(check.CountStep());
    for (int i = 0; i < 3; ++i) CHECK(check.Compare(i, model.Tensors()).ok());
    const std::lock_guard lock(mutex);
    every.insert(check.every());
  });
  REQUIRE(every.size() == 1);
  CHECK(*every.begin() > 1);
}

}  // namespace
}  // namespace ddp
