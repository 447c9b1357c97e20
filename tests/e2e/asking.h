// `ddprun status`, `list`, `stop`, `logs` and `top` as tests ask them: of nodes that each have a
// control directory of their own, though they share this machine.
#ifndef DDPRUN_TESTS_E2E_ASKING_H_
#define DDPRUN_TESTS_E2E_ASKING_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/e2e/job.h"

namespace ddprun::testing {

// What a command has said.
struct Told {
  int code = -1;  // -1: it has not ended
  std::string out;
  std::string err;
  // The document of --json; null where `out` is none.
  nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, false); }
  // Everything, for a failed check's message.
  std::string Describe() const;
};

// A node's control directory, with a short name: a socket's path has 107 bytes at most. Removed
// with what is in it.
class ControlFolder {
 public:
  ControlFolder();
  ~ControlFolder();
  ControlFolder(const ControlFolder&) = delete;
  ControlFolder& operator=(const ControlFolder&) = delete;

  const std::string& path() const { return path_; }
  // `how` with the variable that names it.
  Subprocess::Options Here(Subprocess::Options how = {}) const;
  // The sockets that lie there.
  std::vector<std::string> Sockets() const;
  // The only one; waits for it.
  std::string Socket() const;

 private:
  std::string path_;
};

// Starts `ddprun <options> reporting_worker <steps>` there.
std::unique_ptr<Subprocess> RunReporting(Job& job, const ControlFolder& folder,
                                         std::vector<std::string> options,
                                         std::vector<std::string> steps);
// Runs `ddprun <arguments>` there, to its end.
Told Ask(Job& job, const ControlFolder& folder, std::vector<std::string> arguments);
// The same again and again, until `is_it` says yes or kPatience is over; the last word.
Told AskUntil(Job& job, const ControlFolder& folder, const std::vector<std::string>& arguments,
              const std::function<bool(const Told& told)>& is_it);
// That the text which is printed holds `part`.
std::function<bool(const Told& told)> Shows(const std::string& part);
// `status --json` until that is so.
nlohmann::json StatusUntil(Job& job, const ControlFolder& folder,
                           const std::function<bool(const nlohmann::json& job)>& is_it);
// All ranks of the document, by node.
std::vector<nlohmann::json> RanksOf(const nlohmann::json& job);
// Whether it has `count` ranks, each of which runs and has told of a step.
bool HaveStepped(const nlohmann::json& job, size_t count);
// The kinds of its problems.
std::vector<std::string> ProblemsOf(const nlohmann::json& job);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_E2E_ASKING_H_
