#include <stdint.h>
#include <string.h>

#include "tests/worker_runtime/c_face_ranks.h"

/* The code, and that a sentence came with it. */
static int Is(ddp_code wanted, ddp_code code, const char* words) {
  if (code == wanted && strstr(ddp_error_text(), words) != NULL) return 1;
  fprintf(stderr, "%s (%s) instead of %s (%s)\n", ddp_code_name(code), ddp_error_text(),
          ddp_code_name(wanted), words);
  return 0;
}

static int IsInvalid(ddp_code code, const char* words) {
  return Is(DDP_INVALID_ARGUMENT, code, words);
}

static int CheckNullGroups(ddp_group* group) {
  ddp_group* made = group;
  EXPECT_C(IsInvalid(ddp_group_from_env(NULL, NULL), "ddp_group_from_env: `group` is a null"));
  EXPECT_C(IsInvalid(ddp_group_from_tcp_store(NULL, 1, NULL, 0, 1, NULL, &made), "`host`"));
  EXPECT_C(made == NULL);
  EXPECT_C(IsInvalid(ddp_group_from_store(NULL, 0, 1, NULL, &made), "`store`"));
  const ddp_store no_functions = {0};
  EXPECT_C(IsInvalid(ddp_group_from_store(&no_functions, 0, 1, NULL, &made), "`set`"));
  EXPECT_C(IsInvalid(ddp_group_subgroup(NULL, NULL, 0, &made), "`group`"));
  EXPECT_C(IsInvalid(ddp_group_subgroup(group, NULL, 0, NULL), "`subgroup`"));
  EXPECT_C(IsInvalid(ddp_group_shutdown(NULL), "ddp_group_shutdown: `group`"));
  EXPECT_C(ddp_group_rank(NULL) == -1 && ddp_group_world_size(NULL) == -1);
  EXPECT_C(ddp_group_local_rank(NULL) == -1 && ddp_group_local_world_size(NULL) == -1);
  EXPECT_C(ddp_group_restart_count(NULL) == -1 && ddp_group_gpu(NULL) == -1);
  EXPECT_C(strcmp(ddp_group_description(NULL), "") == 0);
  EXPECT_C(ddp_group_communicator(NULL) == NULL && ddp_group_host_communicator(NULL) == NULL);
  ddp_group_free(NULL);
  ddp_answer_value(NULL, "x", 1);
  ddp_answer_error(NULL, "x");

  ddp_group_options options = {.device = 3};
  EXPECT_C(IsInvalid(ddp_group_from_env(&options, &made), "`device` is 3"));
  options.device = 0;
  options.backend = -1;
  EXPECT_C(IsInvalid(ddp_group_from_env(&options, &made), "`backend` is -1"));
  options.backend = 0;
  options.timeout_ms = -5;
  EXPECT_C(IsInvalid(ddp_group_from_env(&options, &made), "a timeout of -5 ms"));
  options.timeout_ms = INT64_MAX;
  EXPECT_C(IsInvalid(ddp_group_from_env(&options, &made), "at most 1000000000000"));
  EXPECT_C(made == NULL);
  return 0;
}

static int CheckNullCommunicators(ddp_communicator* ranks) {
  EXPECT_C(strcmp(ddp_communicator_backend(NULL), "") == 0);
  EXPECT_C(IsInvalid(ddp_communicator_set_timeout(NULL, 1), "`communicator`"));
  EXPECT_C(IsInvalid(ddp_communicator_set_timeout(ranks, 0), "a timeout of 0 ms"));
  EXPECT_C(IsInvalid(ddp_communicator_abort(NULL, "why"), "`communicator`"));
  EXPECT_C(IsInvalid(ddp_communicator_error(NULL), "`communicator`"));
  const char* path = NULL;
  EXPECT_C(IsInvalid(ddp_communicator_dump_operations(NULL, &path), "`communicator`"));
  EXPECT_C(IsInvalid(ddp_communicator_dump_operations(ranks, NULL), "`path`"));
  EXPECT_C(IsInvalid(ddp_work_wait(NULL), "`work`"));
  EXPECT_C(IsInvalid(ddp_work_wait_on(NULL, NULL), "`work`"));
  EXPECT_C(IsInvalid(ddp_complete(NULL), "`work`"));
  EXPECT_C(ddp_work_is_done(NULL) == -1);
  EXPECT_C(ddp_work_wait_for(NULL, 0) == -1);
  EXPECT_C(ddp_work_source(NULL) == -1);
  EXPECT_C(ddp_work_missing(NULL)[0] == '\0');
  EXPECT_C(IsInvalid(ddp_complete(ddp_send(NULL, &path, 1, DDP_UINT8, 1, 0)), "`communicator`"));
  EXPECT_C(IsInvalid(ddp_complete(ddp_receive(ranks, NULL, 1, DDP_UINT8, -1, 0)),
                     ddp_communicator_backend(ranks)[0] == 'l' ? "group of one" : "null pointer"));
  ddp_work_free(NULL);
  return 0;
}

