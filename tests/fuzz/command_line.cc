// Variables, one a line, up to an empty line; then the words of the command line, one a line.
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "launcher/cli/cli.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {
namespace {

using fuzz::Promise;

// What the agent and the rendezvous require of a job.
void Look(const LaunchConfig& job) {
  Promise(1 <= job.nodes.min && job.nodes.min <= job.nodes.max, "a job has a range of nodes");
  Promise(job.workers_per_node >= 1, "a node has a worker");
  Promise(job.max_restarts >= 0, "restarts are counted from 0");
  Promise(!job.node_rank || *job.node_rank >= 0, "a node's rank is none below 0");
  Promise(job.rendezvous != RendezvousKind::kStatic || job.node_rank.has_value(),
          "a static job's node has a rank");
  Promise(job.rendezvous == RendezvousKind::kStandalone || job.endpoint.port != 0,
          "a job of several nodes has an endpoint's port");
  Promise(job.rendezvous_options.join_timeout > Duration::zero(), "a join ends");
  for (const std::string& warning : job.warnings) {
    Promise(fuzz::IsPlain(warning, false), "a warning is one plain line", warning);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = fuzz::TextOf(data, size);
  Environment environment;
  environment.machine = {.cpu_count = 4, .is_interactive = false, .fresh_run_id = "fresh"};
  std::vector<std::string> words = {"ddprun"};
  bool is_variable = true;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    // Neither holds a NUL.
    const std::string word(line.substr(0, line.find('\0')));
    if (is_variable && word.empty()) {
      is_variable = false;
    } else {
      (is_variable ? environment.variables : words).push_back(word);
    }
  }
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto result = ParseCommandLine(static_cast<int>(argv.size()), argv.data(), environment);
  if (!result.ok()) {
    const std::string why(result.status().message());
    Promise(absl::IsInvalidArgument(result.status()), "an error is the user's", why);
    Promise(fuzz::IsPlain(why, false), "an error is one plain line", why);
  } else if (const auto* job = std::get_if<LaunchConfig>(&*result)) {
    Look(*job);
  } else if (const auto* print = std::get_if<PrintText>(&*result)) {
    Promise(!print->text.empty(), "what is to be printed is something");
  }
  return 0;
}

}  // namespace ddprun::launcher
