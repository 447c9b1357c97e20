/* The library for C, for C++17 and for programs that nvcc compiles: groups of ranks, collectives,
 * DistributedDataParallel and checkpoints. It is in libddp.so, which needs only glibc and libgcc_s.
 * libddp.so exports only these functions and those of ddp/stop.h and ddp/progress.h.
 *
 *   ddp_group* group;
 *   if (ddp_group_from_env(NULL, &group) != DDP_OK) return Fail(ddp_error_text());
 *   ddp_communicator* ranks = ddp_group_communicator(group);
 *   each step:
 *     forward, and backward, which fills `gradients`
 *     code = ddp_complete(ddp_all_reduce(ranks, gradients, count, DDP_FLOAT32, DDP_AVERAGE, NULL));
 *     optimizer step
 *   code = ddp_group_shutdown(group);
 *   ddp_group_free(group);
 *
 * The heading of a section names the C++ header that describes its functions: what they do, their
 * errors and their threads. This header has the differences. For all functions:
 * - A ddp_code other than DDP_OK is an error, and ddp_error_text() says more. A null handle, a null
 *   pointer to something needed and a value outside of its enum are DDP_INVALID_ARGUMENT. They do
 *   no harm, and no other rank notices them.
 * - A call writes its results through its last pointers. After an error a handle there is null, and
 *   the rest is unchanged.
 * - Options that are null or all zero are the defaults. A flag is 0 or not 0.
 * - A call copies texts and lists before it returns. It uses the memory of collectives, parameters
 *   and gradients where it is.
 * - To free null does nothing. REQUIRES: no handle is used after its free. What was made from a
 *   group (works, models, checkpoints) is freed before it.
 * - No C++ exception leaves a function. An exception of the library is DDP_INTERNAL, lack of memory
 *   is DDP_RESOURCE_EXHAUSTED.
 * - One thread at a time uses each communicator, model, checkpoint and work, unless a function says
 *   "any thread". It may be another thread each time. A call on a model also uses its communicator.
 * - A function of the program returns to its caller: it must not leave by longjmp().
 * - After fork() REQUIRES: the child uses nothing of the library and ends by exec or _exit(). The
 *   library catches no signals, and a peer that is gone raises no SIGPIPE.
 *
 * Structs may grow at their end when the second number of ddp_version() does. The functions then
 * have another version, such as DDP_0.1. A program that was compiled with an older header then does
 * not start, and the loader says why. A program that uses dlopen() checks ddp_version(). Fill
 * structs by their members' names, or set them to 0 first: 0 is the default of new members. */
#ifndef DDPRUN_WORKER_RUNTIME_DDP_C_H_
#define DDPRUN_WORKER_RUNTIME_DDP_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ---- */

/* The codes of gRPC, with the same meanings. */
typedef int ddp_code;
enum {
  DDP_OK = 0,
  DDP_CANCELLED = 1,
  DDP_UNKNOWN = 2,
  DDP_INVALID_ARGUMENT = 3,
  DDP_DEADLINE_EXCEEDED = 4,
  DDP_NOT_FOUND = 5,
  DDP_ALREADY_EXISTS = 6,
  DDP_PERMISSION_DENIED = 7,
  DDP_RESOURCE_EXHAUSTED = 8,
  DDP_FAILED_PRECONDITION = 9,
  DDP_ABORTED = 10,
  DDP_OUT_OF_RANGE = 11,
  DDP_UNIMPLEMENTED = 12,
  DDP_INTERNAL = 13,
  DDP_UNAVAILABLE = 14,
  DDP_DATA_LOSS = 15,
  DDP_UNAUTHENTICATED = 16
};

/* The library's version, as "0.1.0". */
const char* ddp_version(void);
/* "INVALID_ARGUMENT" and so on. "" for a number that is no code. */
const char* ddp_code_name(ddp_code code);
/* Why this thread's last failed call failed: which ranks, what was attempted, the cause. It is ""
 * before the first failure. Valid until this thread's next call that fails. Never null. */
const char* ddp_error_text(void);

/* ---- Types (ddp/dtype.h, ddp/communicator.h) ---- */

typedef int ddp_dtype;
enum {
  DDP_FLOAT32 = 0,
  DDP_FLOAT64 = 1,
  DDP_FLOAT16 = 2,
  DDP_BFLOAT16 = 3,
  DDP_INT32 = 4,
  DDP_INT64 = 5,
  DDP_UINT8 = 6,
  DDP_INT8 = 7
};

