/* The second part of ddp/c.h, which includes it: models, communication hooks, sharded optimizers
 * and checkpoints. What is said there about all functions holds here. */
#ifndef DDPRUN_WORKER_RUNTIME_DDP_C_MODEL_H_
#define DDPRUN_WORKER_RUNTIME_DDP_C_MODEL_H_

#include <stddef.h>
#include <stdint.h>

#include "ddp/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- DistributedDataParallel (ddp/distributed_data_parallel.h) ----
 *
 * A model of which every rank has a replica: all start from rank 0's parameters, and each backward
 * pass ends with the gradients averaged. One thread at a time calls it. */

typedef struct ddp_model ddp_model;

enum { DDP_COMPRESSION_NONE = 0, DDP_COMPRESSION_FLOAT16 = 1, DDP_COMPRESSION_BFLOAT16 = 2 };

typedef struct ddp_model_options {
  size_t bucket_cap_bytes;   /* 0: 25 MiB */
  size_t first_bucket_bytes; /* 0: 1 MiB */
  int compression;
  int find_unused_parameters;
  int static_graph;
  int rebuild_buckets;
  ddp_stream stream;   /* GPU: where the parameters were written, and of all calls until another */
  int shard_gradients; /* for ddp_zero */
} ddp_model_options;

/* Borrows the communicator. Nothing of it is collective. */
ddp_code ddp_model_create(ddp_communicator* communicator, const ddp_model_options* options,
                          ddp_model** model);
/* In the middle of a pass it aborts the communicator. */
void ddp_model_free(ddp_model* model);
/* Registers `count` elements at `data` in the order in which forward uses them, and returns the
 * parameter's id, counted from 0. `gradient` is as many elements of the program's own, for all
 * parameters; null: the library has them, see ddp_model_gradient(). What is wrong with the model is
 * the result of ddp_model_finalize(). -1 for a null model or name and for a wrong type. */
int ddp_model_add_parameter(ddp_model* model, const char* name, void* data, size_t count,
                            ddp_dtype dtype, void* gradient);
/* State without a gradient, such as the running mean of a batch norm, also before
 * ddp_model_finalize(), which tells what is wrong with it. */
ddp_code ddp_model_add_buffer(ddp_model* model, const char* name, void* data, size_t count,
                              ddp_dtype dtype);
/* Collective, once, after the last parameter: all ranks have registered the same, and get rank 0's
 * values. Errors: DDP_INVALID_ARGUMENT naming the parameter and the rank; the communicator's. */
ddp_code ddp_model_finalize(ddp_model* model);
/* GPU: from now on the calls of this model, and of its ddp_zero, work on `stream`: what it computed
 * before is read, and what comes on it later finds the result. Gradients of one pass come from one
 * stream; ddp_model_finish() may have another, the optimizer's. */
ddp_code ddp_model_set_stream(ddp_model* model, ddp_stream stream);
/* Where the gradient of `id` lives for ever: the backward pass adds to it. Null before
 * ddp_model_finalize() and for an id that is none. */
void* ddp_model_gradient(const ddp_model* model, int id);
/* The gradient of `id` is complete for this pass: not to be touched until ddp_model_finish().
 * DDP_FAILED_PRECONDITION, with the name, for one that was announced before. */
ddp_code ddp_model_gradient_ready(ddp_model* model, int id);
/* Ends the pass: gradients are averages. Errors: DDP_FAILED_PRECONDITION naming the parameters that
 * got no gradient, which ends the group; the communicator's. */
ddp_code ddp_model_finish(ddp_model* model);
/* Collective, before each forward pass of training where there are buffers: all get rank 0's. Does
 * nothing when the pass before was local. DDP_FAILED_PRECONDITION in a pass. */
ddp_code ddp_model_broadcast_buffers(ddp_model* model);
/* Sets all gradients to 0. DDP_FAILED_PRECONDITION in a pass. */
ddp_code ddp_model_zero_grad(ddp_model* model);
/* From now on passes are local, and gradients add up, until it is set to 0 (NoSync()). Between
 * passes. */
