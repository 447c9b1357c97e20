// The library as C programs have it: c_face_*.c over libddp.so, between real processes.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ddp/c.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/process_group.h"
#include "ddp/store.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/rank_processes.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/c_face_processes.h"
#include "tests/worker_runtime/c_face_ranks.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RankProcesses;
using ddprun::testing::TempDir;

std::unique_ptr<Store> ConnectStore() {
  auto store = Store::Connect("127.0.0.1", StorePort(), std::chrono::seconds(60));
  return store.ok() ? *std::move(store) : nullptr;
}

TEST_CASE("c: ranks find their place, and every collective is right") {
  for (const int world_size : {1, 2, 4}) {
    for (const int backend : {DDP_BACKEND_AUTO, DDP_BACKEND_TCP}) {
      CAPTURE(world_size);
      CAPTURE(backend);
      CheckRanks(Ranks(world_size), [&](int rank) {
        const auto check = [&](ddp_group* group) {
          EXPECT_C(ddp_group_rank(group) == rank && ddp_group_world_size(group) == world_size);
          EXPECT_C(ddp_group_local_rank(group) == rank);
          EXPECT_C(ddp_group_local_world_size(group) == world_size);
          EXPECT_C(ddp_group_restart_count(group) == 0 && ddp_group_gpu(group) == -1);
          ddp_communicator* ranks = ddp_group_communicator(group);
          EXPECT_C(ranks != nullptr && ranks == ddp_group_host_communicator(group));
          const char* name = world_size == 1 ? "local" : backend == DDP_BACKEND_TCP ? "tcp" : "shm";
          EXPECT_C(std::string(ddp_communicator_backend(ranks)) == name);
          EXPECT_C(std::string(ddp_group_description(group)).rfind(name, 0) == 0);
          EXPECT_C(CheckCollectives(ranks, rank, world_size) == 0);
          return CheckWorks(ranks, rank, world_size);
        };
        return InGroup(check, {.timeout_ms = 60'000, .device = 0, .backend = backend});
      });
    }
  }
}

TEST_CASE("c: groups within a group") {
  CheckRanks(Ranks(4), [](int) { return InGroup(CheckSubgroups); });
}

TEST_CASE("c: what is wrong is a code and a sentence, and the group goes on") {
  for (const int world_size : {1, 2}) {
    CheckRanks(Ranks(world_size), [](int) { return InGroup(CheckRefusals); });
  }
}

// What Train() does, by the C++ library.
int TrainInCpp(Communicator& communicator, int rank, Trained* trained) {
  DistributedDataParallel ddp(communicator, {.bucket_cap_bytes = 2048, .first_bucket_bytes = 64});
  for (size_t i = 0; i < kCount; ++i) trained->parameters[i] = InitialValue(rank, i);
  float* place = trained->parameters;
  for (int tensor = 0; tensor < kTensors; place += CountOf(tensor++)) {
    (void)ddp.AddParameter(absl::StrCat("layer", tensor), place, CountOf(tensor), DType::kFloat32);
  }
  EXPECT_C(ddp.Finalize().ok());
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_C(ddp.ZeroGrad().ok());
    for (const int pass : {0, 1}) {
      const auto no_sync = ddp.NoSync(pass == 0);
      for (int tensor = kTensors - 1; tensor >= 0; --tensor) {
        float* gradient = static_cast<float*>(ddp.GradientPtr(tensor));
        for (size_t i = 0; i < CountOf(tensor); ++i) {
          gradient[i] += GradientValue(rank, step, pass, i + static_cast<size_t>(tensor));
        }
        EXPECT_C(ddp.GradientReady(tensor).ok());
      }
      EXPECT_C(ddp.Finish().ok());
    }
    trained->norms[step] = ddp.ClipGradNorm(0.5).value_or(-1);
    EXPECT_C(ddp.ClipGradNorm(1e9, std::numeric_limits<double>::infinity()).ok());
    float* parameter = trained->parameters;
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      const float* gradient = static_cast<float*>(ddp.GradientPtr(tensor));
      for (size_t i = 0; i < CountOf(tensor); ++i) *parameter++ -= 0.1f * gradient[i];
    }
  }
  return 0;
}

int TrainAlike(int rank, int world_size) {
  static Trained cpp, c, c_own;
  std::unique_ptr<Store> store = ConnectStore();
  EXPECT_C(store != nullptr);
  // Keys of its own: to the library in libddp.so this one is another.
  auto group = ProcessGroup::New(PrefixStore("cpp", *store), rank, world_size, {});
  EXPECT_C(group.ok());
  EXPECT_C(TrainInCpp((*group)->communicator(), rank, &cpp) == 0);
  EXPECT_C((*group)->Shutdown().ok());
  const auto train = [&](ddp_group* in) {
    ddp_communicator* ranks = ddp_group_communicator(in);
    EXPECT_C(Train(ranks, rank, 0, &c) == 0);
    return Train(ranks, rank, 1, &c_own);
  };
  EXPECT_C(InGroup(train) == 0);
  EXPECT_C(std::memcmp(&c, &cpp, sizeof c) == 0);
  EXPECT_C(std::memcmp(&c_own, &cpp, sizeof c) == 0);
  EXPECT_C(cpp.norms[0] > 0.5 && std::isfinite(cpp.norms[kSteps - 1]));
  return 0;
}

