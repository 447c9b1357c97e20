/* Asks, from any language, whether the launcher wants the job to save and end: the C face of
 * ProcessGroup::ShouldStop(). libddp.so and libddp_stop.so export these functions. Both libraries
 * need only glibc and libgcc_s. In Python, call ddprun.should_stop(). The functions neither use nor
 * disturb the program's own collectives (those of PyTorch, NCCL, MPI).
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

/* Returns 1 if the agent of this node has asked, 0 otherwise. It asks no other rank, so other ranks
 * may get another answer. Use it for what concerns this process alone. Any thread. */
int ddp_stop_requested(void);

/* Returns 1 if the agent of any rank's node has asked, 0 if none has, -1 after an error.
 * Collective: every rank of the job calls it at the same steps, and all get the same answer. The
 * first call forms a group of all ranks on the CPU from RANK, WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT. A store must run at that address, as the launcher's does. Without RANK this process
 * is the only rank. The call waits at most 30 minutes for the others. After a 1 every call returns
 * 1, and after a -1 every call returns -1, without waiting. Calls wait for each other, so use one
 * thread. */
int ddp_should_stop(void);

/* Says in a sentence why the last call of ddp_should_stop() returned -1, or "" if it did not. The
 * text is valid until the next call of this thread. */
const char* ddp_last_error(void);

/* Leaves the group without waiting for other ranks. It waits only for a call that this process has
 * under way. The end of the process leaves the group, too. Afterwards ddp_should_stop() forms a new
 * group, once all ranks have left this one. */
void ddp_should_stop_close(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DDPRUN_WORKER_RUNTIME_DDP_STOP_H_ */
