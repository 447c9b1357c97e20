#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worker_runtime/c_face_ranks.h"

/* A model of kTensors parameters in `parameters`, not finalized yet. */
static ddp_model* NewModel(ddp_communicator* ranks, const ddp_model_options* options,
                           float* parameters, int rank) {
  ddp_model* model = NULL;
  if (ddp_model_create(ranks, options, &model) != DDP_OK) return NULL;
  for (size_t i = 0; i < kCount; ++i) parameters[i] = InitialValue(rank, i);
  for (int tensor = 0; tensor < kTensors; parameters += CountOf(tensor++)) {
    const char name[] = {(char)('a' + tensor), 0};
    (void)ddp_model_add_parameter(model, name, parameters, CountOf(tensor), DDP_FLOAT32, NULL);
  }
  return model;
}

static int Backward(ddp_model* model, int rank, int step) {
  for (int tensor = kTensors - 1; tensor >= 0; --tensor) {
    float* gradient = ddp_model_gradient(model, tensor);
    for (size_t i = 0; i < CountOf(tensor); ++i) gradient[i] += GradientValue(rank, step, 0, i);
    EXPECT_C(ddp_model_gradient_ready(model, tensor) == DDP_OK);
  }
  EXPECT_C(ddp_model_finish(model) == DDP_OK);
  return 0;
}

static void Descend(const ddp_model* model, float* parameters) {
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    const float* gradient = ddp_model_gradient(model, tensor);
    for (size_t i = 0; i < CountOf(tensor); ++i) *parameters++ -= 0.1f * gradient[i];
  }
}

int TrainUnevenly(ddp_communicator* ranks, int rank, int is_over_active, Uneven* trained) {
  const ddp_model_options options = {.bucket_cap_bytes = 2048};
  ddp_model* model = NewModel(ranks, &options, trained->parameters, rank);
  EXPECT_C(model != NULL);
  trained->buffer[0] = trained->buffer[1] = 10.0 * rank;
  EXPECT_C(ddp_model_add_buffer(model, "mean", trained->buffer, 2, DDP_FLOAT64) == DDP_OK);
  EXPECT_C(ddp_model_join(model, is_over_active) == DDP_FAILED_PRECONDITION);
  EXPECT_C(ddp_model_finalize(model) == DDP_OK);
  EXPECT_C(trained->buffer[1] == 0);
  EXPECT_C(ddp_model_join_wait(model) == DDP_FAILED_PRECONDITION);
  EXPECT_C(strstr(ddp_error_text(), "there is no Join") != NULL);

  EXPECT_C(ddp_model_join(model, is_over_active) == DDP_OK);
  EXPECT_C(ddp_model_join(model, is_over_active) == DDP_FAILED_PRECONDITION);
  for (int step = 0; step < BatchesOf(rank); ++step) {
    EXPECT_C(ddp_model_broadcast_buffers(model) == DDP_OK);
    trained->buffer[0] += rank + 1;
    EXPECT_C(ddp_model_zero_grad(model) == DDP_OK);
    EXPECT_C(Backward(model, rank, step) == 0);
    Descend(model, trained->parameters);
  }
  EXPECT_C(ddp_model_join_wait(model) == DDP_OK);
  ddp_reduction_times times = {-1, -1};
  EXPECT_C(ddp_model_last_reduction(model, &times) == DDP_OK);
  const int is_alone = strcmp(ddp_communicator_backend(ranks), "local") == 0;
  EXPECT_C((times.communication_ns > 0) == !is_alone && times.exposed_ns >= 0);
  ddp_model_free(model);
  return 0;
}

int CheckNonFinite(ddp_communicator* ranks, int rank) {
  float parameters[kCount];
  ddp_model* model = NewModel(ranks, NULL, parameters, rank);
  EXPECT_C(model != NULL && ddp_model_finalize(model) == DDP_OK);
  ddp_reduction_times times = {-1, -1};
  EXPECT_C(ddp_model_last_reduction(model, &times) == DDP_OK);
  EXPECT_C(times.communication_ns == 0 && times.exposed_ns == 0);
  EXPECT_C(ddp_model_zero_grad(model) == DDP_OK);
  float* gradient = ddp_model_gradient(model, 2);
  if (rank == 0) gradient[3] = NAN, gradient[4] = INFINITY;
  EXPECT_C(Backward(model, rank, 0) == 0);
  size_t count = 0;
  EXPECT_C(ddp_model_count_non_finite(model, &count) == DDP_OK && count == 2);
  ddp_model_free(model);
  return 0;
}

