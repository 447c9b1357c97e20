// Models at the ends of what can be registered, and what is none, over shared memory.
#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "ddp/distributed_data_parallel.h"
#include "tests/support/contains.h"
#include "tests/support/rank_threads.h"

namespace ddp {
namespace {

using ddprun::testing::RunRankThreads;

// What both ranks return. Checks are made by several threads, so they come afterwards.
std::vector<absl::Status> OnTwoRanks(const std::function<absl::Status(Communicator&)>& body) {
  std::vector<absl::Status> statuses(2, absl::UnknownError("did not run"));
  RunRankThreads({.nodes = {2}},
                 [&](Communicator& all) { statuses[static_cast<size_t>(all.rank())] = body(all); });
  return statuses;
}

void CheckAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) CHECK_MESSAGE(status.ok(), status.message());
}

// `sizes` float32 parameters; two passes in which rank r's gradients are 2 * r + 1, averaged to 2.
absl::Status Train(Communicator& communicator, const std::vector<size_t>& sizes,
                   const DistributedDataParallelOptions& options) {
  std::vector<std::vector<float>> weights;
  DistributedDataParallel ddp(communicator, options);
  for (size_t i = 0; i < sizes.size(); ++i) {
    weights.emplace_back(sizes[i]);
    ddp.AddParameter("p" + std::to_string(i), weights[i].data(), sizes[i], DType::kFloat32);
  }
  absl::Status status = ddp.Finalize();
  for (int pass = 0; status.ok() && pass < 2; ++pass) {
    status = ddp.ZeroGrad();
    for (int id = static_cast<int>(sizes.size()) - 1; status.ok() && id >= 0; --id) {
      float* gradient = static_cast<float*>(ddp.GradientPtr(id));
      for (size_t i = 0; i < sizes[static_cast<size_t>(id)]; ++i) {
        gradient[i] = static_cast<float>(2 * communicator.rank() + 1);
      }
      status = ddp.GradientReady(id);
    }
    if (status.ok()) status = ddp.Finish();
  }
  for (size_t id = 0; status.ok() && id < sizes.size(); ++id) {
    const float* gradient = static_cast<float*>(ddp.GradientPtr(static_cast<int>(id)));
    for (size_t i = 0; i < sizes[id]; ++i) {
      if (gradient[i] != 2) return absl::InternalError("parameter " + std::to_string(id));
    }
  }
  return status;
}

TEST_CASE("odd models: 100,000 parameters are averaged, in one bucket and in 1000") {
  for (const size_t cap : {size_t{25} << 20, size_t{400}}) {
    for (const bool find_unused : {false, true}) {
      CheckAllOk(OnTwoRanks([=](Communicator& communicator) {
        return Train(communicator, std::vector<size_t>(100000, 1),
                     {.bucket_cap_bytes = cap, .find_unused_parameters = find_unused});
      }));
    }
  }
}

TEST_CASE("odd models: one parameter, none, and those without elements pass") {
  const std::vector<std::vector<size_t>> models = {{1}, {}, {0}, {0, 0, 0}, {0, 5, 0}, {3, 0}};
  for (const std::vector<size_t>& sizes : models) {
    for (const bool find_unused : {false, true}) {
      for (const bool is_static : {false, true}) {
        CheckAllOk(OnTwoRanks([&](Communicator& communicator) {
          return Train(communicator, sizes,
                       {.bucket_cap_bytes = 1,
                        .find_unused_parameters = find_unused,
                        .static_graph = is_static});
        }));
      }
    }
  }
}

TEST_CASE("odd models: what has no size that can be is refused, and the other rank hears of it") {
  struct Odd {
    size_t count;
    DType dtype;
    const char* message;
  };
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  for (const Odd& odd : {Odd{kMost, DType::kFloat32, "is larger than memory can be"},
                         Odd{kMost / 4 + 2, DType::kFloat32, "is larger than memory can be"},
                         Odd{kMost / 16, DType::kUint8, "is larger than memory can be"},
                         Odd{1, static_cast<DType>(99), "has a type that does not exist"}}) {
    const auto statuses = OnTwoRanks([&odd](Communicator& communicator) {
      float weights[2] = {};
      DistributedDataParallel ddp(communicator);
      ddp.AddParameter("a", weights, 1, DType::kFloat32);
      if (communicator.rank() == 1) ddp.AddParameter("b", weights + 1, odd.count, odd.dtype);
      return ddp.Finalize();
    });
    CHECK(statuses[1].code() == absl::StatusCode::kInvalidArgument);
    for (const absl::Status& status : statuses) {
      CHECK(status.message() == Contains(odd.message));
    }
  }
}

TEST_CASE("odd models: ids that are none change nothing, whatever the options") {
  for (const bool find_unused : {false, true}) {
    CheckAllOk(OnTwoRanks([find_unused](Communicator& communicator) -> absl::Status {
      float weight = 0, late = 0;
      DistributedDataParallel ddp(communicator, {.find_unused_parameters = find_unused});
      ddp.AddParameter("w", &weight, 1, DType::kFloat32);
      if (absl::Status status = ddp.Finalize(); !status.ok()) return status;
      const int id = ddp.AddParameter("late", &late, 1, DType::kFloat32);
      for (const int wrong : {id, -1, std::numeric_limits<int>::max()}) {
        for (const bool is_local : {false, true}) {
          const auto guard = ddp.NoSync(is_local);
          if (ddp.GradientReady(wrong).code() != absl::StatusCode::kInvalidArgument ||
              ddp.GradientPtr(wrong) != nullptr) {
            return absl::InternalError("an id that is none was taken");
          }
        }
      }
      if (ddp.Finish().message() != "parameter 'late' was registered after Finalize()") {
        return absl::InternalError("the late parameter was not told");
      }
      return absl::OkStatus();
    }));
  }
}

}  // namespace
}  // namespace ddp
