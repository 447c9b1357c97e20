#include "tools/gpu_check_program/check.h"

#include <algorithm>
#include <cstdlib>

namespace ddprun::gpu_check {

Outcome Check::Run(std::vector<std::string> argv, std::map<std::string, std::string> more) const {
  more.insert(env.begin(), env.end());
  return RunUntil({std::move(argv), std::move(more)}, deadline);
}

Outcome Check::RunRanks(int ranks, bool is_shared, std::vector<std::string> argv,
                        std::vector<std::string> options) const {
  std::vector<std::string> all = {Program("ddprun"), "--standalone",
                                  "--nproc-per-node=" + std::to_string(ranks)};
  all.insert(all.end(), options.begin(), options.end());
  std::map<std::string, std::string> more;
  if (is_shared) {
    all.push_back(Program("one_gpu_rank"));
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string list = visible == nullptr || *visible == '\0' ? "0" : visible;
    more["CUDA_VISIBLE_DEVICES"] = list.substr(0, list.find(','));
  }
  all.insert(all.end(), argv.begin(), argv.end());
  return Run(std::move(all), std::move(more));
}

Result FailedRun(const std::string& what, const Outcome& outcome) {
  Result result = Failed(what + ": " + outcome.Complaint());
  constexpr size_t kLogEnd = 6000;
  result.log = outcome.err.substr(outcome.err.size() - std::min(outcome.err.size(), kLogEnd));
  return result;
}

}  // namespace ddprun::gpu_check