/* ---- Hooks ---- */

/* A hook's own copies of the buckets: sums there, and averages back. */
typedef struct Copy {
  const ddp_bucket* bucket;
  float* sums;
  float* to;
  size_t count;
  float world_size;
} Copy;

typedef struct Copies {
  Copy of[8];
  int world_size;
  int calls;
  int is_wrong;
} Copies;

static ddp_code CopyBack(void* context, ddp_stream stream, ddp_answer* answer) {
  const Copy* copy = context;
  if (stream != NULL) {
    ddp_answer_error(answer, "the CPU has no streams");
    return DDP_INTERNAL;
  }
  for (size_t i = 0; i < copy->count; ++i) copy->to[i] = copy->sums[i] / copy->world_size;
  free(copy->sums);
  return DDP_OK;
}

static ddp_work* SumAside(void* context, const ddp_bucket* bucket, ddp_communicator* ranks) {
  Copies* copies = context;
  Copy* copy = &copies->of[bucket->index];
  copies->is_wrong |= bucket->dtype != DDP_FLOAT32 || bucket->stream != NULL;
  copies->calls += bucket->is_last ? 100 : 1;
  const size_t bytes = bucket->count * sizeof(float);
  *copy = (Copy){bucket, malloc(bytes), bucket->data, bucket->count, (float)copies->world_size};
  memcpy(copy->sums, bucket->data, bytes);
  return ddp_work_then(ddp_all_reduce(ranks, copy->sums, copy->count, DDP_FLOAT32, DDP_SUM, NULL),
                       CopyBack, copy);
}

int TrainWithHook(ddp_communicator* ranks, int rank, int world_size, int has_hook,
                  float* parameters) {
  const ddp_model_options options = {.bucket_cap_bytes = 2048, .first_bucket_bytes = 64};
  ddp_model* model = NewModel(ranks, &options, parameters, rank);
  Copies copies = {.world_size = world_size};
  EXPECT_C(ddp_model_set_comm_hook(model, SumAside, &copies) == DDP_FAILED_PRECONDITION);
  EXPECT_C(ddp_model_finalize(model) == DDP_OK);
  if (has_hook) {
    EXPECT_C(ddp_model_set_comm_hook(model, NULL, NULL) == DDP_INVALID_ARGUMENT);
    EXPECT_C(ddp_model_set_comm_hook(model, SumAside, &copies) == DDP_OK);
    EXPECT_C(ddp_model_set_comm_hook(model, SumAside, &copies) == DDP_FAILED_PRECONDITION);
  }
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_C(ddp_model_zero_grad(model) == DDP_OK);
    EXPECT_C(Backward(model, rank, step) == 0);
    Descend(model, parameters);
  }
  /* Each pass has a last bucket and one or more before it. */
  EXPECT_C(copies.is_wrong == 0 && copies.calls / 100 == (has_hook ? kSteps : 0));
  EXPECT_C((copies.calls % 100 >= kSteps) == (has_hook != 0));
  ddp_model_free(model);
  return 0;
}

static ddp_code Refuse(void* context, ddp_stream stream, ddp_answer* answer) {
  (void)stream;
  ++*(int*)context;
  ddp_answer_error(answer, "the table of codes is full");
  return DDP_RESOURCE_EXHAUSTED;
}