/* How elements of several ranks become one. */
typedef int ddp_reduce_op;
enum {
  DDP_SUM = 0,
  DDP_AVERAGE = 1,
  DDP_MAX = 2,
  DDP_MIN = 3,
  DDP_PRODUCT = 4,
  DDP_BIT_AND = 5,
  DDP_BIT_OR = 6,
  DDP_BIT_XOR = 7
};

/* A CUstream (= cudaStream_t) that produced data or waits for it. Null on the CPU. */
typedef void* ddp_stream;

/* Groups of ranks, their collectives, and one operation under way. */
typedef struct ddp_group ddp_group;
typedef struct ddp_communicator ddp_communicator;
typedef struct ddp_work ddp_work;

/* ---- Groups (ddp/process_group.h) ---- */

enum { DDP_DEVICE_CPU = 0, DDP_DEVICE_CUDA = 1, DDP_DEVICE_AUTO = 2 };
enum { DDP_BACKEND_AUTO = 0, DDP_BACKEND_SHM = 1, DDP_BACKEND_TCP = 2, DDP_BACKEND_NCCL = 3 };

typedef struct ddp_group_options {
  int64_t timeout_ms; /* to form the group, and of every operation; 0: 10 minutes */
  int device;
  int backend;
  /* For a group over a store: the rank in the launcher's job of each of its ranks. With it the
   * launcher gets reports of ranks that leave. Null: not known. */
  const int* job_ranks;
} ddp_group_options;

/* Makes the group of this process's job from the launcher's environment: ProcessGroup::FromEnv().
 * Without a launcher it is a group of one. This call and the other two are collective. Errors:
 * DDP_INVALID_ARGUMENT naming the variable. DDP_DEADLINE_EXCEEDED naming the ranks that did not
 * come. DDP_FAILED_PRECONDITION for a device or a backend that cannot work here. */
ddp_code ddp_group_from_env(const ddp_group_options* options, ddp_group** group);

/* Makes a group over the store at an address, ddprun's or PyTorch's TCPStore: ProcessGroup::New().
 * `prefix` and "/" go before all keys, as with PyTorch's PrefixStore. With null nothing does. The
 * timeout also bounds the connection. Errors: as above. DDP_DEADLINE_EXCEEDED naming the address,
 * if nothing answers there. DDP_INVALID_ARGUMENT for a rank outside the world size, or if ranks
 * have other sizes. */
ddp_code ddp_group_from_tcp_store(const char* host, uint16_t port, const char* prefix, int rank,
                                  int world_size, const ddp_group_options* options,
                                  ddp_group** group);

/* The answer of a function of a ddp_store. Valid during its call. */
typedef struct ddp_answer ddp_answer;
/* Sets the value that the function returns, copied. Without it the value is empty. The last call
 * counts. */
void ddp_answer_value(ddp_answer* answer, const void* value, size_t size);
/* Says in words why the function fails, copied. Without it the error has only the name of its
 * code. */
void ddp_answer_error(ddp_answer* answer, const char* text);

/* A store of the program's own, such as any c10d store of PyTorch. All ranks see the same keys.
 * Once `set` has returned, all ranks see the value. Keys are texts, values are bytes. The functions
 * return a ddp_code and end within a time of their own. An exception is DDP_INTERNAL. */
typedef struct ddp_store {
  void* context; /* the first argument of the functions */
  ddp_code (*set)(void* context, const char* key, const void* value, size_t size,
                  ddp_answer* answer);
  /* Waits for the key, at most `timeout_ms`, and answers its value. DDP_DEADLINE_EXCEEDED if it
   * does not come. */
  ddp_code (*get)(void* context, const char* key, int64_t timeout_ms, ddp_answer* answer);
  /* Whether all of the keys exist. It does not wait for them. */
  ddp_code (*check)(void* context, const char* const* keys, size_t count, int* are_there,
                    ddp_answer* answer);
  /* Sets the value to `desired` if the key is absent, and answers the value that the store then
   * has. It does so in one step, whichever rank comes first. Null: the store has no such function.
   * Each rank then reports its own first failure. */
  ddp_code (*set_if_absent)(void* context, const char* key, const void* desired, size_t size,
                            ddp_answer* answer);
  /* The address at which other hosts reach this process. Null: they cannot reach it, and no group
   * with ranks on several hosts is formed. */
  const char* address;
  /* 0: only the thread that makes a group calls the functions, while it does. Otherwise threads of
   * the library may also call them later, some at the same time. Between hosts and on GPUs the
   * ranks then exchange there what went wrong. Without that, errors name fewer ranks. */
  int is_for_any_thread;
} ddp_store;

