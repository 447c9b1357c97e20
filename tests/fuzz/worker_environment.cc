// A worker's environment: variables, one a line.
#include <cstdint>
#include <map>
#include <string>

#include "tests/fuzz/promise.h"
#include "worker_runtime/env_contract.h"

namespace ddp::internal {

using ddprun::fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = ddprun::fuzz::TextOf(data, size);
  std::map<std::string, std::string> variables;
  const EnvLookup lookup = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  const auto worker = ParseWorkerEnv(lookup);
  if (!worker.ok()) {
    const std::string why(worker.status().message());
    Promise(ddprun::fuzz::IsPlain(why, false), "an error is one plain line", why);
    return 0;
  }
  if (!*worker) return 0;
  Promise(0 <= (*worker)->rank && (*worker)->rank < (*worker)->world_size,
          "a rank is of its world");
  // Of such a group PyTorch alone can be the store, and the launcher says so.
  if (!(*worker)->use_agent_store && (*worker)->world_size > 1) return 0;
  variables.clear();
  for (const auto& [name, value] : FormatWorkerEnv(**worker)) variables[name] = value;
  const auto again = ParseWorkerEnv(lookup);
  Promise(again.ok() && *again == *worker, "an environment is read as it was written",
          again.status().ToString());
  return 0;
}

}  // namespace ddp::internal