int CheckContinuations(ddp_communicator* ranks) {
  int calls = 0;
  ddp_work* work = ddp_work_then(ddp_barrier(ranks), Refuse, &calls);
  for (int i = 0; i < 2; ++i) {
    EXPECT_C(ddp_work_wait(work) == DDP_RESOURCE_EXHAUSTED && calls == 1);
    EXPECT_C(strstr(ddp_error_text(), "the table of codes is full") != NULL);
    EXPECT_C(ddp_work_wait_on(work, NULL) == DDP_RESOURCE_EXHAUSTED && calls == 1);
  }
  EXPECT_C(ddp_work_is_done(work) == 1);
  ddp_work_free(work);
  /* Not behind what has failed, nor when nobody waits. */
  float value = 0;
  work = ddp_all_reduce(ranks, &value, 1, DDP_FLOAT32, -1, NULL);
  EXPECT_C(ddp_complete(ddp_work_then(work, Refuse, &calls)) == DDP_INVALID_ARGUMENT);
  ddp_work_free(ddp_work_then(ddp_barrier(ranks), Refuse, &calls));
  EXPECT_C(calls == 1);
  EXPECT_C(ddp_work_then(NULL, Refuse, &calls) == NULL);
  EXPECT_C(strstr(ddp_error_text(), "`work` is a null") != NULL);
  EXPECT_C(ddp_work_then(ddp_barrier(ranks), NULL, &calls) == NULL);
  EXPECT_C(ddp_complete(ddp_barrier(ranks)) == DDP_OK);
  return 0;
}

static ddp_work* RefuseBehind(void* context, const ddp_bucket* bucket, ddp_communicator* ranks) {
  ddp_work* sum = ddp_all_reduce(ranks, bucket->data, bucket->count, bucket->dtype, DDP_SUM, NULL);
  return ddp_work_then(sum, Refuse, context);
}

static ddp_work* NoWork(void* context, const ddp_bucket* bucket, ddp_communicator* ranks) {
  (void)context, (void)bucket, (void)ranks;
  return NULL;
}

int FailInHook(ddp_communicator* ranks, int rank, int is_behind) {
  float parameters[kCount];
  int calls = 0;
  ddp_model* model = NewModel(ranks, NULL, parameters, rank);
  EXPECT_C(ddp_model_finalize(model) == DDP_OK);
  EXPECT_C(ddp_model_set_comm_hook(model, is_behind ? RefuseBehind : NoWork, &calls) == DDP_OK);
  ddp_code code = DDP_OK;
  for (int tensor = 0; tensor < kTensors && code == DDP_OK; ++tensor) {
    code = ddp_model_gradient_ready(model, tensor);
  }
  if (code == DDP_OK) code = ddp_model_finish(model);
  EXPECT_C(code == (is_behind ? DDP_RESOURCE_EXHAUSTED : DDP_INVALID_ARGUMENT));
  EXPECT_C(strstr(ddp_error_text(), is_behind ? "codes is full" : "returned no work") != NULL);
  ddp_model_free(model);
  return 0;
}

/* ---- ZeRO ---- */

static ddp_code Momentum(void* context, const ddp_shard* shard, ddp_answer* answer) {
  (void)answer;
  float* values = shard->values;
  const float* gradient = shard->gradient;
  float* momentum = (float*)context + shard->offset;
  for (size_t i = 0; i < shard->count; ++i) {
    momentum[i] = 0.9f * momentum[i] + gradient[i];
    values[i] -= 0.1f * momentum[i];
  }
  return shard->dtype == DDP_FLOAT32 && shard->begin + shard->count <= CountOf(shard->parameter)
             ? DDP_OK
             : DDP_INTERNAL;
}

