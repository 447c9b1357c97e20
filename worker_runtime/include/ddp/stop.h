/* Asking, from any language, whether the launcher wants the job to save and end: the C face of
 * ProcessGroup::ShouldStop(), in libddp_stop.so, which needs glibc and libgcc_s alone. It knows
 * nothing of the program's own collectives (PyTorch's, NCCL's, MPI's) and disturbs none.
 *
 *   stop = ctypes.CDLL("libddp_stop.so")
 *   for batch in batches:
 *       train(batch)
 *       if stop.ddp_should_stop() == 1: save_checkpoint(); break
 */
#ifndef DDPRUN_WORKER_RUNTIME_DDP_STOP_H_
#define DDPRUN_WORKER_RUNTIME_DDP_STOP_H_

#ifdef __cplusplus
extern "C" {
#endif

/* 1 when the agent of this node has asked, 0 otherwise. Asks nobody else, so other ranks may get
 * another answer: for what concerns this process alone. Any thread. */
int ddp_stop_requested(void);

/* 1 when the agent of any rank's node has asked, 0 when none has, -1 after an error. Collective:
 * every rank of the job calls it at the same steps, and all get the same answer. The first call
 * forms a group of all ranks on the CPU from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, whose
 * store must be there: the launcher's is. Without RANK there is one rank. Waits at most 30 minutes
 * for the others. After 1 it is 1, after -1 it is -1, without waiting. Calls wait for each other,
 * so use one thread. */
int ddp_should_stop(void);

/* Why the last call of ddp_should_stop() was -1: a sentence; "" when it was not. Valid until the
 * next call of this thread. */
const char* ddp_last_error(void);

/* Leaves the group without waiting for other ranks, but for a call of this process; the end of the
 * process does it too. After it ddp_should_stop() forms a new one, where all ranks have left this
 * one. */
void ddp_should_stop_close(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DDPRUN_WORKER_RUNTIME_DDP_STOP_H_ */