TEST_CASE("c: DistributedDataParallel gives the bits that it gives in C++") {
  for (const int world_size : {1, 2, 4}) {
    CAPTURE(world_size);
    CheckRanks(Ranks(world_size), [&](int rank) { return TrainAlike(rank, world_size); });
  }
}

TEST_CASE("c: what rank 0 saves all ranks load") {
  for (const int world_size : {1, 2, 4}) {
    TempDir dir;
    CheckRanks(Ranks(world_size), [&](int rank) {
      return InGroup([&](ddp_group* group) {
        return CheckCheckpoint(ddp_group_communicator(group), rank, dir.File("saved").c_str());
      });
    });
  }
}

TEST_CASE("c: a rank that dies is named to the others") {
  for (const int ranks_per_host : {4, 1}) {
    RankProcesses ranks(Ranks(3, ranks_per_host), [](int rank) {
      ddp_group* group = nullptr;
      EXPECT_C(ddp_group_from_env(&kOptions, &group) == DDP_OK);
      ddp_communicator* all = ddp_group_communicator(group);
      EXPECT_C(ddp_complete(ddp_barrier(all)) == DDP_OK);
      RankProcesses::Say("ready");
      if (rank == 1) pause();
      const ddp_code code = ddp_complete(ddp_barrier(all));
      RankProcesses::Say(absl::StrCat(ddp_code_name(code), ": ", ddp_error_text()));
      EXPECT_C(ddp_communicator_error(all) == code);
      float value = 0;
      EXPECT_C(ddp_complete(ddp_all_reduce(all, &value, 1, DDP_FLOAT32, DDP_SUM, nullptr)) == code);
      ddp_group_free(group);
      return 0;
    });
    CheckDeadRankIsNamed(ranks);
  }
}

TEST_CASE("c: a rank that stays away is named when the time is over") {
  RankProcesses ranks(Ranks(2), [](int rank) {
    ddp_group* group = nullptr;
    EXPECT_C(ddp_group_from_env(&kOptions, &group) == DDP_OK);
    ddp_communicator* all = ddp_group_communicator(group);
    EXPECT_C(ddp_complete(ddp_barrier(all)) == DDP_OK);
    if (rank == 1) return pause();
    EXPECT_C(ddp_communicator_set_timeout(all, 100) == DDP_OK);
    const ddp_code code = ddp_complete(ddp_barrier(all));
    RankProcesses::Say(absl::StrCat(ddp_code_name(code), ": ", ddp_error_text()));
    ddp_group_free(group);
    return 0;
  });
  const std::string said = ranks.Hear(0);
  CAPTURE(said);
  CHECK(said.rfind("DEADLINE_EXCEEDED: ", 0) == 0);
  CHECK(said == Contains("rank 1"));
  CHECK(said == Contains("100 ms"));
  CHECK(ranks.Await(0) == 0);
}

TEST_CASE("c: an abort ends what is under way, with its reason, on all ranks") {
  CheckRanks(Ranks(2), [](int rank) {
    ddp_group* group = nullptr;
    EXPECT_C(ddp_group_from_env(&kOptions, &group) == DDP_OK);
    ddp_communicator* all = ddp_group_communicator(group);
    if (rank == 0) {
      EXPECT_C(ddp_communicator_abort(all, "the loss is no number") == DDP_OK);
    }
    EXPECT_C(ddp_complete(ddp_barrier(all)) == DDP_ABORTED);
    EXPECT_C(std::string(ddp_error_text()).find("the loss is no number") != std::string::npos);
    ddp_group_free(group);
    return 0;
  });
}

TEST_CASE("c: the last operations are written into a file") {
  TempDir dir;
  RankProcesses::Options options = Ranks(1);
  options.env = {{"DDPRUN_FLIGHT_RECORDER_DIR", dir.path().string()}};
  CheckRanks(options, [&](int) {
    return InGroup([&](ddp_group* group) {
      ddp_communicator* all = ddp_group_communicator(group);
      EXPECT_C(ddp_complete(ddp_barrier(all)) == DDP_OK);
      const char* path = nullptr;
      EXPECT_C(ddp_communicator_dump_operations(all, &path) == DDP_OK);
      EXPECT_C(std::string(path).rfind(dir.path().string(), 0) == 0);
      EXPECT_C(ddprun::testing::ReadFile(path).find("barrier") != std::string::npos);
      return 0;
    });
  });
}

}  // namespace
}  // namespace ddp::testing