int TrainSharded(ddp_communicator* ranks, int rank, int root, Momenta* trained) {
  const ddp_model_options options = {.bucket_cap_bytes = 2048, .shard_gradients = 1};
  ddp_zero* zero = (ddp_zero*)trained; /* null comes from the call */
  ddp_model* model = NewModel(ranks, &options, trained->parameters, rank);
  EXPECT_C(ddp_zero_create(model, &zero) == DDP_FAILED_PRECONDITION && zero == NULL);
  EXPECT_C(ddp_model_finalize(model) == DDP_OK && ddp_zero_create(model, &zero) == DDP_OK);
  const size_t count = ddp_zero_state_count(zero);
  EXPECT_C(count > 0 && count < 2 * kCount);
  float* state = calloc(count, sizeof(float));
  EXPECT_C(ddp_zero_step(zero, Momentum, state) == DDP_FAILED_PRECONDITION);
  EXPECT_C(ddp_zero_step(zero, NULL, state) == DDP_INVALID_ARGUMENT);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_C(ddp_model_zero_grad(model) == DDP_OK);
    EXPECT_C(Backward(model, rank, step) == 0);
    EXPECT_C(ddp_zero_step(zero, Momentum, state) == DDP_OK);
  }
  ddp_tensor full[kTensors];
  float* place = trained->momenta;
  for (int tensor = 0; tensor < kTensors; place += CountOf(tensor++)) {
    full[tensor] = (ddp_tensor){"momentum", place, CountOf(tensor), DDP_FLOAT32};
  }
  const int is_root = rank == root;
  EXPECT_C(ddp_zero_gather_state(zero, state, DDP_FLOAT32, is_root ? full : NULL,
                                 is_root ? kTensors : 0, root) == DDP_OK);
  EXPECT_C(ddp_complete(ddp_broadcast(ranks, trained->momenta, kCount, DDP_FLOAT32, root, NULL)) ==
           DDP_OK);
  float* taken = calloc(count, sizeof(float));
  EXPECT_C(ddp_zero_take_state(zero, full, kTensors - 1, taken) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_zero_take_state(zero, full, kTensors, taken) == DDP_OK);
  EXPECT_C(memcmp(taken, state, count * sizeof(float)) == 0);
  free(taken);
  free(state);
  ddp_zero_free(zero);
  ddp_model_free(model);
  return 0;
}

static ddp_code FailToUpdate(void* context, const ddp_shard* shard, ddp_answer* answer) {
  (void)context, (void)shard;
  ddp_answer_error(answer, "the step size is no number");
  return DDP_OUT_OF_RANGE;
}

int FailInUpdate(ddp_communicator* ranks, int rank) {
  float parameters[kCount];
  const ddp_model_options options = {.shard_gradients = 1};
  ddp_model* model = NewModel(ranks, &options, parameters, rank);
  ddp_zero* zero = NULL;
  EXPECT_C(ddp_model_finalize(model) == DDP_OK && ddp_zero_create(model, &zero) == DDP_OK);
  EXPECT_C(Backward(model, rank, 0) == 0);
  EXPECT_C(ddp_zero_step(zero, FailToUpdate, NULL) == DDP_OUT_OF_RANGE);
  EXPECT_C(strstr(ddp_error_text(), "the step size is no number") != NULL);
  EXPECT_C(ddp_complete(ddp_barrier(ranks)) != DDP_OK);
  ddp_zero_free(zero);
  ddp_model_free(model);
  return 0;
}

int CheckNullsOfModels(ddp_group* group) {
  size_t count = 0;
  int should_stop = -1;
  ddp_zero* zero = NULL;
  ddp_reduction_times times;
  EXPECT_C(ddp_group_should_stop(NULL, &should_stop) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_group_should_stop(group, NULL) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_add_buffer(NULL, "b", &count, 1, DDP_INT64) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_set_stream(NULL, NULL) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_broadcast_buffers(NULL) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_count_non_finite(NULL, &count) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_join(NULL, 0) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_join_wait(NULL) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_last_reduction(NULL, &times) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_set_comm_hook(NULL, NoWork, NULL) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_zero_create(NULL, &zero) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_zero_step(NULL, Momentum, NULL) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_zero_gather_state(NULL, NULL, 0, NULL, 0, 0) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_zero_take_state(NULL, NULL, 0, NULL) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_zero_state_count(NULL) == 0);
  ddp_zero_free(NULL);

  ddp_model* model = NULL;
  float weight = 0;
  EXPECT_C(ddp_model_create(ddp_group_communicator(group), NULL, &model) == DDP_OK);
  EXPECT_C(ddp_model_add_buffer(model, NULL, &weight, 1, DDP_FLOAT32) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_add_buffer(model, "b", &weight, 1, -1) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_broadcast_buffers(model) == DDP_FAILED_PRECONDITION);
  EXPECT_C(ddp_model_count_non_finite(model, &count) == DDP_FAILED_PRECONDITION);
  EXPECT_C(ddp_model_count_non_finite(model, NULL) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_model_last_reduction(model, NULL) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_zero_create(model, NULL) == DDP_INVALID_ARGUMENT);
  ddp_model_free(model);
  return 0;
}
