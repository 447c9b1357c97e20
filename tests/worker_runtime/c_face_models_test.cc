// Models of ddp/c.h between real processes, bit for bit what the C++ library makes of them.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddp/c.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/process_group.h"
#include "ddp/store.h"
#include "tests/support/rank_processes.h"
#include "tests/support/stop_file.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/c_face_processes.h"
#include "tests/worker_runtime/c_face_ranks.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RankProcesses;
using ddprun::testing::TempDir;

struct Way {
  int world_size;
  Backend backend;
};
constexpr Way kWays[] = {{1, Backend::kAuto},
                         {2, Backend::kAuto},
                         {4, Backend::kAuto},
                         {2, Backend::kTcp},
                         {4, Backend::kTcp}};

// Runs `in_cpp(communicator)` in a group of the C++ library, and then `in_c(communicator)` in one
// of libddp.so, which are not one library.
template <typename InCpp, typename InC>
int InBoth(const Way& way, int rank, const InCpp& in_cpp, const InC& in_c) {
  auto store = Store::Connect("127.0.0.1", StorePort(), std::chrono::seconds(60));
  EXPECT_C(store.ok());
  auto group = ProcessGroup::New(PrefixStore("cpp", **store), rank, way.world_size,
                                 {.backend = way.backend});
  EXPECT_C(group.ok());
  EXPECT_C(in_cpp((*group)->communicator()) == 0);
  EXPECT_C((*group)->Shutdown().ok());
  return InGroup([&](ddp_group* made) { return in_c(ddp_group_communicator(made)); },
                 {.timeout_ms = 60'000, .device = 0, .backend = static_cast<int>(way.backend)});
}

template <typename Check>
void CheckWays(const Check& check) {
  for (const Way& way : kWays) {
    CAPTURE(way.world_size);
    CAPTURE(static_cast<int>(way.backend));
    CheckRanks(Ranks(way.world_size), [&](int rank) { return check(way, rank); });
  }
}

void AddParameters(DistributedDataParallel& ddp, float* parameters, int rank) {
  for (size_t i = 0; i < kCount; ++i) parameters[i] = InitialValue(rank, i);
  for (int tensor = 0; tensor < kTensors; parameters += CountOf(tensor++)) {
    (void)ddp.AddParameter(absl::StrCat(tensor), parameters, CountOf(tensor), DType::kFloat32);
  }
}

int Backward(DistributedDataParallel& ddp, int rank, int step) {
  EXPECT_C(ddp.ZeroGrad().ok());
  for (int tensor = kTensors - 1; tensor >= 0; --tensor) {
    float* gradient = static_cast<float*>(ddp.GradientPtr(tensor));
    for (size_t i = 0; i < CountOf(tensor); ++i) gradient[i] += GradientValue(rank, step, 0, i);
    EXPECT_C(ddp.GradientReady(tensor).ok());
  }
  EXPECT_C(ddp.Finish().ok());
  return 0;
}

// With state of its own for each element.
void Descend(const DistributedDataParallel& ddp, float* parameters, float* momenta, float keep) {
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    const float* gradient = static_cast<float*>(ddp.GradientPtr(tensor));
    for (size_t i = 0; i < CountOf(tensor); ++i) {
      *momenta = keep * *momenta + gradient[i];
      *parameters++ -= 0.1f * *momenta++;
    }
  }
}

int TrainUnevenlyInCpp(Communicator& communicator, int rank, bool is_over_active, Uneven* trained) {
  std::vector<float> momenta(kCount);
  DistributedDataParallel ddp(communicator, {.bucket_cap_bytes = 2048});
  AddParameters(ddp, trained->parameters, rank);
  trained->buffer[0] = trained->buffer[1] = 10 * rank;
  ddp.AddBuffer("mean", trained->buffer, 2, DType::kFloat64);
  EXPECT_C(ddp.Finalize().ok());
  auto join = ddp.Join(!is_over_active);
  EXPECT_C(join.ok());
  for (int step = 0; step < BatchesOf(rank); ++step) {
    EXPECT_C(ddp.BroadcastBuffers().ok());
    trained->buffer[0] += rank + 1;
    EXPECT_C(Backward(ddp, rank, step) == 0);
    Descend(ddp, trained->parameters, momenta.data(), 0);
  }
  EXPECT_C(join->Wait().ok());
  return 0;
}

TEST_CASE("c: ranks with unequal numbers of batches, and buffers, as in C++") {
  for (const bool is_over_active : {false, true}) {
    CheckWays([&](const Way& way, int rank) {
      static Uneven cpp, c;
      const auto in_cpp = [&](Communicator& communicator) {
        return TrainUnevenlyInCpp(communicator, rank, is_over_active, &cpp);
      };
      const auto in_c = [&](ddp_communicator* ranks) {
        return TrainUnevenly(ranks, rank, is_over_active ? 1 : 0, &c);
      };
      EXPECT_C(InBoth(way, rank, in_cpp, in_c) == 0);
      EXPECT_C(std::memcmp(&c, &cpp, sizeof c) == 0);
      EXPECT_C(c.buffer[0] > 0 && c.buffer[1] == 0);
      return 0;
    });
  }
}

TEST_CASE("c: sharded state of the optimizer gives the bits of whole state in C++") {
  CheckWays([&](const Way& way, int rank) {
    static Momenta cpp, c;
    const auto in_cpp = [&](Communicator& communicator) {
      DistributedDataParallel ddp(communicator, {.bucket_cap_bytes = 2048});
      AddParameters(ddp, cpp.parameters, rank);
      EXPECT_C(ddp.Finalize().ok());
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_C(Backward(ddp, rank, step) == 0);
        Descend(ddp, cpp.parameters, cpp.momenta, 0.9f);
      }
      return 0;
    };
    const auto in_c = [&](ddp_communicator* ranks) {
      return TrainSharded(ranks, rank, way.world_size - 1, &c);
    };
    EXPECT_C(InBoth(way, rank, in_cpp, in_c) == 0);
    EXPECT_C(std::memcmp(&c, &cpp, sizeof c) == 0);
    EXPECT_C(c.momenta[5] != 0);
    return 0;
  });
}

