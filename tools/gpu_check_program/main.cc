// gpu_check run: checks ddprun on this machine's GPUs. gpu_check NAME ...: what its rows start.
#include <cstdio>
#include <map>

#include "tools/gpu_check_program/rank_commands.h"
#include "tools/gpu_check_program/run_check.h"

int main(int argc, char** argv) {
  using namespace ddprun::gpu_check;
  const std::map<std::string, int (*)(const Arguments&)> commands = {
      {"run", &RunCheck},       {"machine", &Machine},       {"sums", &Sums},
      {"overlap", &Overlap},    {"killed", &Killed},         {"all_reduce", &AllReduce},
      {"step_time", &StepTime}, {"step_graph", &StepInGraph}};
  const auto found = commands.find(argc > 1 ? argv[1] : "");
  if (found != commands.end()) return found->second(Arguments(argv + 2, argv + argc));
  std::fprintf(stderr, "gpu_check: unknown command; use the script \"run\" beside bin/\n");
  return 2;
}
