// A training that is stopped on its way and goes on in another run, and must come to the bits of
// one that nobody stopped.
#ifndef DDPRUN_TESTS_SLURM_TRAINING_H_
#define DDPRUN_TESTS_SLURM_TRAINING_H_

#include <memory>
#include <string>

#include "tests/examples/train/step_pipe.h"
#include "tests/slurm/lab.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::slurm {

// Of examples/train, on two nodes with a worker each: 300 steps of two images, a checkpoint after
// every 20. It waits near the step that was last waited for until it is let go.
class Training {
 public:
  Training();

  // A line of a batch script: "srun ddprun OPTIONS train ... --resume".
  std::string Line(const std::string& options) const;
  // docs/guides/slurm.md's script, whose job is queued again where the training was asked to stop.
  std::string Script() const;
  // The first line by an srun of our own: "srun SLURM... ddprun train ... --resume".
  std::unique_ptr<testing::Subprocess> Start(const Words& slurm) const;
  // Until so many steps have been made, all runs together.
  bool WaitForSteps(int count) { return steps_.WaitForSteps(count); }
  // Lets it go on by itself.
  void LetGo() { steps_.Widen(); }
  // Lets go a job that is queued again: it goes on from a checkpoint, to its good end.
  void CheckGoesOn(const Batch& batch);
  // After a job that is over: no process of it lives, and another job goes on from a checkpoint, to
  // the end of an undisturbed run. Then nothing is left.
  void CheckAnotherGoesOn();
  // All 300 steps were made, those that were made twice with the same loss, losses and parameters
  // have the bits of an undisturbed run, and nothing is left.
  void CheckIsAsUndisturbed();

 private:
  const testing::TempDir folder_;
  testing::StepPipe steps_;
};

}  // namespace ddprun::slurm

#endif  // DDPRUN_TESTS_SLURM_TRAINING_H_