TEST_CASE("c: a hook that sums and divides gives what no hook gives") {
  CheckWays([&](const Way& way, int rank) {
    static float with[kCount], without[kCount];
    const auto in_c = [&](ddp_group* group) {
      ddp_communicator* ranks = ddp_group_communicator(group);
      EXPECT_C(TrainWithHook(ranks, rank, way.world_size, 1, with) == 0);
      EXPECT_C(TrainWithHook(ranks, rank, way.world_size, 0, without) == 0);
      EXPECT_C(CheckContinuations(ranks) == 0);
      return CheckNonFinite(ranks, rank);
    };
    EXPECT_C(InGroup(in_c, {.timeout_ms = 60'000,
                            .device = 0,
                            .backend = static_cast<int>(way.backend)}) == 0);
    EXPECT_C(std::memcmp(with, without, sizeof with) == 0);
    return 0;
  });
}

TEST_CASE("c: nulls and calls at the wrong time are refused, and the group goes on") {
  CheckRanks(Ranks(2), [](int) { return InGroup(CheckNullsOfModels); });
}

TEST_CASE("c: a hook or an update that fails ends the pass with its words") {
  const std::vector<std::function<int(ddp_communicator*, int rank)>> failures = {
      [](ddp_communicator* ranks, int rank) { return FailInHook(ranks, rank, 0); },
      [](ddp_communicator* ranks, int rank) { return FailInHook(ranks, rank, 1); }, FailInUpdate};
  for (const auto& fail : failures) {
    CheckRanks(Ranks(2), [&](int rank) {
      ddp_group* group = nullptr;
      EXPECT_C(ddp_group_from_env(&kOptions, &group) == DDP_OK);
      EXPECT_C(fail(ddp_group_communicator(group), rank) == 0);
      ddp_group_free(group);
      return 0;
    });
  }
}

TEST_CASE("c: a rank that dies in a Join is named to those that wait") {
  for (const int ranks_per_host : {4, 1}) {
    RankProcesses ranks(Ranks(3, ranks_per_host), [](int rank) {
      ddp_group* group = nullptr;
      ddp_model* model = nullptr;
      float weight = 0;
      EXPECT_C(ddp_group_from_env(&kOptions, &group) == DDP_OK);
      EXPECT_C(ddp_model_create(ddp_group_communicator(group), nullptr, &model) == DDP_OK);
      EXPECT_C(ddp_model_add_parameter(model, "w", &weight, 1, DDP_FLOAT32, nullptr) == 0);
      EXPECT_C(ddp_model_finalize(model) == DDP_OK);
      EXPECT_C(ddp_model_join(model, 0) == DDP_OK);
      RankProcesses::Say("ready");
      if (rank == 1) pause();
      const ddp_code code = ddp_model_join_wait(model);
      RankProcesses::Say(absl::StrCat(ddp_code_name(code), ": ", ddp_error_text()));
      EXPECT_C(ddp_model_join_wait(model) == DDP_FAILED_PRECONDITION);
      ddp_model_free(model);
      ddp_group_free(group);
      return 0;
    });
    CheckDeadRankIsNamed(ranks);
  }
}

TEST_CASE("c: a model that is freed in a Join ends the group") {
  CheckRanks(Ranks(2), [](int rank) {
    ddp_group* group = nullptr;
    ddp_model* model = nullptr;
    float weight = 0;
    EXPECT_C(ddp_group_from_env(&kOptions, &group) == DDP_OK);
    EXPECT_C(ddp_model_create(ddp_group_communicator(group), nullptr, &model) == DDP_OK);
    EXPECT_C(ddp_model_add_parameter(model, "w", &weight, 1, DDP_FLOAT32, nullptr) == 0);
    EXPECT_C(ddp_model_finalize(model) == DDP_OK && ddp_model_join(model, 0) == DDP_OK);
    if (rank == 1) {
      EXPECT_C(ddp_model_join_wait(model) == DDP_ABORTED);
    }
    ddp_model_free(model);
    EXPECT_C(ddp_communicator_error(ddp_group_communicator(group)) == DDP_ABORTED);
    ddp_group_free(group);
    return 0;
  });
}

TEST_CASE("c: all ranks hear that the launcher wants them to stop") {
  TempDir dir;
  const std::string file = ddprun::testing::MakeStopFile(dir.File("stop"));
  RankProcesses::Options options = Ranks(2);
  options.env_of_rank = [&](int rank) {
    std::map<std::string, std::string> env{{"DDPRUN_HOST_ID", "host"}};
    if (rank == 0) env["DDPRUN_STOP_FILE"] = file;
    return env;
  };
  CheckRanks(options, [&](int rank) {
    return InGroup([&](ddp_group* group) {
      int should_stop = -1;
      EXPECT_C(ddp_group_should_stop(group, &should_stop) == DDP_OK && should_stop == 0);
      if (rank == 0) ddprun::testing::RequestStop(file);
      EXPECT_C(ddp_group_should_stop(group, &should_stop) == DDP_OK && should_stop == 1);
      return 0;
    });
  });
}

}  // namespace
}  // namespace ddp::testing
