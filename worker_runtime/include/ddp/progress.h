/* Telling the launcher how far the training is, from any language: in libddp.a and, for Python's
 * ctypes, in libddp_stop.so. Who wants to know is the launcher's business: ddprun tells Kubeflow
 * Trainer, where it runs under it.
 *
 *   stop = ctypes.CDLL("libddp_stop.so")
 *   for step, batch in enumerate(batches):
 *       train(batch)
 *       stop.ddp_report_progress(ctypes.c_longlong(step + 1), ctypes.c_longlong(len(batches)))
 */
#ifndef DDPRUN_WORKER_RUNTIME_DDP_PROGRESS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_PROGRESS_H_

#ifdef __cplusplus
#include <cstdint>

extern "C" {
#endif

/* `steps_done` of `steps_in_all` are behind us, those before a restart among them. The last word
 * counts, and that of rank 0 alone; all ranks may call it. A store to shared memory: a few
 * nanoseconds, and nobody is waited for. Without a launcher that wants to know it does nothing, and
 * so it does where `steps_in_all` is not above 0. Any thread. */
void ddp_report_progress(long long steps_done, long long steps_in_all);

#ifdef __cplusplus
} /* extern "C" */

namespace ddp {

inline void ReportProgress(int64_t steps_done, int64_t steps_in_all) {
  ddp_report_progress(steps_done, steps_in_all);
}

}  // namespace ddp
#endif

#endif /* DDPRUN_WORKER_RUNTIME_DDP_PROGRESS_H_ */
