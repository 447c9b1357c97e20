#include <stdint.h>
#include <string.h>

#include "tests/worker_runtime/c_face_ranks.h"

enum { kMostRanks = 4, kEach = 70000 }; /* more than what goes the way of small operations */

static int64_t of_one[kEach];
static int64_t of_all[kMostRanks * kEach];
static int64_t to_all[kMostRanks * kEach];

static void Fill(int64_t* data, int64_t value) {
  for (size_t i = 0; i < kEach; ++i) data[i] = value + (int64_t)i;
}

static int Holds(const int64_t* data, int64_t value) {
  for (size_t i = 0; i < kEach; ++i) {
    if (data[i] != value + (int64_t)i) return 0;
  }
  return 1;
}

static int CheckReductions(ddp_communicator* ranks, int rank, int world_size) {
  const int last = world_size - 1;
  const int64_t sum = (int64_t)world_size * (world_size + 1) / 2;
  for (size_t i = 0; i < kEach; ++i) of_one[i] = rank + 1;
  EXPECT_C(ddp_complete(ddp_all_reduce(ranks, of_one, kEach, DDP_INT64, DDP_SUM, NULL)) == DDP_OK);
  EXPECT_C(of_one[0] == sum && of_one[kEach - 1] == sum);

  const float expected[] = {(float)sum, (float)sum / (float)world_size, (float)world_size, 1,
                            world_size == 1   ? 1
                            : world_size == 2 ? 2
                                              : 24};
  for (int op = DDP_SUM; op <= DDP_PRODUCT; ++op) {
    float value = (float)(rank + 1);
    EXPECT_C(ddp_complete(ddp_all_reduce(ranks, &value, 1, DDP_FLOAT32, op, NULL)) == DDP_OK);
    EXPECT_C(value == expected[op]);
  }

  int32_t first[] = {rank, 1, 2};
  int32_t second = -rank;
  const ddp_piece pieces[] = {{first, 3}, {NULL, 0}, {&second, 1}};
  EXPECT_C(ddp_complete(ddp_all_reduce_coalesced(ranks, pieces, 3, DDP_INT32, DDP_MAX, NULL)) ==
           DDP_OK);
  EXPECT_C(first[0] == last && first[1] == 1 && first[2] == 2 && second == 0);

  double input = rank + 0.5;
  double output = -1;
  EXPECT_C(ddp_complete(ddp_reduce(ranks, &input, rank == last ? &output : NULL, 1, DDP_FLOAT64,
                                   DDP_MIN, last, NULL)) == DDP_OK);
  EXPECT_C(input == rank + 0.5 && output == (rank == last ? 0.5 : -1));

  for (int other = 0; other < world_size; ++other) Fill(of_all + other * kEach, 10 * other);
  EXPECT_C(ddp_complete(ddp_reduce_scatter(ranks, of_all, of_one, kEach, DDP_INT64, DDP_AVERAGE,
                                           NULL)) == DDP_OK);
  EXPECT_C(Holds(of_one, 10 * rank));
  return 0;
}

