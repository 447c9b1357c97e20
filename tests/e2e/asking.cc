#include "tests/e2e/asking.h"

#include <cstdlib>
#include <filesystem>

#include <doctest/doctest.h>

#include "rendezvous/base/check.h"

namespace ddprun::testing {

using nlohmann::json;

std::string Told::Describe() const {
  return "code " + std::to_string(code) + "\nstdout:\n" + out + "\nstderr:\n" + err;
}

ControlFolder::ControlFolder() {
  const char* const base = std::getenv("TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/c-XXXXXX";
  DDP_CHECK(mkdtemp(path_.data()) != nullptr);
}

ControlFolder::~ControlFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Subprocess::Options ControlFolder::Here(Subprocess::Options how) const {
  how.env["DDPRUN_CONTROL_DIR"] = path_;
  return how;
}

std::vector<std::string> ControlFolder::Sockets() const {
  std::vector<std::string> sockets;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path_, ignored)) {
    sockets.push_back(entry.path().string());
  }
  return sockets;
}

std::string ControlFolder::Socket() const {
  // Not one that has not its name yet, and does not listen.
  std::vector<std::string> sockets;
  const bool is_one = Eventually([&] {
    sockets = Sockets();
    return sockets.size() == 1 && !sockets.front().ends_with('~');
  });
  REQUIRE_MESSAGE(is_one, sockets.size(), " sockets");
  return sockets.front();
}

std::unique_ptr<Subprocess> RunReporting(Job& job, const ControlFolder& folder,
                                         std::vector<std::string> options,
                                         std::vector<std::string> steps) {
  options.push_back(Runfile("tests/e2e/reporting_worker"));
  options.insert(options.end(), steps.begin(), steps.end());
  return job.RunRaw(std::move(options), folder.Here());
}

Told Ask(Job& job, const ControlFolder& folder, std::vector<std::string> arguments) {
  const std::unique_ptr<Subprocess> asking = job.RunRaw(std::move(arguments), folder.Here());
  Told told{.code = asking->Wait().value_or(-1), .out = "", .err = ""};
  told.out = asking->out();
  told.err = asking->err();
  return told;
}

Told AskUntil(Job& job, const ControlFolder& folder, const std::vector<std::string>& arguments,
              const std::function<bool(const Told&)>& is_it) {
  Told told;
  const bool is_so = Eventually([&] {
    told = Ask(job, folder, arguments);
    return is_it(told);
  });
  CHECK_MESSAGE(is_so, "the last word: ", told.Describe());
  return told;
}

std::function<bool(const Told&)> Shows(const std::string& part) {
  return [part](const Told& told) { return told.out.find(part) != std::string::npos; };
}

json StatusUntil(Job& job, const ControlFolder& folder,
                 const std::function<bool(const json&)>& is_it) {
  return AskUntil(job, folder, {"status", "--json"},
                  [&](const Told& told) {
                    const json document = told.json();
                    return document.is_object() && is_it(document);
                  })
      .json();
}

std::vector<json> RanksOf(const json& job) {
  std::vector<json> ranks;
  if (!job.is_object()) return ranks;
  for (const json& node : job["nodes"]) {
    for (const json& rank : node["ranks"]) ranks.push_back(rank);
  }
  return ranks;
}

bool HaveStepped(const json& job, size_t count) {
  const std::vector<json> ranks = RanksOf(job);
  for (const json& rank : ranks) {
    if (rank["state"] != "running" || rank["step"].is_null()) return false;
  }
  return ranks.size() == count;
}

std::vector<std::string> ProblemsOf(const json& job) {
  std::vector<std::string> kinds;
  if (!job.is_object()) return kinds;
  for (const json& problem : job["problems"]) kinds.push_back(problem["kind"]);
  return kinds;
}

}  // namespace ddprun::testing