/* Makes a group over a store of functions: ProcessGroup::New(). The struct is copied. The context
 * and the functions must live until the group and its sub-groups are freed. Errors: as above, and
 * those of the functions. */
ddp_code ddp_group_from_store(const ddp_store* store, int rank, int world_size,
                              const ddp_group_options* options, ddp_group** group);

/* Makes a group of `count` of the ranks, null on the others: ProcessGroup::Subgroup(). Collective
 * over all ranks of `group`, with the same list. It may be freed before or after `group`. Errors:
 * DDP_INVALID_ARGUMENT for an empty list, a rank that is outside the group or named twice, and for
 * lists that differ. The communicator's errors. */
ddp_code ddp_group_subgroup(ddp_group* group, const int* ranks, size_t count, ddp_group** subgroup);

/* -1 for null. The GPU is CUDA's ordinal, -1 on the CPU. */
int ddp_group_rank(const ddp_group* group);
int ddp_group_world_size(const ddp_group* group);
int ddp_group_local_rank(const ddp_group* group);
int ddp_group_local_world_size(const ddp_group* group);
int ddp_group_restart_count(const ddp_group* group);
int ddp_group_gpu(const ddp_group* group);
/* Device and backend, and why: "shm: all ranks share a host". Valid as long as the group. "" for
 * null. */
const char* ddp_group_description(const ddp_group* group);

/* The group's collectives: for memory of its device, and for host memory. On the CPU both are the
 * same. Valid as long as the group. Do not free them. Null for null. */
ddp_communicator* ddp_group_communicator(ddp_group* group);
ddp_communicator* ddp_group_host_communicator(ddp_group* group);

/* Whether the launcher has asked the job to save and end after its step (--preempt_signal). All
 * ranks ask at the same steps and get the same answer. Once 1 it stays 1. Errors: the
 * communicator's. */
ddp_code ddp_group_should_stop(ddp_group* group, int* should_stop);

/* Waits until every rank calls it, then closes all connections in order. Call it last. Errors: the
 * communicator's. */
ddp_code ddp_group_shutdown(ddp_group* group);
/* Frees the group. Without a ddp_group_shutdown() before, the other ranks find that this rank has
 * left. */
void ddp_group_free(ddp_group* group);

/* ---- Communicators (ddp/communicator.h) ---- */

/* "local", "shm", "tcp", "nccl"; "" for null. */
const char* ddp_communicator_backend(const ddp_communicator* communicator);
/* Bounds every operation called from now on. DDP_INVALID_ARGUMENT unless it is above 0. */
ddp_code ddp_communicator_set_timeout(ddp_communicator* communicator, int64_t timeout_ms);
/* Ends everything under way with DDP_ABORTED, on all ranks that can be reached. Any thread, any
 * number of times. `reason` may be null. */
ddp_code ddp_communicator_abort(ddp_communicator* communicator, const char* reason);
/* The first error of any operation or peer. DDP_OK before any error. Any thread. */
ddp_code ddp_communicator_error(const ddp_communicator* communicator);
/* Writes the last operations of this rank as JSON into a new file. `path` is valid until this
 * thread's next call. Any thread. */
ddp_code ddp_communicator_dump_operations(ddp_communicator* communicator, const char** path);

/* ---- Collectives (ddp/communicator.h) ----
 *
 * Each returns at once, with a handle that says how it ended. A refused call has a handle, too: the
 * handle is null only for lack of memory. To wait for null is DDP_INVALID_ARGUMENT. Every rank
 * calls the same operations with the same counts and types in the same order, from one thread at a
 * time. Counts are elements. Memory must stay valid until the operation is done, even if its handle
 * was freed before. `stream` is the one that produced the data.
 *
 * An operation ends with one of these errors:
 * - DDP_INVALID_ARGUMENT: it was refused on this rank, without the others' knowledge, or it does
 *   not match the others'.
 * - DDP_DEADLINE_EXCEEDED or DDP_UNAVAILABLE, naming the ranks that did not arrive or are gone.
 * - DDP_ABORTED.
 *
 * After every error except a refusal, each later operation ends with the first error. */

/* Elements of a ddp_all_reduce_coalesced(). */
typedef struct ddp_piece {
  void* data;
  size_t count;
} ddp_piece;

