/* The second part of ddp/c.h, which includes it: models and checkpoints. What is said there about
 * all functions holds here. */
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
  ddp_stream stream; /* of all calls on a GPU */
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
/* Collective, once, after the last parameter: all ranks have registered the same, and get rank 0's
 * values. Errors: DDP_INVALID_ARGUMENT naming the parameter and the rank; the communicator's. */
ddp_code ddp_model_finalize(ddp_model* model);
/* Where the gradient of `id` lives for ever: the backward pass adds to it. Null before
 * ddp_model_finalize() and for an id that is none. */
void* ddp_model_gradient(const ddp_model* model, int id);
/* The gradient of `id` is complete for this pass: not to be touched until ddp_model_finish().
 * DDP_FAILED_PRECONDITION, with the name, for one that was announced before. */
ddp_code ddp_model_gradient_ready(ddp_model* model, int id);
/* Ends the pass: gradients are averages. Errors: DDP_FAILED_PRECONDITION naming the parameters that
 * got no gradient, which ends the group; the communicator's. */
ddp_code ddp_model_finish(ddp_model* model);
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

/* ---- Checkpoints (ddp/checkpoint.h) ---- */

typedef struct ddp_checkpoint ddp_checkpoint;

/* A named array in host memory. */
typedef struct ddp_tensor {
  const char* name;
  void* data;
  size_t count;
  ddp_dtype dtype;
} ddp_tensor;

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
