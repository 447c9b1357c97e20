#include "tests/e2e/worker_steps.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace ddprun::testing {
namespace {

void Replace(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what)) {
    text.replace(at, what.size(), with);
  }
}

// Cuts "<mark><number>" off the end of `step`. Whether the step applies: there is no such mark, or
// the number is `value`.
bool Applies(std::string& step, char mark, const std::string& value) {
  const size_t at = step.rfind(mark);
  if (at == std::string::npos || at + 1 == step.size()) return true;
  const std::string wanted = step.substr(at + 1);
  if (wanted.find_first_not_of("0123456789") != std::string::npos) return true;
  step.resize(at);
  return wanted == value;
}

}  // namespace

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<WorkerStep> WorkerSteps(int argc, char** argv) {
  std::vector<WorkerStep> steps;
  for (int i = 1; i < argc; ++i) {
    std::string step = argv[i];
    // Either order of the two marks.
    bool applies = true;
    for (int k = 0; k < 2; ++k) {
      applies = Applies(step, '@', Env("RANK")) && applies;
      applies = Applies(step, '#', Env("TORCHELASTIC_RESTART_COUNT")) && applies;
    }
    if (!applies) continue;
    Replace(step, "{rank}", Env("RANK"));
    Replace(step, "{restart}", Env("TORCHELASTIC_RESTART_COUNT"));
    Replace(step, "{pid}", std::to_string(getpid()));
    Replace(step, "{agent}", std::to_string(getppid()));
    const size_t colon = std::min(step.find(':'), step.size());
    steps.push_back({step.substr(0, colon), step.substr(std::min(colon + 1, step.size()))});
  }
  return steps;
}

}  // namespace ddprun::testing