/* Reduces the `data` of all ranks, in place. */
ddp_work* ddp_all_reduce(ddp_communicator* communicator, void* data, size_t count, ddp_dtype dtype,
                         ddp_reduce_op op, ddp_stream stream);
/* Several pieces of one type, in place, as one operation. The list is copied. */
ddp_work* ddp_all_reduce_coalesced(ddp_communicator* communicator, const ddp_piece* pieces,
                                   size_t piece_count, ddp_dtype dtype, ddp_reduce_op op,
                                   ddp_stream stream);
/* Copies the `data` of `root` to all ranks. */
ddp_work* ddp_broadcast(ddp_communicator* communicator, void* data, size_t count, ddp_dtype dtype,
                        int root, ddp_stream stream);
/* Gives all ranks the `input` of all ranks. `output` holds world_size * count elements, rank r's at
 * r * count. */
ddp_work* ddp_all_gather(ddp_communicator* communicator, const void* input, void* output,
                         size_t count, ddp_dtype dtype, ddp_stream stream);
/* Gives each rank its part of the result in `output`. `input` holds world_size * count elements. */
ddp_work* ddp_reduce_scatter(ddp_communicator* communicator, const void* input, void* output,
                             size_t count, ddp_dtype dtype, ddp_reduce_op op, ddp_stream stream);
/* Gives `root` what an all-reduce would, in its `output`. The others' may be null. */
ddp_work* ddp_reduce(ddp_communicator* communicator, const void* input, void* output, size_t count,
                     ddp_dtype dtype, ddp_reduce_op op, int root, ddp_stream stream);
/* As ddp_all_gather(), for `root` alone. The others' `output` may be null. */
ddp_work* ddp_gather(ddp_communicator* communicator, const void* input, void* output, size_t count,
                     ddp_dtype dtype, int root, ddp_stream stream);
/* Gives rank r the elements at r * count of the `input` of `root`. The others' may be null. */
ddp_work* ddp_scatter(ddp_communicator* communicator, const void* input, void* output, size_t count,
                      ddp_dtype dtype, int root, ddp_stream stream);
/* Exchanges equal parts between all ranks. Both hold world_size * count elements. Those at r *
 * count go to rank r, and come from it. */
ddp_work* ddp_all_to_all(ddp_communicator* communicator, const void* input, void* output,
                         size_t count, ddp_dtype dtype, ddp_stream stream);
/* Collective: a rank receives what another one sends to it. Destination and source are ranks, and
 * -1 means no rank. */
ddp_work* ddp_send_receive(ddp_communicator* communicator, const void* input, int destination,
                           void* output, int source, size_t count, ddp_dtype dtype,
                           ddp_stream stream);
/* Done when every rank has called it. */
ddp_work* ddp_barrier(ddp_communicator* communicator);

/* A message between two ranks, separate from the collectives: Communicator::Send() and Receive().
 * The source may be -1, for any rank. Any thread. */
ddp_work* ddp_send(ddp_communicator* communicator, const void* data, size_t count, ddp_dtype dtype,
                   int destination, uint64_t tag);
ddp_work* ddp_receive(ddp_communicator* communicator, void* data, size_t count, ddp_dtype dtype,
                      int source, uint64_t tag);
/* The rank that sent the message of a receive. -1 before it has come, for other works and for
 * null. */
int ddp_work_source(const ddp_work* work);

/* Waits until the operation has ended, at most until its timeout, and frees the handle. */
ddp_code ddp_complete(ddp_work* work);
/* The same, but keeps the handle. */
ddp_code ddp_work_wait(ddp_work* work);
/* Waits at most `patience_ms`, and returns ddp_work_is_done(). It is for a caller that has signals
 * to look after. */
int ddp_work_wait_for(const ddp_work* work, int64_t patience_ms);
/* Why it has not ended, as Work::missing(): "ranks 1 and 3 did not arrive". "" if that is not
 * known, after the end, and for null. Valid until this thread's next call of this function. */
const char* ddp_work_missing(const ddp_work* work);
/* Makes `stream` wait for the operation instead of the host. On the CPU it is ddp_work_wait(). */
ddp_code ddp_work_wait_on(ddp_work* work, ddp_stream stream);
/* 1 if it has ended, with or without an error. 0 before. -1 for null. */
int ddp_work_is_done(const ddp_work* work);
/* Frees the handle. An operation under way continues. */
void ddp_work_free(ddp_work* work);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "ddp/c_model.h" /* models, ZeRO, checkpoints */

#endif /* DDPRUN_WORKER_RUNTIME_DDP_C_H_ */
