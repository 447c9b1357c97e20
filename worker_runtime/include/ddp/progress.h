/* Telling the launcher how far the training is, from any language: in libddp.a and, for Python's
 * ctypes, in libddp_stop.so. Who wants to know is the launcher's business: ddprun shows steps and
 * phases, and tells Kubeflow Trainer of the progress, where it runs under it. A program in Python
 * that has the package ddprun takes its report_step() and phase() and needs no library.
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

/* Optimizer step `step` is done, in which this rank took `samples` samples; below 0 they count as
 * none. All ranks call it. Stores to shared memory: less than 100 ns, and nobody is waited for.
 * Without a launcher that wants to know it does nothing, and so it does in a process that was
 * forked after the first call. One thread, and either this or another language's way to say it. */
void ddp_report_step(long long step, long long samples);

/* What the program does from now on; other numbers say nothing. The first step begins
 * DDP_PHASE_TRAIN by itself. Evaluation and checkpoints are no part of a step's time. One thread,
 * that of the steps. */
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
