/* Reports to the launcher how far the training is, from any language. libddp.so, libddp.a and
 * libddp_stop.so have these functions. The launcher decides what it does with the reports. ddprun
 * shows steps and phases. Under Kubeflow Trainer it passes the progress on to that. In Python, call
 * ddprun.report_step(), ddprun.report_progress() and ddprun.phase().
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

/* Reports that `steps_done` of `steps_in_all` steps are done, those before a restart included. The
 * last call counts, and only rank 0's. All ranks may call it. It stores to shared memory: that
 * takes a few nanoseconds and waits for nothing. It does nothing if the launcher does not ask for
 * progress, or if `steps_in_all` is not above 0. Any thread. */
void ddp_report_progress(long long steps_done, long long steps_in_all);

/* Reports that optimizer step `step` is done, in which this rank took `samples` samples. A number
 * below 0 counts as no samples. All ranks call it. It stores to shared memory: that takes less than
 * 100 ns and waits for nothing. It does nothing if the launcher does not ask for steps, or in a
 * process that was forked after the first call. One thread. In one program use either this function
 * or that of another language. */
void ddp_report_step(long long step, long long samples);

/* Reports what the program does from now on. Other numbers are ignored. The first step begins
 * DDP_PHASE_TRAIN without a call. The time of a step contains neither evaluation nor checkpoints.
 * Call it from the thread that reports the steps. */
enum ddp_phase {
  DDP_PHASE_START = 1,
  DDP_PHASE_TRAIN = 2,
  DDP_PHASE_EVALUATION = 3,
  DDP_PHASE_CHECKPOINT = 4
};
void ddp_report_phase(int phase);

#ifdef __cplusplus
} /* extern "C" */

namespace ddp {

enum class Phase {
  kStart = DDP_PHASE_START,
  kTrain = DDP_PHASE_TRAIN,
  kEvaluation = DDP_PHASE_EVALUATION,
  kCheckpoint = DDP_PHASE_CHECKPOINT,
};

inline void ReportProgress(int64_t steps_done, int64_t steps_in_all) {
  ddp_report_progress(steps_done, steps_in_all);
}

inline void ReportStep(int64_t step, int64_t samples = 0) { ddp_report_step(step, samples); }

inline void ReportPhase(Phase phase) { ddp_report_phase(static_cast<int>(phase)); }

}  // namespace ddp
#endif

#endif /* DDPRUN_WORKER_RUNTIME_DDP_PROGRESS_H_ */
