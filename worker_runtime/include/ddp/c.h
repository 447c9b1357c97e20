/* The library for C, for C++17 and for programs that nvcc compiles: groups of ranks, collectives,
 * DistributedDataParallel and checkpoints. It is in libddp.so, which needs glibc and libgcc_s alone
 * and shows nothing but these functions.
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
 * What a function does, which errors it has and which thread may call it is what the C++ header
 * says that is named above it; here stands what differs. For all of them:
 * - A ddp_code other than DDP_OK is an error, and ddp_error_text() says more. A null handle, a null
 *   pointer where something is needed and a value that an enum does not have are
 *   DDP_INVALID_ARGUMENT; they do no harm, and no other rank hears of them.
 * - Results are written through the last pointers of a call. After an error a handle there is null,
 *   and the rest is untouched.
 * - Options that are null or all zero are the defaults. Flags are 0 or not.
 * - Texts and lists are copied before a call returns. Memory that collectives, parameters and
 *   gradients live in is used where it is.
 * - To free null does nothing. REQUIRES: no handle is used after its free, and what was made of a
 *   group (works, models, checkpoints) is freed before it.
 * - No C++ exception comes out: one of the library is DDP_INTERNAL, want of memory
 *   DDP_RESOURCE_EXHAUSTED.
 * - Each communicator, model, checkpoint and work is used by one thread at a time, not always the
 *   same, unless a function says "any thread". What uses a model uses its communicator. A function
 *   of the program returns to its caller: no longjmp() out of it.
 * - fork(): REQUIRES: the child uses nothing of it and ends by exec or _exit(). Signals: none is
 *   caught, and a peer that is gone raises no SIGPIPE.
 *
 * Structs may grow, at their end, when the second number of ddp_version() does, and then the
 * functions bear another version, as DDP_0.1: a program that was compiled with an older header does
 * not start, and the loader says why. What is opened by dlopen() asks ddp_version(). Fill structs
 * by their members' names or set them to 0 first, since what is new is 0 by default. */
#ifndef DDPRUN_WORKER_RUNTIME_DDP_C_H_
#define DDPRUN_WORKER_RUNTIME_DDP_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ---- */

/* gRPC's codes, with its meanings. */
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
/* "INVALID_ARGUMENT"; "" for a number that is no code. */
const char* ddp_code_name(ddp_code code);
/* Why the last call of this thread that failed did: which ranks, what was attempted, the cause. ""
 * before the first. Valid until this thread's next call that fails. Never null. */
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

/* A CUstream (= cudaStream_t) on which data was produced, or is awaited; null on the CPU. */
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
  /* Of a group over a store: which rank of the launcher's job each of its ranks is, so that the
   * launcher hears of one that leaves. Null: not known. */
  const int* job_ranks;
} ddp_group_options;

/* ProcessGroup::FromEnv(): this process's place as a launcher has told it; without one a group of
 * one. Collective, as the other two. Errors: DDP_INVALID_ARGUMENT naming the variable;
 * DDP_DEADLINE_EXCEEDED naming the ranks that did not come; DDP_FAILED_PRECONDITION for a device or
 * a backend that cannot work here. */
ddp_code ddp_group_from_env(const ddp_group_options* options, ddp_group** group);

/* ProcessGroup::New() over the store at an address: ddprun's, or PyTorch's TCPStore. `prefix` and
 * "/" go before all keys, as with PyTorch's PrefixStore; null: nothing does. The timeout also
 * bounds the connection. Errors: as above; DDP_DEADLINE_EXCEEDED naming the address where nobody
 * answers; DDP_INVALID_ARGUMENT for a rank that is none, and where ranks have other sizes. */
ddp_code ddp_group_from_tcp_store(const char* host, uint16_t port, const char* prefix, int rank,
                                  int world_size, const ddp_group_options* options,
                                  ddp_group** group);

/* What a function of a ddp_store answers. Valid during its call. */
typedef struct ddp_answer ddp_answer;
/* The value that the function returns, copied; without it the empty one. The last call counts. */
void ddp_answer_value(ddp_answer* answer, const void* value, size_t size);
/* Why the function fails, in words, copied; without them the name of its code is all there is. */
void ddp_answer_error(ddp_answer* answer, const char* text);

/* A store of the program's own, such as any c10d store of PyTorch. All ranks see the same keys; a
 * value is there for all once `set` has returned. Keys are texts, values are bytes. The functions
 * return a ddp_code and end within a time of their own; an exception is DDP_INTERNAL. */