static int CheckMoves(ddp_communicator* ranks, int rank, int world_size) {
  const int last = world_size - 1;
  Fill(of_one, rank);
  EXPECT_C(ddp_complete(ddp_broadcast(ranks, of_one, kEach, DDP_INT64, last, NULL)) == DDP_OK);
  EXPECT_C(Holds(of_one, last));

  Fill(of_one, 100 * rank);
  EXPECT_C(ddp_complete(ddp_all_gather(ranks, of_one, of_all, kEach, DDP_INT64, NULL)) == DDP_OK);
  for (int other = 0; other < world_size; ++other) {
    EXPECT_C(Holds(of_all + other * kEach, 100 * other));
  }

  memset(of_all, 0, sizeof of_all);
  EXPECT_C(ddp_complete(ddp_gather(ranks, of_one, rank == last ? of_all : NULL, kEach, DDP_INT64,
                                   last, NULL)) == DDP_OK);
  for (int other = 0; rank == last && other < world_size; ++other) {
    EXPECT_C(Holds(of_all + other * kEach, 100 * other));
  }

  EXPECT_C(ddp_complete(ddp_scatter(ranks, rank == last ? of_all : NULL, of_one, kEach, DDP_INT64,
                                    last, NULL)) == DDP_OK);
  EXPECT_C(Holds(of_one, 100 * rank));

  for (int other = 0; other < world_size; ++other) {
    Fill(to_all + other * kEach, 1000 * rank + other);
  }
  EXPECT_C(ddp_complete(ddp_all_to_all(ranks, to_all, of_all, kEach, DDP_INT64, NULL)) == DDP_OK);
  for (int other = 0; other < world_size; ++other) {
    EXPECT_C(Holds(of_all + other * kEach, 1000 * other + rank));
  }

  const int next = (rank + 1) % world_size, previous = (rank + last) % world_size;
  const uint8_t sent = (uint8_t)(7 + rank);
  uint8_t received = 0;
  EXPECT_C(ddp_complete(ddp_send_receive(ranks, &sent, next, &received, previous, 1, DDP_UINT8,
                                         NULL)) == DDP_OK);
  EXPECT_C(received == 7 + previous);
  EXPECT_C(ddp_complete(ddp_send_receive(ranks, NULL, -1, NULL, -1, 1, DDP_UINT8, NULL)) == DDP_OK);
  EXPECT_C(ddp_complete(ddp_barrier(ranks)) == DDP_OK);
  return 0;
}

/* Round the ring, from whichever rank it is. */
static int CheckMessages(ddp_communicator* ranks, int rank, int world_size) {
  if (world_size == 1) return 0;
  const int next = (rank + 1) % world_size, previous = (rank + world_size - 1) % world_size;
  int32_t received = -1;
  ddp_work* send = ddp_send(ranks, &rank, 1, DDP_INT32, next, 3);
  ddp_work* receive = ddp_receive(ranks, &received, 1, DDP_INT32, -1, 3);
  EXPECT_C(ddp_work_wait(receive) == DDP_OK && received == previous);
  EXPECT_C(ddp_work_source(receive) == previous && ddp_work_source(send) == -1);
  ddp_work_free(receive);
  EXPECT_C(ddp_complete(send) == DDP_OK);
  return 0;
}

/* Each rank has a bit of its own. */
static int CheckBits(ddp_communicator* ranks, int rank, int world_size) {
  const int own = 1 << rank, all = (1 << world_size) - 1;
  int8_t either = (int8_t)own, both = (int8_t)~own;
  EXPECT_C(ddp_complete(ddp_all_reduce(ranks, &either, 1, DDP_INT8, DDP_BIT_OR, NULL)) == DDP_OK);
  EXPECT_C(ddp_complete(ddp_all_reduce(ranks, &both, 1, DDP_INT8, DDP_BIT_AND, NULL)) == DDP_OK);
  EXPECT_C(either == all && both == (int8_t)~all);
  int64_t odd = own | 1 << 20;
  EXPECT_C(ddp_complete(ddp_all_reduce(ranks, &odd, 1, DDP_INT64, DDP_BIT_XOR, NULL)) == DDP_OK);
  EXPECT_C(odd == (all | (world_size % 2) << 20));
  int8_t parts[8], part = 0;
  EXPECT_C(world_size <= 8);
  for (int i = 0; i < world_size; ++i) parts[i] = (int8_t)(-i * 10);
  EXPECT_C(ddp_complete(ddp_reduce_scatter(ranks, parts, &part, 1, DDP_INT8, DDP_AVERAGE, NULL)) ==
           DDP_OK);
  EXPECT_C(part == -rank * 10);
  return 0;
}