ddp_code ddp_model_set_no_sync(ddp_model* model, int is_active);
/* Scales the gradients to a norm of at most `max_norm`, where `norm_type` is its order, also
 * INFINITY; `norm`, unless it is null, gets the norm that they had. DDP_FAILED_PRECONDITION in a
 * pass. */
ddp_code ddp_model_clip_grad_norm(ddp_model* model, double max_norm, double norm_type,
                                  double* norm);

/* How many elements of all gradients are NaN or infinite: after ddp_model_finish() the same on all
 * ranks, so that all skip the same steps. DDP_FAILED_PRECONDITION in a pass. */
ddp_code ddp_model_count_non_finite(ddp_model* model, size_t* count);

/* For ranks with different numbers of batches: each calls ddp_model_join(), trains on those that it
 * has, and calls ddp_model_join_wait(), where it takes part in the others' passes until nobody has
 * a batch; then all have the parameters and buffers of the last one that had. Averages are over all
 * ranks, or with `is_over_active` over those that have batches still. Nothing else is collective
 * between the two. Freed between them, the model aborts the communicator. Errors:
 * DDP_FAILED_PRECONDITION in a pass and in another Join, and for a wait without one;
 * DDP_UNIMPLEMENTED with static_graph and shard_gradients. */
ddp_code ddp_model_join(ddp_model* model, int is_over_active);
ddp_code ddp_model_join_wait(ddp_model* model);

/* Of the last pass that ended, on a GPU of the last whose times are known. 0 before. */
typedef struct ddp_reduction_times {
  int64_t communication_ns; /* with a collective under way */
  int64_t exposed_ns;       /* after backward had ended: what the step was longer for it */
} ddp_reduction_times;
ddp_code ddp_model_last_reduction(const ddp_model* model, ddp_reduction_times* times);

/* ---- Communication hooks (ddp/comm_hook.h) ---- */

/* Gradients that are reduced together, all of which are there. */
typedef struct ddp_bucket {
  void* data;
  size_t count;
  ddp_dtype dtype;
  int index; /* in the order of the calls, the same on all ranks */
  int is_last;
  ddp_stream stream;
} ddp_bucket;

/* Starts what is to become of a bucket and returns its handle, which the library waits for and
 * frees; null is an error. Called by the thread that announces gradients or ends the pass. What is
 * in the bucket then is the result. Every rank makes the same calls. */
typedef ddp_work* (*ddp_comm_hook)(void* context, const ddp_bucket* bucket,
                                   ddp_communicator* communicator);
/* From the next pass on `hook` reduces the buckets. Once, between passes, the same on all ranks;
 * the context lives as long as the model. Errors: DDP_FAILED_PRECONDITION before
 * ddp_model_finalize(), for a second one, and with compression, rebuild_buckets or gradients of the
 * program's own. */
ddp_code ddp_model_set_comm_hook(ddp_model* model, ddp_comm_hook hook, void* context);

/* For a hook that does something behind an operation: a handle that takes `work` over and, when it
 * is waited for and `work` has ended well, calls `then`, once, on the thread that waits. On a GPU
 * `stream` is the one that waits for `work`: `then` enqueues there. Its error is the handle's. A
 * handle that is freed before calls nothing. Null for a null `work`, which is out of memory, for a
 * null `then`, and for want of memory; `work` is freed then. */
typedef ddp_code (*ddp_continuation)(void* context, ddp_stream stream, ddp_answer* answer);
ddp_work* ddp_work_then(ddp_work* work, ddp_continuation then, void* context);

/* ---- ZeRO stage 1 (ddp/zero_redundancy_optimizer.h) ----
 *
 * Each rank has the optimizer's state of 1/N of the elements and updates these. The model has
 * shard_gradients. */

typedef struct ddp_zero ddp_zero;

/* A named array in host memory. */
typedef struct ddp_tensor {
  const char* name;
  void* data;
  size_t count;
  ddp_dtype dtype;
} ddp_tensor;

