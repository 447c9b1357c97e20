// ddp/c.h on GPUs, on the double of CUDA and NCCL (tests/gpu_double).
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ddp/c.h"
#include "ddp/gpu.h"
#include "tests/worker_runtime/c_face_ranks.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"

namespace ddp::testing {
namespace {

using ddprun::testing::DeviceArray;
using ddprun::testing::DoubleEnv;
using ddprun::testing::NewStream;
using ddprun::testing::RunOnDouble;

int TrainOnGpu(ddp_communicator* ranks, int rank) {
  const ddp_model_options options = {.stream = NewStream()};
  ddp_model* model = nullptr;
  EXPECT_C(ddp_model_create(ranks, &options, &model) == DDP_OK);
  const DeviceArray weights(std::vector<float>(100, static_cast<float>(5 + rank)));
  EXPECT_C(ddp_model_add_parameter(model, "weights", weights.data(), 100, DDP_FLOAT32, nullptr) ==
           0);
  EXPECT_C(ddp_model_finalize(model) == DDP_OK);
  EXPECT_C(weights.Read(options.stream) == std::vector<float>(100, 5));
  EXPECT_C(ddp_model_zero_grad(model) == DDP_OK);
  EXPECT_C(ddp_model_gradient_ready(model, 0) == DDP_OK && ddp_model_finish(model) == DDP_OK);
  double norm = -1;
  EXPECT_C(ddp_model_clip_grad_norm(model, 1, 2, &norm) == DDP_OK && norm == 0);
  ddp_model_free(model);
  return 0;
}

int UseBothCommunicators(int rank) {
  const ddp_group_options options = {
      .timeout_ms = 60'000, .device = DDP_DEVICE_CUDA, .backend = DDP_BACKEND_AUTO};
  ddp_group* group = nullptr;
  EXPECT_C(ddp_group_from_env(&options, &group) == DDP_OK);
  EXPECT_C(ddp_group_gpu(group) == rank);
  EXPECT_C(Gpu::Use(ddp_group_gpu(group)).ok());
  ddp_communicator* device = ddp_group_communicator(group);
  ddp_communicator* host = ddp_group_host_communicator(group);
  EXPECT_C(std::string(ddp_communicator_backend(device)) == "nccl");
  EXPECT_C(std::string(ddp_communicator_backend(host)) == "shm");

  // Behind what is on the stream and before what comes later on it; the host waits for neither.
  const ddp_stream stream = NewStream();
  const DeviceArray values(std::vector<float>(1000, static_cast<float>(rank + 1)));
  ddp_work* work = ddp_all_reduce(device, values.data(), 1000, DDP_FLOAT32, DDP_SUM, stream);
  EXPECT_C(ddp_work_wait_on(work, stream) == DDP_OK);
  ddp_work_free(work);
  EXPECT_C(values.Read(stream) == std::vector<float>(1000, 3));

  double loss = rank;
  EXPECT_C(ddp_complete(ddp_all_reduce(host, &loss, 1, DDP_FLOAT64, DDP_AVERAGE, nullptr)) ==
           DDP_OK);
  EXPECT_C(loss == 0.5);
  EXPECT_C(ddp_complete(ddp_all_reduce(device, &loss, 1, DDP_FLOAT64, DDP_AVERAGE, stream)) ==
           DDP_INVALID_ARGUMENT);
  EXPECT_C(TrainOnGpu(device, rank) == 0);
  EXPECT_C(ddp_group_shutdown(group) == DDP_OK);
  ddp_group_free(group);
  return 0;
}

TEST_CASE("c: on GPUs there are collectives for the device's memory, and for the host's") {
  CHECK(RunOnDouble(2, DoubleEnv(), UseBothCommunicators) == "0 0");
}

}  // namespace
}  // namespace ddp::testing