typedef struct ddp_store {
  void* context; /* what the functions get as their first argument */
  ddp_code (*set)(void* context, const char* key, const void* value, size_t size,
                  ddp_answer* answer);
  /* Waits for the key, at most so long, and answers its value. DDP_DEADLINE_EXCEEDED when it does
   * not come. */
  ddp_code (*get)(void* context, const char* key, int64_t timeout_ms, ddp_answer* answer);
  /* Whether all of the keys are there. Does not wait for them. */
  ddp_code (*check)(void* context, const char* const* keys, size_t count, int* are_there,
                    ddp_answer* answer);
  /* Sets the value to `desired` where the key is absent, and answers what the store holds then: in
   * one step, whichever rank comes first. Null: the store has none. The first word on a failure is
   * then each rank's own. */
  ddp_code (*set_if_absent)(void* context, const char* key, const void* desired, size_t size,
                            ddp_answer* answer);
  /* The address at which other hosts reach this process. Null: none does, and a group whose ranks
   * have several hosts is not formed. */
  const char* address;
  /* 0: the functions are called by the thread that makes a group, while it does. Otherwise they may
   * also be called later, by threads of the library, some at the same time: between hosts and on
   * GPUs the ranks tell each other there what went wrong, and without it fewer are named. */
  int is_for_any_thread;
} ddp_store;

/* ProcessGroup::New() over a store of functions. The struct is copied; the context and the
 * functions live until the group and its sub-groups are freed. Errors: as above, and those of the
 * functions. */
ddp_code ddp_group_from_store(const ddp_store* store, int rank, int world_size,
                              const ddp_group_options* options, ddp_group** group);

/* ProcessGroup::Subgroup(): a group of `count` of the ranks, null on the others. Collective over
 * all ranks of `group`, with the same list. It may be freed before or after it. Errors:
 * DDP_INVALID_ARGUMENT for an empty list, a rank that is none or is named twice, and for lists that
 * differ; the communicator's. */
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

/* The group's collectives: for memory of its device, and for host memory. They are one on the CPU.
 * Valid as long as the group, and not freed. Null for null. */
ddp_communicator* ddp_group_communicator(ddp_group* group);
ddp_communicator* ddp_group_host_communicator(ddp_group* group);

/* Whether the launcher has asked the job to save and end after its step (--preempt_signal). All
 * ranks ask at the same steps and get the same answer; once 1 it stays 1. Errors: the
 * communicator's. */
ddp_code ddp_group_should_stop(ddp_group* group, int* should_stop);

/* Waits until every rank is here, then closes all connections in order. Call it last. Errors: the
 * communicator's. */
ddp_code ddp_group_shutdown(ddp_group* group);
/* Without ddp_group_shutdown() before, the other ranks find that this one has left. */
void ddp_group_free(ddp_group* group);

/* ---- Communicators (ddp/communicator.h) ---- */

/* "local", "shm", "tcp", "nccl"; "" for null. */
const char* ddp_communicator_backend(const ddp_communicator* communicator);
/* Bounds every operation called from now on. DDP_INVALID_ARGUMENT unless it is above 0. */
ddp_code ddp_communicator_set_timeout(ddp_communicator* communicator, int64_t timeout_ms);
/* Ends everything under way with DDP_ABORTED, on all ranks that can be reached. Any thread, any
 * number of times. `reason` may be null. */
ddp_code ddp_communicator_abort(ddp_communicator* communicator, const char* reason);
/* The first error, from whichever operation or peer; DDP_OK while there is none. Any thread. */
ddp_code ddp_communicator_error(const ddp_communicator* communicator);
/* Writes the last operations of this rank as JSON into a new file. `path` is valid until this
 * thread's next call. Any thread. */
ddp_code ddp_communicator_dump_operations(ddp_communicator* communicator, const char** path);

/* ---- Collectives (ddp/communicator.h) ----
 *
 * Each returns at once, with a handle that says how it ended. Calls that are refused have one, too,
 * so that it is null only for want of memory; to wait for null is DDP_INVALID_ARGUMENT. Every
 * rank calls the same operations with the same counts and types in the same order, from one thread
 * at a time. Counts are elements. Memory stays valid until the operation is done, also when its
 * handle was freed before. `stream` is where the data was produced.
 *
 * An operation ends with DDP_INVALID_ARGUMENT where it was refused on this rank, of which the
 * others know nothing, or does not match the others'; with DDP_DEADLINE_EXCEEDED or DDP_UNAVAILABLE
 * naming the ranks that did not arrive or are gone; with DDP_ABORTED. After all but a refusal every
 * later one ends with the first error. */

