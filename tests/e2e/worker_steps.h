// How the workers under test are told what to do: by the steps in their arguments.
#ifndef DDPRUN_TESTS_E2E_WORKER_STEPS_H_
#define DDPRUN_TESTS_E2E_WORKER_STEPS_H_

#include <string>
#include <vector>

namespace ddprun::testing {

// "name:value", or "name".
struct WorkerStep {
  std::string name;
  std::string value;
};

// The variable's value; "": there is none.
std::string Env(const char* name);

// The arguments, in order, that are for this worker: "@2" behind one: only for that of RANK 2;
// "#1": only at restart count 1. {rank}, {restart}, {pid} and {agent} are replaced.
std::vector<WorkerStep> WorkerSteps(int argc, char** argv);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_E2E_WORKER_STEPS_H_
