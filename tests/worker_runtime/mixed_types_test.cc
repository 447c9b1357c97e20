// A model whose parameters have several types, against PyTorch's DistributedDataParallel.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "ddp/distributed_data_parallel.h"
#include "tests/support/files.h"
#include "tests/support/rank_threads.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"
#include "tests/worker_runtime/comm/elements.h"

namespace ddp {
namespace {

struct Parameter {
  DType dtype;
  size_t count;
  size_t bytes() const { return count * SizeOf(dtype); }
};

// Types alternate, and each has several buckets of 4 KiB but for the smallest.
const std::vector<Parameter> kModel = {
    {DType::kFloat32, 3},     {DType::kBFloat16, 5},  {DType::kFloat32, 2000},
    {DType::kFloat16, 1},     {DType::kFloat64, 700}, {DType::kBFloat16, 4001},
    {DType::kFloat16, 5003},  {DType::kFloat64, 1},   {DType::kFloat32, 1501},
    {DType::kBFloat16, 2500}, {DType::kFloat16, 17}};

std::string Gradient(int rank, size_t id) {
  const auto [dtype, count] = kModel[id];
  std::string bytes(count * SizeOf(dtype), '\0');
  for (size_t i = 0; i < count; ++i) {
    testing::WriteInput(dtype, rank, 10000 * id + i, &bytes[i * SizeOf(dtype)]);
  }
  return bytes;
}

// All averages of one rank, parameter after parameter.
absl::StatusOr<std::string> Average(Communicator& communicator) {
  DistributedDataParallel ddp(communicator, {.bucket_cap_bytes = 4096, .first_bucket_bytes = 1024});
  std::vector<std::string> values;
  for (const Parameter& parameter : kModel) values.emplace_back(parameter.bytes(), '\0');
  for (size_t id = 0; id < kModel.size(); ++id) {
    ddp.AddParameter("p" + std::to_string(id), values[id].data(), kModel[id].count,
                     kModel[id].dtype);
  }
  absl::Status status = ddp.Finalize();
  if (status.ok() && ddp.bucket_count() < 8) status = absl::InternalError("few buckets");
  for (int pass = 0; status.ok() && pass < 2; ++pass) {
    status = ddp.ZeroGrad();
    for (size_t id = kModel.size(); id-- > 0;) {
      const std::string gradient = Gradient(communicator.rank(), id);
      std::copy(gradient.begin(), gradient.end(),
                static_cast<char*>(ddp.GradientPtr(static_cast<int>(id))));
      status.Update(ddp.GradientReady(static_cast<int>(id)));
    }
    status.Update(ddp.Finish());
  }
  if (!status.ok()) return status;
  std::string averages;
  for (size_t id = 0; id < kModel.size(); ++id) {
    averages.append(static_cast<const char*>(ddp.GradientPtr(static_cast<int>(id))),
                    kModel[id].bytes());
  }
  return averages;
}

TEST_CASE("mixed types: averages of two ranks are torch's bit for bit") {
  const ddprun::testing::TorchPython& torch = ddprun::testing::FindTorchPython();
  if (torch.python.empty()) return ddprun::testing::SkipWithoutTorch();
  const ddprun::testing::TempDir folder;
  {
    std::ofstream script(folder.File("script"));
    for (const Parameter& parameter : kModel) {
      script << Name(parameter.dtype) << " " << parameter.count << "\n";
    }
    for (const int rank : {0, 1}) {
      std::ofstream gradients(folder.File("gradients." + std::to_string(rank)));
      for (size_t id = 0; id < kModel.size(); ++id) gradients << Gradient(rank, id);
    }
  }
  ddprun::testing::Subprocess python(
      {torch.python, ddprun::testing::Runfile("tests/worker_runtime/torch_mixed.py"),
       folder.path().string()});
  REQUIRE_MESSAGE(python.Wait(ddprun::testing::kTorchPatience) == 0, python.Describe());
  std::vector<absl::StatusOr<std::string>> ours(2);
  ddprun::testing::RunRankThreads({.nodes = {2}}, [&](Communicator& all) {
    ours[static_cast<size_t>(all.rank())] = Average(all);
  });
  for (const size_t rank : {0, 1}) {
    REQUIRE_MESSAGE(ours[rank].ok(), ours[rank].status().ToString());
    const std::string torchs =
        ddprun::testing::ReadFile(folder.File("averages." + std::to_string(rank)));
    REQUIRE(ours[rank]->size() == torchs.size());
    size_t place = 0;
    for (const Parameter& parameter : kModel) {
      CAPTURE(std::string(Name(parameter.dtype)));
      CHECK(ours[rank]->substr(place, parameter.bytes()) ==
            torchs.substr(place, parameter.bytes()));
      place += parameter.bytes();
    }
  }
}

}  // namespace
}  // namespace ddp