/* Elements of a ddp_all_reduce_coalesced(). */
typedef struct ddp_piece {
  void* data;
  size_t count;
} ddp_piece;

/* In place. */
ddp_work* ddp_all_reduce(ddp_communicator* communicator, void* data, size_t count, ddp_dtype dtype,
                         ddp_reduce_op op, ddp_stream stream);
/* Several pieces of one type, in place, as one operation. The list is copied. */
ddp_work* ddp_all_reduce_coalesced(ddp_communicator* communicator, const ddp_piece* pieces,
                                   size_t piece_count, ddp_dtype dtype, ddp_reduce_op op,
                                   ddp_stream stream);
/* `data` of `root` replaces everybody's. */
ddp_work* ddp_broadcast(ddp_communicator* communicator, void* data, size_t count, ddp_dtype dtype,
                        int root, ddp_stream stream);
/* `output` holds world_size * count elements, rank r's at r * count. */
ddp_work* ddp_all_gather(ddp_communicator* communicator, const void* input, void* output,
                         size_t count, ddp_dtype dtype, ddp_stream stream);
/* `input` holds world_size * count elements; `output` gets this rank's part of the result. */
ddp_work* ddp_reduce_scatter(ddp_communicator* communicator, const void* input, void* output,
                             size_t count, ddp_dtype dtype, ddp_reduce_op op, ddp_stream stream);
/* `output` of `root` gets what an all-reduce would; the others' may be null. */
ddp_work* ddp_reduce(ddp_communicator* communicator, const void* input, void* output, size_t count,
                     ddp_dtype dtype, ddp_reduce_op op, int root, ddp_stream stream);
/* As all_gather, for `root` alone; the others' `output` may be null. */
ddp_work* ddp_gather(ddp_communicator* communicator, const void* input, void* output, size_t count,
                     ddp_dtype dtype, int root, ddp_stream stream);
/* Rank r gets the elements at r * count of the `input` of `root`; the others' may be null. */
ddp_work* ddp_scatter(ddp_communicator* communicator, const void* input, void* output, size_t count,
                      ddp_dtype dtype, int root, ddp_stream stream);
/* Of world_size * count elements in both, those at r * count go to rank r, and come from it. */
ddp_work* ddp_all_to_all(ddp_communicator* communicator, const void* input, void* output,
                         size_t count, ddp_dtype dtype, ddp_stream stream);
/* Collective: what one sends is received there. Destination and source are ranks, -1 is nobody. */
ddp_work* ddp_send_receive(ddp_communicator* communicator, const void* input, int destination,
                           void* output, int source, size_t count, ddp_dtype dtype,
                           ddp_stream stream);
/* Done when every rank has called it. */
ddp_work* ddp_barrier(ddp_communicator* communicator);

/* A message between two ranks, apart from the collectives: Communicator::Send() and Receive(). The
 * source may be -1, for any rank. Calls may come from any thread. */
ddp_work* ddp_send(ddp_communicator* communicator, const void* data, size_t count, ddp_dtype dtype,
                   int destination, uint64_t tag);
ddp_work* ddp_receive(ddp_communicator* communicator, void* data, size_t count, ddp_dtype dtype,
                      int source, uint64_t tag);
/* From which rank a receive has its message; -1 before it has, for other works and for null. */
int ddp_work_source(const ddp_work* work);

/* Waits until the operation has ended, at most until its timeout, and frees the handle. */
ddp_code ddp_complete(ddp_work* work);
/* The same, and keeps the handle. */
ddp_code ddp_work_wait(ddp_work* work);
/* Waits at most so long, and returns ddp_work_is_done(): for a caller that has signals to look
 * after. */
int ddp_work_wait_for(const ddp_work* work, int64_t patience_ms);
/* Why it has not ended, as Work::missing() says: "ranks 1 and 3 did not arrive"; "" where that is
 * not known, where it has ended, and for null. Until this thread's next call of this. */
const char* ddp_work_missing(const ddp_work* work);
/* Makes `stream` wait for the operation instead of the host; on the CPU ddp_work_wait(). */
ddp_code ddp_work_wait_on(ddp_work* work, ddp_stream stream);
/* 1 when it has ended, however; 0 before; -1 for null. */
int ddp_work_is_done(const ddp_work* work);
/* An operation under way goes on. */
void ddp_work_free(ddp_work* work);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "ddp/c_model.h" /* models, ZeRO, checkpoints */

#endif /* DDPRUN_WORKER_RUNTIME_DDP_C_H_ */