int CheckCollectives(ddp_communicator* ranks, int rank, int world_size) {
  EXPECT_C(CheckReductions(ranks, rank, world_size) == 0);
  EXPECT_C(CheckMoves(ranks, rank, world_size) == 0);
  EXPECT_C(CheckMessages(ranks, rank, world_size) == 0);
  EXPECT_C(CheckBits(ranks, rank, world_size) == 0);
  /* bfloat16: 1 is 0x3f80, and 2 and 4 have one bit of their own. */
  uint16_t half = 0x3f80;
  const uint16_t sum = world_size == 1 ? 0x3f80 : world_size == 2 ? 0x4000 : 0x4080;
  EXPECT_C(ddp_complete(ddp_all_reduce(ranks, &half, 1, DDP_BFLOAT16, DDP_SUM, NULL)) == DDP_OK);
  EXPECT_C(half == sum);
  return 0;
}

int CheckWorks(ddp_communicator* ranks, int rank, int world_size) {
  const int64_t sum = (int64_t)world_size * (world_size - 1) / 2;
  int64_t waited = rank, polled = rank, dropped = rank, awaited = rank;
  ddp_work* wait = ddp_all_reduce(ranks, &waited, 1, DDP_INT64, DDP_SUM, NULL);
  EXPECT_C(wait != NULL);
  EXPECT_C(ddp_work_wait_for(wait, 60000) == 1 && ddp_work_wait_for(wait, -1) == 1);
  EXPECT_C(ddp_work_wait(wait) == DDP_OK && ddp_work_wait(wait) == DDP_OK);
  EXPECT_C(ddp_work_is_done(wait) == 1 && waited == sum);
  ddp_work_free(wait);

  ddp_work_free(ddp_all_reduce(ranks, &dropped, 1, DDP_INT64, DDP_SUM, NULL));
  ddp_work* poll = ddp_all_reduce(ranks, &polled, 1, DDP_INT64, DDP_SUM, NULL);
  ddp_work* stream = ddp_all_reduce(ranks, &awaited, 1, DDP_INT64, DDP_SUM, NULL);
  EXPECT_C(ddp_work_wait_on(stream, NULL) == DDP_OK && awaited == sum);
  /* Operations end in the order of their calls. */
  EXPECT_C(ddp_work_is_done(poll) == 1 && polled == sum && dropped == sum);
  ddp_work_free(poll);
  ddp_work_free(stream);
  return 0;
}

int CheckSubgroups(ddp_group* group) {
  const int rank = ddp_group_rank(group);
  const int even[] = {2, 0}, odd[] = {1, 3};
  ddp_group* halves[2] = {group, group}; /* null comes from the call */
  EXPECT_C(ddp_group_subgroup(group, even, 2, &halves[0]) == DDP_OK);
  EXPECT_C(ddp_group_subgroup(group, odd, 2, &halves[1]) == DDP_OK);
  EXPECT_C(halves[1 - rank % 2] == NULL);
  ddp_group* mine = halves[rank % 2];
  EXPECT_C(mine != NULL);
  EXPECT_C(ddp_group_world_size(mine) == 2 && ddp_group_rank(mine) == rank / 2);
  int32_t sum = rank;
  EXPECT_C(ddp_complete(ddp_all_reduce(ddp_group_communicator(mine), &sum, 1, DDP_INT32, DDP_SUM,
                                       NULL)) == DDP_OK);
  EXPECT_C(sum == (rank % 2 == 0 ? 2 : 4));
  EXPECT_C(ddp_group_shutdown(mine) == DDP_OK);
  ddp_group_free(mine);

  const int twice[] = {0, 0}, none[] = {4};
  mine = group;
  EXPECT_C(ddp_group_subgroup(group, twice, 2, &mine) == DDP_INVALID_ARGUMENT && mine == NULL);
  EXPECT_C(strstr(ddp_error_text(), "rank 0 is named twice") != NULL);
  EXPECT_C(ddp_group_subgroup(group, none, 1, &mine) == DDP_INVALID_ARGUMENT);
  EXPECT_C(strstr(ddp_error_text(), "there is no rank 4") != NULL);
  EXPECT_C(ddp_group_subgroup(group, NULL, 1, &mine) == DDP_INVALID_ARGUMENT);
  EXPECT_C(ddp_group_subgroup(group, NULL, 0, &mine) == DDP_INVALID_ARGUMENT);
  return 0;
}