static int CheckRefusedCollectives(ddp_communicator* ranks, int world_size) {
  float data[] = {3};
  EXPECT_C(IsInvalid(ddp_complete(ddp_all_reduce(NULL, data, 1, DDP_FLOAT32, DDP_SUM, NULL)),
                     "ddp_all_reduce: `communicator`"));
  EXPECT_C(IsInvalid(ddp_complete(ddp_barrier(NULL)), "ddp_barrier: `communicator`"));
  EXPECT_C(IsInvalid(ddp_complete(ddp_all_reduce(ranks, data, 1, 8, DDP_SUM, NULL)), "`dtype` is"));
  EXPECT_C(IsInvalid(ddp_complete(ddp_all_reduce(ranks, data, 1, -1, DDP_SUM, NULL)), "is -1"));
  EXPECT_C(
      IsInvalid(ddp_complete(ddp_all_reduce(ranks, data, 1, DDP_FLOAT32, 8, NULL)), "`op` is"));
  EXPECT_C(IsInvalid(ddp_complete(ddp_all_reduce(ranks, data, 1, DDP_FLOAT32, DDP_BIT_OR, NULL)),
                     "operations on bits are for integers"));
  EXPECT_C(IsInvalid(ddp_complete(ddp_all_reduce(ranks, NULL, 1, DDP_FLOAT32, DDP_SUM, NULL)),
                     "null pointer"));
  EXPECT_C(
      IsInvalid(ddp_complete(ddp_all_reduce_coalesced(ranks, NULL, 2, DDP_FLOAT32, DDP_SUM, NULL)),
                "`pieces`"));
  EXPECT_C(IsInvalid(ddp_complete(ddp_broadcast(ranks, data, 1, DDP_FLOAT32, world_size, NULL)),
                     "rank"));
  EXPECT_C(IsInvalid(
      ddp_complete(ddp_send_receive(ranks, data, -2, NULL, -1, 1, DDP_FLOAT32, NULL)), "rank"));
  EXPECT_C(
      IsInvalid(ddp_complete(ddp_all_gather(ranks, data, data, SIZE_MAX, DDP_FLOAT32, NULL)), ""));
  /* No list is so long: without a handle, and the error is there all the same. */
  const ddp_piece piece = {data, 1};
  EXPECT_C(ddp_all_reduce_coalesced(ranks, &piece, SIZE_MAX, DDP_FLOAT32, DDP_SUM, NULL) == NULL);
  EXPECT_C(strstr(ddp_error_text(), "an exception: ") != NULL);
  /* A refused call has a handle like any other. */
  ddp_work* refused = ddp_all_reduce(ranks, data, 1, 99, DDP_SUM, NULL);
  EXPECT_C(ddp_work_is_done(refused) == 1);
  EXPECT_C(ddp_work_wait_on(refused, NULL) == DDP_INVALID_ARGUMENT);
  ddp_work_free(refused);
  return 0;
}

static int CheckNullModels(ddp_communicator* ranks) {
  ddp_model* model = NULL;
  EXPECT_C(IsInvalid(ddp_model_create(NULL, NULL, &model), "`communicator`"));
  EXPECT_C(IsInvalid(ddp_model_create(ranks, NULL, NULL), "`model`"));
  const ddp_model_options options = {.compression = 3};
  EXPECT_C(IsInvalid(ddp_model_create(ranks, &options, &model), "`compression` is 3"));
  EXPECT_C(model == NULL);
  EXPECT_C(ddp_model_add_parameter(NULL, "x", NULL, 0, DDP_FLOAT32, NULL) == -1);
  EXPECT_C(IsInvalid(ddp_model_finalize(NULL), "ddp_model_finalize: `model`"));
  EXPECT_C(IsInvalid(ddp_model_gradient_ready(NULL, 0), "`model`"));
  EXPECT_C(IsInvalid(ddp_model_finish(NULL), "`model`"));
  EXPECT_C(IsInvalid(ddp_model_zero_grad(NULL), "`model`"));
  EXPECT_C(IsInvalid(ddp_model_set_no_sync(NULL, 1), "`model`"));
  EXPECT_C(IsInvalid(ddp_model_clip_grad_norm(NULL, 1, 2, NULL), "`model`"));
  EXPECT_C(ddp_model_gradient(NULL, 0) == NULL);
  ddp_model_free(NULL);

  EXPECT_C(ddp_model_create(ranks, NULL, &model) == DDP_OK);
  float weight = 0;
  EXPECT_C(ddp_model_add_parameter(model, NULL, &weight, 1, DDP_FLOAT32, NULL) == -1);
  EXPECT_C(ddp_model_add_parameter(model, "weight", &weight, 1, 8, NULL) == -1);
  EXPECT_C(strstr(ddp_error_text(), "`dtype` is 8") != NULL);
  EXPECT_C(Is(DDP_FAILED_PRECONDITION, ddp_model_zero_grad(model), "Finalize"));
  ddp_model_free(model);
  return 0;
}

