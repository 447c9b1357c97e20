/* The second part of ddp/c.h, which includes it: models, communication hooks, sharded optimizers
 * and checkpoints. What ddp/c.h says about all functions holds here. */
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
 * A model of which every rank has a replica. All ranks start from rank 0's parameters, and each
 * backward pass ends with the gradients averaged. One thread at a time calls it. */

typedef struct ddp_model ddp_model;

enum { DDP_COMPRESSION_NONE = 0, DDP_COMPRESSION_FLOAT16 = 1, DDP_COMPRESSION_BFLOAT16 = 2 };

typedef struct ddp_model_options {
  size_t bucket_cap_bytes;   /* 0: 25 MiB */
  size_t first_bucket_bytes; /* 0: 1 MiB */
  int compression;
  int find_unused_parameters;
  int static_graph;
  int rebuild_buckets;
  ddp_stream stream;   /* GPU: it wrote the parameters; all calls use it until another is set */
  int shard_gradients; /* for ddp_zero */
} ddp_model_options;

/* Makes a model, which borrows the communicator. Not collective. */
ddp_code ddp_model_create(ddp_communicator* communicator, const ddp_model_options* options,
                          ddp_model** model);
/* Frees the model. In the middle of a pass this aborts the communicator. */
void ddp_model_free(ddp_model* model);
/* Registers `count` elements at `data`, and returns the parameter's id, counted from 0. Register
 * parameters in the order in which forward uses them. `gradient` is as many elements of the
 * program's own, for all parameters or none. With null the library has the memory:
 * ddp_model_gradient(). If the model is wrong, ddp_model_finalize() fails with the reason. Returns
 * -1 for a null model or name and for a wrong type. */
int ddp_model_add_parameter(ddp_model* model, const char* name, void* data, size_t count,
                            ddp_dtype dtype, void* gradient);
/* Registers state without a gradient, such as the running mean of a batch norm, before
 * ddp_model_finalize(). If it is wrong, ddp_model_finalize() fails with the reason. */
ddp_code ddp_model_add_buffer(ddp_model* model, const char* name, void* data, size_t count,
                              ddp_dtype dtype);
/* Gives all ranks rank 0's values. Collective, once, after the last parameter. All ranks must have
 * registered the same. Errors: DDP_INVALID_ARGUMENT naming the parameter and the rank. The
 * communicator's errors. */
ddp_code ddp_model_finalize(ddp_model* model);
/* GPU: from now on the calls of this model, and of its ddp_zero, work on `stream`. They read what
 * it computed before, and what comes on it later finds the result. Gradients of one pass come from
 * one stream. ddp_model_finish() may have another one, the optimizer's. */
ddp_code ddp_model_set_stream(ddp_model* model, ddp_stream stream);
/* The address of the gradient of `id`, which never changes: the backward pass adds to it. Null
 * before ddp_model_finalize() and for an unknown id. */
void* ddp_model_gradient(const ddp_model* model, int id);
/* The gradient of `id` is complete for this pass. Do not change it until ddp_model_finish().
 * DDP_FAILED_PRECONDITION, with the name, if it was announced before. */
ddp_code ddp_model_gradient_ready(ddp_model* model, int id);
/* Ends the pass: gradients are averages. Errors: DDP_FAILED_PRECONDITION naming the parameters that
 * got no gradient, which ends the group. The communicator's errors. */
ddp_code ddp_model_finish(ddp_model* model);
/* Gives all ranks rank 0's buffers. Collective, before each forward pass of training, if there are
 * buffers. It does nothing if the pass before was local. DDP_FAILED_PRECONDITION in a pass. */
ddp_code ddp_model_broadcast_buffers(ddp_model* model);
/* Sets all gradients to 0. DDP_FAILED_PRECONDITION in a pass. */
ddp_code ddp_model_zero_grad(ddp_model* model);
/* Makes passes local from now on until it is set to 0: gradients add up (NoSync()). Call it between
 * passes. */
ddp_code ddp_model_set_no_sync(ddp_model* model, int is_active);
/* Scales the gradients to a norm of at most `max_norm`. `norm_type` is the norm's order, also
 * INFINITY. `norm`, unless it is null, gets the norm that they had. DDP_FAILED_PRECONDITION in a
 * pass. */
ddp_code ddp_model_clip_grad_norm(ddp_model* model, double max_norm, double norm_type,
                                  double* norm);

/* Counts the NaN and infinite elements of all gradients. After ddp_model_finish() all ranks get the
 * same count, so all skip the same steps. DDP_FAILED_PRECONDITION in a pass. */
ddp_code ddp_model_count_non_finite(ddp_model* model, size_t* count);

/* For ranks with different numbers of batches. Each rank calls ddp_model_join(), trains on its
 * batches, and calls ddp_model_join_wait(). There it takes part in the others' passes until no rank
 * has a batch. Then all get the parameters and buffers of the last rank that had one. Averages are
 * over all ranks, or with `is_over_active` over the ranks that still have batches. Between the two,
 * call no other collective. If the model is freed between them, it aborts the communicator. Errors:
 * DDP_FAILED_PRECONDITION in a pass, in another Join, and for a wait without one. DDP_UNIMPLEMENTED
 * with static_graph and shard_gradients. */
ddp_code ddp_model_join(ddp_model* model, int is_over_active);
ddp_code ddp_model_join_wait(ddp_model* model);

/* Times of the last pass that ended, on a GPU of the last with known times. 0 before. */
typedef struct ddp_reduction_times {
  int64_t communication_ns; /* with a collective under way */
  int64_t exposed_ns;       /* after the end of backward: by this the step was longer */
} ddp_reduction_times;
ddp_code ddp_model_last_reduction(const ddp_model* model, ddp_reduction_times* times);

