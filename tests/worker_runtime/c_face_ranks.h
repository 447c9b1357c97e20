/* What one rank of a test of ddp/c.h does, in C. Each function returns 0, or 1 after it has said on
 * stderr what is not so. */
#ifndef DDPRUN_TESTS_WORKER_RUNTIME_C_FACE_RANKS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_C_FACE_RANKS_H_

#include <stddef.h>
#include <stdio.h>

#include "ddp/c.h"

/* Unless it is so, says it, with the last error, and returns 1. */
#define EXPECT_C(claim)                                                                          \
  do {                                                                                           \
    if (!(claim)) {                                                                              \
      fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #claim, ddp_error_text()); \
      return 1;                                                                                  \
    }                                                                                            \
  } while (0)

#ifdef __cplusplus
extern "C" {
#endif

/* Every collective, with results that are known. */
int CheckCollectives(ddp_communicator* ranks, int rank, int world_size);
/* Handles: polled, waited for on a stream, dropped while the operation is under way. */
int CheckWorks(ddp_communicator* ranks, int rank, int world_size);
/* REQUIRES: 4 ranks. Groups of the even and the odd ones. */
int CheckSubgroups(ddp_group* group);
/* Null handles, numbers that are no enum's, ranks that are none; the group goes on. */
int CheckRefusals(ddp_group* group);

/* A model of kCount parameters in all, trained for some steps with gradients that differ between
 * the ranks: the parameters then, and the norms that the gradients had. */
enum { kTensors = 3, kCount = 1307, kSteps = 4 };
typedef struct Trained {
  float parameters[kCount];
  double norms[kSteps];
} Trained;
size_t CountOf(int tensor);
/* Before rank 0's replace it; of pass `pass` of `step`. */
float InitialValue(int rank, size_t i);
float GradientValue(int rank, int step, int pass, size_t i);

/* With two passes a step, of which the first is local. `has_own_gradients`: in this code's
 * memory. */
int Train(ddp_communicator* ranks, int rank, int has_own_gradients, Trained* trained);
/* Saves on rank 0 and loads on all, first where there is nothing. */
int CheckCheckpoint(ddp_communicator* ranks, int rank, const char* directory);

/* Each rank has batches of its own number in a Join, and a buffer. */
typedef struct Uneven {
  float parameters[kCount];
  double buffer[2];
} Uneven;
static inline int BatchesOf(int rank) { return 2 + 3 * rank % 4; }
int TrainUnevenly(ddp_communicator* ranks, int rank, int is_over_active, Uneven* trained);
/* Rank 0 has a NaN and an infinity. */
int CheckNonFinite(ddp_communicator* ranks, int rank);

/* With a hook that sums copies of the buckets and copies the averages back. */
int TrainWithHook(ddp_communicator* ranks, int rank, int world_size, int has_hook,
                  float* parameters);
int CheckContinuations(ddp_communicator* ranks);
/* The hook has no work, or what is behind it fails. */
int FailInHook(ddp_communicator* ranks, int rank, int is_behind);

/* SGD with momentum, sharded: the parameters, and the momenta from all ranks. */
typedef struct Momenta {
  float parameters[kCount];
  float momenta[kCount];
} Momenta;
int TrainSharded(ddp_communicator* ranks, int rank, int root, Momenta* trained);
int FailInUpdate(ddp_communicator* ranks, int rank);
/* What c_face_models.c uses, with nulls. */
int CheckNullsOfModels(ddp_group* group);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DDPRUN_TESTS_WORKER_RUNTIME_C_FACE_RANKS_H_ */