static int CheckNullCheckpoints(ddp_communicator* ranks) {
  ddp_checkpoint* checkpoint = NULL;
  EXPECT_C(IsInvalid(ddp_checkpoint_create(NULL, "x", 1, &checkpoint), "`communicator`"));
  EXPECT_C(IsInvalid(ddp_checkpoint_create(ranks, NULL, 1, &checkpoint), "`directory`"));
  EXPECT_C(IsInvalid(ddp_checkpoint_create(ranks, "x", 1, NULL), "`checkpoint`"));
  EXPECT_C(IsInvalid(ddp_checkpoint_create(ranks, "x", -1, &checkpoint), "cannot keep -1"));
  EXPECT_C(checkpoint == NULL);
  ddp_training_state state = {0};
  int is_found = 0;
  EXPECT_C(IsInvalid(ddp_checkpoint_check_writable(NULL), "`checkpoint`"));
  EXPECT_C(IsInvalid(ddp_checkpoint_save(NULL, &state, NULL, 0), "`checkpoint`"));
  EXPECT_C(IsInvalid(ddp_checkpoint_load_latest(NULL, NULL, 0, &state, &is_found), "`checkpoint`"));
  EXPECT_C(strcmp(ddp_checkpoint_latest(NULL), "") == 0);
  ddp_checkpoint_free(NULL);

  EXPECT_C(ddp_checkpoint_create(ranks, "/nowhere", 0, &checkpoint) == DDP_OK);
  float weight = 0;
  ddp_tensor tensor = {NULL, &weight, 1, DDP_FLOAT32};
  EXPECT_C(IsInvalid(ddp_checkpoint_save(checkpoint, NULL, &tensor, 1), "`state`"));
  EXPECT_C(IsInvalid(ddp_checkpoint_save(checkpoint, &state, NULL, 1), "`tensors`"));
  EXPECT_C(IsInvalid(ddp_checkpoint_save(checkpoint, &state, &tensor, 1), "`name of a tensor`"));
  tensor = (ddp_tensor){"weight", NULL, 1, DDP_FLOAT32};
  EXPECT_C(IsInvalid(ddp_checkpoint_save(checkpoint, &state, &tensor, 1), "`weight`"));
  tensor = (ddp_tensor){"weight", &weight, 1, 12};
  EXPECT_C(IsInvalid(ddp_checkpoint_save(checkpoint, &state, &tensor, 1), "`dtype` is 12"));
  EXPECT_C(IsInvalid(ddp_checkpoint_load_latest(checkpoint, NULL, 0, NULL, &is_found), "`state`"));
  EXPECT_C(IsInvalid(ddp_checkpoint_load_latest(checkpoint, NULL, 0, &state, NULL), "`is_found`"));
  state.extra_count = 1;
  EXPECT_C(IsInvalid(ddp_checkpoint_save(checkpoint, &state, NULL, 0), "`extra`"));
  /* No string is so long: an exception of the C++ library. */
  const ddp_extra endless = {"endless", "x", SIZE_MAX};
  state.extra = &endless;
  EXPECT_C(Is(DDP_INTERNAL, ddp_checkpoint_save(checkpoint, &state, NULL, 0), "an exception: "));
  ddp_checkpoint_free(checkpoint);
  return 0;
}

int CheckRefusals(ddp_group* group) {
  ddp_communicator* ranks = ddp_group_communicator(group);
  EXPECT_C(strcmp(ddp_code_name(DDP_INVALID_ARGUMENT), "INVALID_ARGUMENT") == 0);
  EXPECT_C(strcmp(ddp_code_name(DDP_UNAUTHENTICATED), "UNAUTHENTICATED") == 0);
  EXPECT_C(strcmp(ddp_code_name(17), "") == 0 && strcmp(ddp_code_name(-1), "") == 0);
  EXPECT_C(strlen(ddp_version()) >= 5);
  EXPECT_C(CheckNullGroups(group) == 0);
  EXPECT_C(CheckNullCommunicators(ranks) == 0);
  EXPECT_C(CheckRefusedCollectives(ranks, ddp_group_world_size(group)) == 0);
  EXPECT_C(CheckNullModels(ranks) == 0);
  EXPECT_C(CheckNullCheckpoints(ranks) == 0);
  /* None of it was heard of by another rank. */
  EXPECT_C(ddp_communicator_error(ranks) == DDP_OK);
  EXPECT_C(ddp_complete(ddp_barrier(ranks)) == DDP_OK);
  return 0;
}