/* ---- Communication hooks (ddp/comm_hook.h) ---- */

/* Gradients that are reduced together. All of them are complete. */
typedef struct ddp_bucket {
  void* data;
  size_t count;
  ddp_dtype dtype;
  int index; /* in the order of the calls, the same on all ranks */
  int is_last;
  ddp_stream stream;
} ddp_bucket;

/* Starts the reduction of a bucket and returns its handle. Null is an error. The library waits for
 * the handle and frees it. The thread that announces gradients or ends the pass calls the hook. The
 * result is what the bucket holds at the end. Every rank makes the same calls. */
typedef ddp_work* (*ddp_comm_hook)(void* context, const ddp_bucket* bucket,
                                   ddp_communicator* communicator);
/* From the next pass on `hook` reduces the buckets. Call it once, between passes, the same on all
 * ranks. The context must live as long as the model. DDP_FAILED_PRECONDITION before
 * ddp_model_finalize(), for a second hook, and with compression, rebuild_buckets or gradients of
 * the program's own. */
ddp_code ddp_model_set_comm_hook(ddp_model* model, ddp_comm_hook hook, void* context);

/* For a hook that does something after an operation. It takes `work` over and returns another
 * handle. If that is waited for and `work` has ended well, it calls `then`, once, on the thread
 * that waits. On a GPU `stream` is the one that waits for `work`: `then` enqueues there. The
 * handle's error is that of `then`. A handle that is freed before calls nothing. Null for a null
 * `work`, which means lack of memory, for a null `then`, and for lack of memory. In all of these
 * cases `work` is freed. */
typedef ddp_code (*ddp_continuation)(void* context, ddp_stream stream, ddp_answer* answer);
ddp_work* ddp_work_then(ddp_work* work, ddp_continuation then, void* context);

/* ---- ZeRO stage 1 (ddp/zero_redundancy_optimizer.h) ----
 *
 * Each rank has the optimizer's state of 1/N of the elements, and updates these. The model has
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

/* Divides the optimizer's state among the ranks. Call it after ddp_model_finalize(). Free the model
 * after it. */
ddp_code ddp_zero_create(ddp_model* model, ddp_zero** zero);
void ddp_zero_free(ddp_zero* zero);
/* Elements in each array of this rank's state. 0 for null. */
size_t ddp_zero_state_count(const ddp_zero* zero);
/* Updates one shard. An error becomes that of the step, and aborts the communicator.
 * ddp_answer_error() gives it a text. */
typedef ddp_code (*ddp_update)(void* context, const ddp_shard* shard, ddp_answer* answer);
/* Calls `update` for each shard, and gives all ranks the parameters. Collective, once after each
 * ddp_model_finish(). Call ddp_model_zero_grad() next. */
ddp_code ddp_zero_step(ddp_zero* zero, ddp_update update, void* context);
/* Joins one array of state, in host memory, on `root`, for a checkpoint. Collective. On `root`
 * `full` has one tensor for each parameter, by id, with its count. On the other ranks it may be
 * null, and `count` 0. */
ddp_code ddp_zero_gather_state(ddp_zero* zero, const void* state, ddp_dtype dtype,
                               const ddp_tensor* full, size_t count, int root);
/* The reverse of ddp_zero_gather_state(), after ddp_checkpoint_load_latest() has filled `full` on
 * all ranks. */
ddp_code ddp_zero_take_state(const ddp_zero* zero, const ddp_tensor* full, size_t count,
                             void* state);

/* ---- Checkpoints (ddp/checkpoint.h) ---- */

typedef struct ddp_checkpoint ddp_checkpoint;

/* Bytes of the program's own that are saved, too: random generators, statistics. Names must
 * differ. */
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

/* Opens a directory for checkpoints. `keep` is the number of files to keep. 0 means 3. It borrows
 * the communicator. In a group on GPUs either of the two works. One thread uses it. */
ddp_code ddp_checkpoint_create(ddp_communicator* communicator, const char* directory, int keep,
                               ddp_checkpoint** checkpoint);
void ddp_checkpoint_free(ddp_checkpoint* checkpoint);
/* Checks that rank 0 can write: CheckWritable(). Call it at the start, so that a long run does not
 * fail at its first save. Errors of this and of save, on rank 0, name the file, the call and errno.
 * DDP_FAILED_PRECONDITION if another run has begun to save there since. */
ddp_code ddp_checkpoint_check_writable(ddp_checkpoint* checkpoint);
/* Rank 0 writes a file, all of it or nothing. Other ranks do nothing. */
ddp_code ddp_checkpoint_save(ddp_checkpoint* checkpoint, const ddp_training_state* state,
                             const ddp_tensor* tensors, size_t count);
/* Fills the tensors of every rank from the newest good file, and the state. Collective. The state's
 * `extra`, in the order of the names, is valid until the next load or the checkpoint's free. If
 * there is no file, `is_found` is 0, and the state unchanged. Errors are the same on all ranks:
 * DDP_DATA_LOSS if all files are damaged. DDP_FAILED_PRECONDITION if the newest good file has other
 * names, sizes or types. The communicator's errors. */
ddp_code ddp_checkpoint_load_latest(ddp_checkpoint* checkpoint, const ddp_tensor* tensors,
                                    size_t count, ddp_training_state* state, int* is_found);
/* The file last saved (rank 0) or loaded (all ranks). "" before, and for null. Valid until the next
 * save or load. */
const char* ddp_checkpoint_latest(const ddp_checkpoint* checkpoint);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DDPRUN_WORKER_RUNTIME_DDP_C_MODEL_H_ */
