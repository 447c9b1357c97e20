// Views of jobs for the tests of the metrics.
#ifndef DDPRUN_TESTS_LAUNCHER_METRICS_VIEWS_H_
#define DDPRUN_TESTS_LAUNCHER_METRICS_VIEWS_H_

#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

// A job of which everything is known: two nodes of two ranks and a GPU each; the ids are "n0",
// "n1".
JobView RichView();

// The same job a while later: counters and steps have gone on by `seconds`.
JobView RichViewAfter(double seconds);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_METRICS_VIEWS_H_
