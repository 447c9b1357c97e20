// Gradients in memory of the program's own, against those in the library's and PyTorch's.
#include "worker_runtime/gradient_memory.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/thread_group.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/torch_ddp.h"

namespace ddp {
namespace {

using testing::RunScript;
using testing::ScriptStep;
using Kind = ScriptStep::Kind;

const std::vector<ScriptStep> kAllUsed = {
    {Kind::kPass, {"3210", "0123"}}, {Kind::kZeroGrad, {}},
    {Kind::kPass, {"0123", "3210"}}, {Kind::kPass, {"3210", "3210"}},
    {Kind::kNoSyncPass, {"2", "3"}}, {Kind::kPass, {"3210", "1032"}},
};
const std::vector<ScriptStep> kSomeUsed = {
    {Kind::kPass, {"310", "0"}}, {Kind::kPass, {"2", "12"}},       {Kind::kZeroGrad, {}},
    {Kind::kPass, {"1", "1"}},   {Kind::kNoSyncPass, {"3", "01"}}, {Kind::kPass, {"1", "1"}},
};

TEST_CASE("own gradients: each is torch's, bit for bit") {
  if (ddprun::testing::FindTorchPython().python.empty()) {
    return ddprun::testing::SkipWithoutTorch();
  }
  testing::CheckAsTorch(kAllUsed, "", {}, {}, /*owns_gradients=*/true);
  testing::CheckAsTorch(kSomeUsed, "find_unused_parameters=1", {.find_unused_parameters = true}, {},
                        /*owns_gradients=*/true);
}

TEST_CASE("own gradients: they are what those of the library are, whatever the options") {
  std::vector<ScriptStep> joined = kSomeUsed;
  joined.insert(joined.begin(), {Kind::kJoinEffective, {}});
  joined.push_back({Kind::kPass, {"-", "3"}});
  const ScriptStep fixed{Kind::kPass, {"10", "30"}};
  const std::vector<std::pair<std::vector<ScriptStep>, DistributedDataParallelOptions>> cases = {
      {kAllUsed, {}},
      {kSomeUsed, {.find_unused_parameters = true}},
      {joined, {.find_unused_parameters = true}},
      {{fixed, fixed, {Kind::kZeroGrad, {}}, fixed}, {.static_graph = true}},
  };
  for (const auto& [script, options] : cases) {
    CAPTURE(&options - &cases.front().second);
    const auto own = RunScript(script, options, {}, true), library = RunScript(script, options);
    for (const int rank : {0, 1}) {
      REQUIRE_MESSAGE(own[rank].ok(), own[rank].status().message());
      REQUIRE_MESSAGE(library[rank].ok(), library[rank].status().message());
      CHECK(*own[rank] == *library[rank]);
    }
  }
}

// Parameters "a" of 4 elements and "b" of 2, and a buffer.
struct Tensors {
  float a[4] = {}, b[2] = {}, buffer[2] = {}, gradients[8] = {};
};

// What Finalize() says on both ranks, one of which registers what `add` does.
std::string FinalizeWith(const std::function<void(DistributedDataParallel&, Tensors&)>& add,
                         bool on_both = true) {
  ddprun::testing::ThreadGroup group(2);
  std::string messages[2];
  group.Run([&](Communicator& communicator) {
    Tensors tensors;
    DistributedDataParallel ddp(communicator);
    if (on_both || communicator.rank() == 1) {
      add(ddp, tensors);
    } else {
      ddp.AddParameter("a", tensors.a, 4, DType::kFloat32);
      ddp.AddParameter("b", tensors.b, 2, DType::kFloat32);
    }
    ddp.AddBuffer("buffer", tensors.buffer, 2, DType::kFloat32);
    messages[communicator.rank()] = std::string(ddp.Finalize().message());
  });
  CHECK(messages[0].substr(0, 6) == messages[1].substr(0, 6));
  return messages[1];
}

// As above, with the gradients of "a" and "b".
std::string FinalizeWith(const std::function<std::pair<Piece, Piece>(Tensors&)>& gradients) {
  return FinalizeWith([&](DistributedDataParallel& ddp, Tensors& tensors) {
    const auto [a, b] = gradients(tensors);
    ddp.AddParameter("a", tensors.a, 4, DType::kFloat32, a);
    ddp.AddParameter("b", tensors.b, 2, DType::kFloat32, b);
  });
}

using Pair = std::pair<Piece, Piece>;

TEST_CASE("own gradients: those that cannot be are refused with the parameter's name") {
  const auto refuses = [](const std::string& words,
                          const std::function<Pair(Tensors&)>& gradients) {
    const std::string message = FinalizeWith(gradients);
    CHECK(message == Contains(words));
  };
  CHECK(FinalizeWith([](Tensors& t) {
          return Pair{{t.gradients, 4}, {t.gradients + 4, 2}};
        }) == "");
  refuses("the gradient of 'b' is a null pointer", [](Tensors& t) {
    return Pair{{t.gradients, 4}, {nullptr, 2}};
  });
  refuses("the gradient of 'b' has 3 elements, its parameter has 2", [](Tensors& t) {
    return Pair{{t.gradients, 4}, {t.gradients + 4, 3}};
  });
  refuses("the gradient of 'b' is not aligned to its elements of 4 bytes", [](Tensors& t) {
    return Pair{{t.gradients, 4}, {reinterpret_cast<char*>(t.gradients + 4) + 2, 2}};
  });
  refuses("the gradient of 'b' shares memory with the gradient of 'a'", [](Tensors& t) {
    return Pair{{t.gradients, 4}, {t.gradients + 3, 2}};
  });
  refuses("the gradient of 'a' shares memory with the gradient of 'b'", [](Tensors& t) {
    return Pair{{t.gradients + 1, 4}, {t.gradients, 2}};
  });
  refuses("shares memory with", [](Tensors& t) { return Pair{{t.gradients, 4}, {t.b, 2}}; });
  refuses("shares memory with", [](Tensors& t) { return Pair{{t.gradients, 4}, {t.buffer, 2}}; });
}

TEST_CASE("own gradients: all parameters have them on all ranks, or none") {
  const std::string some = FinalizeWith([](DistributedDataParallel& ddp, Tensors& tensors) {
    ddp.AddParameter("a", tensors.a, 4, DType::kFloat32, {tensors.gradients, 4});
    ddp.AddParameter("b", tensors.b, 2, DType::kFloat32);
  });
  CHECK(some == Contains("parameter 'b' was registered without a gradient"));
  const auto add = [](DistributedDataParallel& ddp, Tensors& tensors) {
    ddp.AddParameter("a", tensors.a, 4, DType::kFloat32, {tensors.gradients, 4});
    ddp.AddParameter("b", tensors.b, 2, DType::kFloat32, {tensors.gradients + 4, 2});
  };
  CHECK(FinalizeWith(add, /*on_both=*/false) ==
        "options are not the same on all ranks: AddParameter with a gradient is false on rank 0 "
        "and true on rank 1");
}

TEST_CASE("own gradients: GradientPtr is the program's memory, and a hook is refused") {
  ddprun::testing::ThreadGroup group(1);
  Tensors tensors;
  DistributedDataParallel ddp(group.communicator(0));
  ddp.AddParameter("a", tensors.a, 4, DType::kFloat32, {tensors.gradients, 4});
  REQUIRE(ddp.Finalize().ok());
  CHECK(ddp.GradientPtr(0) == tensors.gradients);
  tensors.gradients[3] = 7;
  CHECK(ddp.ZeroGrad().ok());
  CHECK(tensors.gradients[3] == 0);
  const absl::Status status =
      ddp.RegisterCommHook([](const GradientBucket&, Communicator&) { return nullptr; });
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message() == Contains("memory of the program's own"));
}

}  // namespace
}  // namespace ddp
