// The words for what a program says it does. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_PHASE_NAME_H_
#define DDPRUN_LAUNCHER_STATUS_PHASE_NAME_H_

#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

// "unknown", "start", "train", "evaluation", "checkpoint".
inline const char* PhaseName(ProgramPhase phase) {
  switch (phase) {
    case ProgramPhase::kUnknown:
      break;
    case ProgramPhase::kStart:
      return "start";
    case ProgramPhase::kTrain:
      return "train";
    case ProgramPhase::kEvaluation:
      return "evaluation";
    case ProgramPhase::kCheckpoint:
      return "checkpoint";
  }
  return "unknown";
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_PHASE_NAME_H_