/* Successive elements of one parameter, which this rank updates. */
typedef struct ddp_shard {
  int parameter;
  size_t begin; /* in the parameter */
  size_t count;
  ddp_dtype dtype;
  void* values;         /* `count` of the parameter, to be updated in place */
  const void* gradient; /* their averages */
  size_t offset;        /* of the first in this rank's state */
} ddp_shard;

/* After ddp_model_finalize(). The model is freed after it. */
ddp_code ddp_zero_create(ddp_model* model, ddp_zero** zero);
void ddp_zero_free(ddp_zero* zero);
/* Elements in each array of this rank's state; 0 for null. */
size_t ddp_zero_state_count(const ddp_zero* zero);
/* An error is the step's, and aborts the communicator; ddp_answer_error() gives it words. */
typedef ddp_code (*ddp_update)(void* context, const ddp_shard* shard, ddp_answer* answer);
/* Collective, once behind each ddp_model_finish(): calls `update` for each shard, and all ranks get
 * the parameters. ddp_model_zero_grad() comes next. */
ddp_code ddp_zero_step(ddp_zero* zero, ddp_update update, void* context);
/* Collective, for a checkpoint: puts one array of state, in host memory, together on `root`, where
 * `full` has one tensor for each parameter, by id, with its count; elsewhere it may be null, and
 * `count` 0. */
ddp_code ddp_zero_gather_state(ddp_zero* zero, const void* state, ddp_dtype dtype,
                               const ddp_tensor* full, size_t count, int root);
/* The way back, after ddp_checkpoint_load_latest() has filled `full` on all ranks. */
ddp_code ddp_zero_take_state(const ddp_zero* zero, const ddp_tensor* full, size_t count,
                             void* state);

/* ---- Checkpoints (ddp/checkpoint.h) ---- */

typedef struct ddp_checkpoint ddp_checkpoint;

/* Bytes of the program's own that go along: random generators, statistics. Names differ. */
typedef struct ddp_extra {
  const char* name;
  const void* data;
  size_t size;
} ddp_extra;

typedef struct ddp_training_state {
  int64_t step; /* optimizer steps done */
  int64_t epoch;
  int64_t samples_taken; /* in this epoch, by all ranks together */
  const ddp_extra* extra;
  size_t extra_count;
} ddp_training_state;

/* `keep` is how many files are kept, 0: 3. Borrows the communicator; of a group on GPUs either one
 * will do. Used by one thread. */
ddp_code ddp_checkpoint_create(ddp_communicator* communicator, const char* directory, int keep,
                               ddp_checkpoint** checkpoint);
void ddp_checkpoint_free(ddp_checkpoint* checkpoint);
/* CheckWritable(): at the start, so that a long run does not find out at its first save. Errors of
 * this and of save, on rank 0: they name the file, the call and errno; DDP_FAILED_PRECONDITION when
 * another run has begun to save there since. */
ddp_code ddp_checkpoint_check_writable(ddp_checkpoint* checkpoint);
/* Rank 0 writes a file, all of it or none; other ranks do nothing. */
ddp_code ddp_checkpoint_save(ddp_checkpoint* checkpoint, const ddp_training_state* state,
                             const ddp_tensor* tensors, size_t count);
/* Collective. Fills the tensors of every rank from the newest good file, and the state, whose
 * `extra`, in the order of the names, is valid until the next load or the checkpoint's free. Where
 * there is no file `is_found` is 0, and the state untouched. Errors, the same on all ranks:
 * DDP_DATA_LOSS when all files are damaged; DDP_FAILED_PRECONDITION when the newest good one has
 * other names, sizes or types; the communicator's. */
ddp_code ddp_checkpoint_load_latest(ddp_checkpoint* checkpoint, const ddp_tensor* tensors,
                                    size_t count, ddp_training_state* state, int* is_found);
/* The file last saved (rank 0) or loaded (all ranks); "" before, and for null. Valid until the next
 * save or load. */
const char* ddp_checkpoint_latest(const ddp_checkpoint* checkpoint);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DDPRUN_WORKER_RUNTIME_DDP_C_MODEL_H_ */
