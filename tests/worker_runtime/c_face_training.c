#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worker_runtime/c_face_ranks.h"

size_t CountOf(int tensor) {
  static const size_t counts[kTensors] = {1000, 7, 300};
  return counts[tensor];
}

float InitialValue(int rank, size_t i) { return sinf((float)(i + 1)) / (float)(rank + 1); }

float GradientValue(int rank, int step, int pass, size_t i) {
  return cosf((float)(i + 1) * 0.37f + (float)(step * 5 + rank * 3 + pass)) / 3.0f;
}

/* One pass of backward, from the last parameter to the first. */
static int Backward(ddp_model* model, int rank, int step, int pass) {
  for (int tensor = kTensors - 1; tensor >= 0; --tensor) {
    float* gradient = ddp_model_gradient(model, tensor);
    EXPECT_C(gradient != NULL);
    for (size_t i = 0; i < CountOf(tensor); ++i) {
      gradient[i] += GradientValue(rank, step, pass, i + (size_t)tensor);
    }
    EXPECT_C(ddp_model_gradient_ready(model, tensor) == DDP_OK);
  }
  EXPECT_C(ddp_model_finish(model) == DDP_OK);
  return 0;
}

static int Step(ddp_model* model, int rank, int step, Trained* trained) {
  EXPECT_C(ddp_model_zero_grad(model) == DDP_OK);
  EXPECT_C(ddp_model_set_no_sync(model, 1) == DDP_OK);
  EXPECT_C(Backward(model, rank, step, 0) == 0);
  EXPECT_C(ddp_model_set_no_sync(model, 0) == DDP_OK);
  EXPECT_C(Backward(model, rank, step, 1) == 0);
  EXPECT_C(ddp_model_clip_grad_norm(model, 0.5, 2, &trained->norms[step]) == DDP_OK);
  EXPECT_C(ddp_model_clip_grad_norm(model, 1e9, INFINITY, NULL) == DDP_OK);
  float* parameter = trained->parameters;
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    const float* gradient = ddp_model_gradient(model, tensor);
    for (size_t i = 0; i < CountOf(tensor); ++i) *parameter++ -= 0.1f * gradient[i];
  }
  return 0;
}

int Train(ddp_communicator* ranks, int rank, int has_own_gradients, Trained* trained) {
  static float own[kCount];
  memset(own, 0, sizeof own);
  const ddp_model_options options = {.bucket_cap_bytes = 2048, .first_bucket_bytes = 64};
  ddp_model* model = NULL;
  EXPECT_C(ddp_model_create(ranks, &options, &model) == DDP_OK && model != NULL);
  EXPECT_C(ddp_model_gradient(model, 0) == NULL);
  EXPECT_C(ddp_model_finish(model) == DDP_FAILED_PRECONDITION);
  for (size_t i = 0; i < kCount; ++i) trained->parameters[i] = InitialValue(rank, i);
  size_t begin = 0;
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    char name[] = "layer0"; /* copied by the call */
    name[5] = (char)('0' + tensor);
    EXPECT_C(ddp_model_add_parameter(model, name, trained->parameters + begin, CountOf(tensor),
                                     DDP_FLOAT32,
                                     has_own_gradients ? own + begin : NULL) == tensor);
    begin += CountOf(tensor);
  }
  EXPECT_C(ddp_model_finalize(model) == DDP_OK);
  EXPECT_C(trained->parameters[3] == InitialValue(0, 3));
  EXPECT_C((ddp_model_gradient(model, 0) == (void*)own) == (has_own_gradients != 0));
  EXPECT_C(ddp_model_gradient(model, -1) == NULL && ddp_model_gradient(model, kTensors) == NULL);
  for (int step = 0; step < kSteps; ++step) EXPECT_C(Step(model, rank, step, trained) == 0);
  EXPECT_C(ddp_model_gradient_ready(model, kTensors) == DDP_INVALID_ARGUMENT);
  ddp_model_free(model);
  return 0;
}

int CheckCheckpoint(ddp_communicator* ranks, int rank, const char* directory) {
  ddp_checkpoint* checkpoint = NULL;
  EXPECT_C(ddp_checkpoint_create(ranks, directory, 2, &checkpoint) == DDP_OK);
  EXPECT_C(strcmp(ddp_checkpoint_latest(checkpoint), "") == 0);
  float weights[] = {1.5f, -2.5f, 3.25f};
  int64_t seen = 41;
  const ddp_tensor tensors[] = {{"weights", weights, 3, DDP_FLOAT32},
                                {"seen", &seen, 1, DDP_INT64}};
  ddp_training_state state = {.step = -7};
  int is_found = -1;
  EXPECT_C(ddp_checkpoint_load_latest(checkpoint, tensors, 2, &state, &is_found) == DDP_OK);
  EXPECT_C(is_found == 0 && state.step == -7 && weights[0] == 1.5f);

  /* An extra is bytes, and may be none. */
  const ddp_extra extra[] = {{"random", "a\0b", 3}, {"empty", NULL, 0}};
  const ddp_training_state saved = {12, 3, 480, extra, 2};
  EXPECT_C(ddp_checkpoint_check_writable(checkpoint) == DDP_OK);
  EXPECT_C(ddp_checkpoint_save(checkpoint, &saved, tensors, 2) == DDP_OK);
  EXPECT_C(ddp_checkpoint_load_latest(checkpoint, tensors, 2, &state, &is_found) == DDP_OK);
  memset(weights, 0, sizeof weights);
  seen = rank;
  EXPECT_C(ddp_checkpoint_load_latest(checkpoint, tensors, 2, &state, &is_found) == DDP_OK);
  EXPECT_C(is_found == 1 && state.step == 12 && state.epoch == 3 && state.samples_taken == 480);
  EXPECT_C(weights[0] == 1.5f && weights[1] == -2.5f && weights[2] == 3.25f && seen == 41);
  EXPECT_C(state.extra_count == 2 && strcmp(state.extra[0].name, "empty") == 0);
  EXPECT_C(state.extra[0].size == 0 && state.extra[1].size == 3);
  EXPECT_C(memcmp(state.extra[1].data, "a\0b", 3) == 0);
  EXPECT_C(strstr(ddp_checkpoint_latest(checkpoint), "checkpoint-000001-step-12.ckpt") != NULL);

  const ddp_tensor other[] = {{"weights", weights, 2, DDP_FLOAT32}};
  EXPECT_C(ddp_checkpoint_load_latest(checkpoint, other, 1, &state, &is_found) ==
           DDP_FAILED_PRECONDITION);
  const ddp_extra alike[] = {{"a", NULL, 0}, {"a", NULL, 0}};
  const ddp_training_state twice = {.extra = alike, .extra_count = 2};
  EXPECT_C(ddp_checkpoint_save(checkpoint, &twice, tensors, 2) == DDP_INVALID_ARGUMENT);
  EXPECT_C(strstr(ddp_error_text(), "two extras are called `a`") != NULL);
  ddp_checkpoint_free(checkpoint);
  return 0;
}
