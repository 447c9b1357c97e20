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
using ddprun::testing::Driver;
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

// What a hook was called with, and what is behind its operation.
struct Called {
  ddp_stream bucket = nullptr;
  ddp_stream behind = nullptr;
};

ddp_work* Average(void* context, const ddp_bucket* bucket, ddp_communicator* ranks) {
  static_cast<Called*>(context)->bucket = bucket->stream;
  ddp_work* work = ddp_all_reduce(ranks, bucket->data, bucket->count, bucket->dtype, DDP_AVERAGE,
                                  bucket->stream);
  const auto then = [](void* called, ddp_stream stream, ddp_answer*) -> ddp_code {
    static_cast<Called*>(called)->behind = stream;
    return DDP_OK;
  };
  return ddp_work_then(work, then, context);
}

// Gradients come on one stream and are averages for another.
int UseTwoStreams(ddp_communicator* ranks) {
  const ddp_model_options options = {.stream = NewStream()};
  const ddp_stream backward = NewStream(), optimizer = NewStream();
  const DeviceArray weights(std::vector<float>(100, 1));
  Called called;
  ddp_model* model = nullptr;
  EXPECT_C(ddp_model_create(ranks, &options, &model) == DDP_OK);
  for (const int id : {0, 1}) {
    EXPECT_C(ddp_model_add_parameter(model, id == 0 ? "a" : "b", weights.data() + 50 * id, 50,
                                     DDP_FLOAT32, nullptr) == id);
  }
  EXPECT_C(ddp_model_finalize(model) == DDP_OK);
  EXPECT_C(ddp_model_set_comm_hook(model, Average, &called) == DDP_OK);
  EXPECT_C(ddp_model_set_stream(model, backward) == DDP_OK);
  EXPECT_C(ddp_model_zero_grad(model) == DDP_OK);
  EXPECT_C(ddp_model_gradient_ready(model, 1) == DDP_OK);
  EXPECT_C(ddp_model_gradient_ready(model, 0) == DDP_OK);
  EXPECT_C(ddp_model_set_stream(model, optimizer) == DDP_OK);
  EXPECT_C(ddp_model_finish(model) == DDP_OK);
  EXPECT_C(called.bucket == backward && called.behind == optimizer);
  size_t count = 1;
  EXPECT_C(ddp_model_count_non_finite(model, &count) == DDP_OK && count == 0);
  // Of one pass they come on one stream.
  EXPECT_C(ddp_model_gradient_ready(model, 1) == DDP_OK);
  EXPECT_C(ddp_model_set_stream(model, backward) == DDP_OK);
  EXPECT_C(ddp_model_gradient_ready(model, 0) == DDP_INVALID_ARGUMENT);
  EXPECT_C(std::string(ddp_error_text()).find("another stream") != std::string::npos);
  EXPECT_C(ddp_model_set_stream(model, optimizer) == DDP_OK);
  EXPECT_C(ddp_model_gradient_ready(model, 0) == DDP_OK);
  EXPECT_C(ddp_model_finish(model) == DDP_INVALID_ARGUMENT);
  ddp_model_free(model);
  return 0;
}

// The values of rank r's shard become r + 1.
int ShardOnGpu(ddp_communicator* ranks, int rank) {
  const ddp_model_options options = {.stream = NewStream(), .shard_gradients = 1};
  const DeviceArray weights(std::vector<float>(100, 7));
  const DeviceArray mine(std::vector<float>(100, static_cast<float>(rank + 1)));
  ddp_model* model = nullptr;
  ddp_zero* zero = nullptr;
  EXPECT_C(ddp_model_create(ranks, &options, &model) == DDP_OK);
  EXPECT_C(ddp_model_add_parameter(model, "w", weights.data(), 100, DDP_FLOAT32, nullptr) == 0);
  EXPECT_C(ddp_model_finalize(model) == DDP_OK && ddp_zero_create(model, &zero) == DDP_OK);
  EXPECT_C(ddp_model_zero_grad(model) == DDP_OK);
  EXPECT_C(ddp_model_gradient_ready(model, 0) == DDP_OK && ddp_model_finish(model) == DDP_OK);
  struct Copied {
    const float* from;
    ddp_stream stream;
    size_t count;
  } copied = {mine.data(), options.stream, 0};
  const auto update = [](void* context, const ddp_shard* shard, ddp_answer*) -> ddp_code {
    auto* copy = static_cast<Copied*>(context);
    copy->count += shard->count;
    return Driver().cuMemcpyDtoDAsync(reinterpret_cast<internal::CudaPointer>(shard->values),
                                      reinterpret_cast<internal::CudaPointer>(copy->from),
                                      shard->count * sizeof(float),
                                      static_cast<internal::CudaStream>(copy->stream)) == 0
               ? DDP_OK
               : DDP_INTERNAL;
  };
  EXPECT_C(ddp_zero_step(zero, update, &copied) == DDP_OK);
  EXPECT_C(copied.count > 0 && copied.count < 100);
  const std::vector<float> values = weights.Read(options.stream);
  EXPECT_C(values.front() == 1 && values.back() == 2);
  ddp_zero_free(zero);
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
  EXPECT_C(UseTwoStreams(device) == 0);
  EXPECT_C(ShardOnGpu(device, rank) == 0);
  EXPECT_C(ddp_group_shutdown(group) == DDP_OK);
  ddp_group_free(group);
  return 0;
}

TEST_CASE("c: on GPUs there are collectives for the device's memory, and for the host's") {
  CHECK(RunOnDouble(2, DoubleEnv(), UseBothCommunicators) == "0 0");
}

}  // namespace
}  // namespace ddp::testing
