#include "tests/conformance/scenario.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <regex>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

#include "rendezvous/net/socket_address.h"
#include "tests/conformance/recorder.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

using namespace std::chrono_literals;

// torchrun takes seconds to start, on a loaded machine many.
constexpr auto kEndOfRun = 180s;

constexpr char kMarkName[] = "DDPRUN_E2E_JOB";

void ReplaceAll(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    text.replace(at, what.size(), with);
    at += with.size();
  }
}

std::string Join(const std::vector<std::string>& parts, const std::string& between) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : between) + part;
  return all;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string Trimmed(const std::string& line) {
  return line.substr(std::min(line.size(), line.find_first_not_of(' ')));
}

std::string ClassOfExit(std::optional<int> code) {
  if (!code) return "still running";
  if (*code == 0) return "success";
  return *code == 2 ? "usage" : "failure";
}

// "NAME=value" lines.
std::map<std::string, std::string> ReadDump(const std::string& text) {
  std::map<std::string, std::string> variables;
  for (const std::string& line : LinesOf(text)) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return variables;
}

// By its name, or by what torchrun calls it.
bool IsThisHost(const std::string& address) {
  static const std::string full_name = [] {
    if (!IsRecording()) return std::string();
    Subprocess name({FindTorchPython().python, "-c", "import socket; print(socket.getfqdn())"});
    CHECK_MESSAGE(name.Wait() == 0, name.Describe());
    return Trimmed(name.out().substr(0, name.out().find('\n')));
  }();
  // Where that is "localhost", it may be the address that the command names.
  return address == rendezvous::HostName() || (address == full_name && address != "localhost");
}

// What the recording is of: the command of each agent, with the variables set for it.
std::vector<std::string> Asked(const Scenario& scenario) {
  std::vector<std::string> lines;
  for (const std::vector<std::string>& options : scenario.nodes) {
    std::vector<std::string> words;
    for (const auto& [name, value] : scenario.env) words.push_back(name + "=" + value);
    for (const std::string& word : scenario.prefix) words.push_back(word);
    words.push_back("torchrun");
    for (const auto* more : {&scenario.options, &options, &scenario.command}) {
      words.insert(words.end(), more->begin(), more->end());
    }
    lines.push_back(ShellLine(words));
  }
  return lines;
}

void Check(const Scenario& scenario, const Observed& torchrun, const Run& ddprun,
           const std::string& more) {
  const std::vector<std::string> complaints =
      Judge(DifferenceTable(), scenario.name, torchrun, ddprun.observed());
  for (const std::string& complaint : complaints) FAIL_CHECK(complaint);
  if (!complaints.empty()) MESSAGE(more << ddprun.Describe());
}

// What torchrun did.
Observed RunBoth(const Scenario& scenario) {
  // Side by side; torchrun is still starting while ddprun has done most of it.
  Run torchrun(Launcher::kTorchrun, scenario);
  Run ddprun(Launcher::kDdprun, scenario);
  ddprun.Drive();
  torchrun.Drive();
  Check(scenario, torchrun.observed(), ddprun, torchrun.Describe());
  return torchrun.observed();
}

}  // namespace

std::string SortedLines(const std::string& text) {
  std::vector<std::string> lines = LinesOf(text);
  std::sort(lines.begin(), lines.end());
  return Join(lines, " | ");
}

Run::Run(Launcher launcher, const Scenario& scenario) : launcher_(launcher), scenario_(scenario) {
  std::filesystem::create_directory(job_.File("tmp"));
  // In the C locale a Python sets LC_CTYPE for itself and what it starts: torchrun or the worker.
  env_ = {{"TMPDIR", job_.File("tmp")}, {"OMP_NUM_THREADS", ""}, {"LC_ALL", "C.UTF-8"}};
  if (scenario.needs_torch) {
    const char* path = getenv("PATH");
    env_["PATH"] = FindTorchPython().folder + ":" + (path != nullptr ? path : "/usr/bin:/bin");
  }
  for (const auto& [name, value] : scenario.env) env_[name] = Filled(value);
  for (const std::vector<std::string>& options : scenario.nodes) StartNode(options);
}

Run::~Run() { KillLeftovers(); }

void Run::StartNode(const std::vector<std::string>& options) {
  std::vector<std::string> argv = scenario_.prefix;
  argv.push_back(launcher_ == Launcher::kTorchrun ? FindTorchPython().torchrun : Runfile("ddprun"));
  for (const auto* words : {&scenario_.options, &options, &scenario_.command}) {
    for (const std::string& word : *words) argv.push_back(Filled(word));
  }
  nodes_.push_back(job_.RunProgram(std::move(argv), {.env = env_, .working_dir = Dir()}));
}

void Run::Signal(int index, int signal) {
  if (!node(index).Wait(0ms)) node(index).Signal(signal);
}

std::string Run::Dir() const {
  const std::string inside = job_.File("x");
  return inside.substr(0, inside.size() - 2);
}

void Run::AwaitFile(const std::string& name) {
  // No agent, no file: there is nothing to wait for.
  const auto have_all_ended = [&] {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->Wait(0ms).has_value(); });
  };
  Eventually([&] { return job_.HasFile(name) || have_all_ended(); }, kEndOfRun);
  CHECK_MESSAGE(job_.HasFile(name), scenario_.name << ": no file " << name << Describe());
}

void Run::Remove(const std::string& name) { std::filesystem::remove(job_.File(name)); }

void Run::AwaitPort() {
  // " <address>:<port in hex> <any address>:0000 0A": connecting would be a guest to both.
  std::stringstream port;
  port << ":" << std::hex << std::uppercase << std::setw(4) << std::setfill('0') << job_.port();
  const std::regex listening(port.str() + " 0+:0000 0A");
  const bool is_there = Eventually(
      [&] {
        return std::regex_search(ReadFile("/proc/net/tcp"), listening) ||
               std::regex_search(ReadFile("/proc/net/tcp6"), listening);
      },
      kEndOfRun);
  CHECK_MESSAGE(is_there, scenario_.name << ": nobody listens" << Describe());
}

void Run::AwaitErr(int index, const std::string& of_torchrun, const std::string& of_ddprun) {
  const std::string& text = launcher_ == Launcher::kTorchrun ? of_torchrun : of_ddprun;
  CHECK_MESSAGE(node(index).WaitForErr(text, kEndOfRun),
                scenario_.name << ": not said: " << text << Describe());
}

void Run::Observe(const std::string& field, const std::string& value) {
  observed_[field] = Normalised(value);
}

void Run::Drive() {
  if (scenario_.during != nullptr) scenario_.during(*this);
  Finish();
}

void Run::Finish() {
  ObserveExits();
  observed_["leftovers"] = job_.IsGone(launcher_ == Launcher::kTorchrun ? 1s : 10s) ? "no" : "yes";
  std::string out;
  for (const auto& node : nodes_) out += node->out();
  std::string seen;
  for (const auto& node : nodes_) {
    for (const std::string& line : LinesOf(node->err())) {
      if (line.find("seen: ") != std::string::npos) seen += Trimmed(line) + "\n";
    }
  }
  if (!scenario_.is_quiet) observed_["out"] = SortedLines(Normalised(out));
  if (!seen.empty()) observed_["err"] = SortedLines(Normalised(seen));
  ObserveFiles();
  if (scenario_.after != nullptr) scenario_.after(*this);
}

void Run::ObserveExits() {
  std::vector<std::string> classes;
  std::vector<std::string> codes;
  for (const auto& node : nodes_) {
    const std::optional<int> code = node->Wait(kEndOfRun);
    classes.push_back(ClassOfExit(code));
    codes.push_back(code ? std::to_string(*code) : "none");
  }
  observed_["exit"] = Join(classes, ", ");
  if (scenario_.has_codes) observed_["code"] = Join(codes, ", ");
}

// Every file of {dir}: its name, and what it holds when it is no log. env.* are environments.
void Run::ObserveFiles() {
  const std::filesystem::path root = Dir();
  std::set<std::string> names;
  std::map<std::string, std::string> dumps;
  for (auto entry = std::filesystem::recursive_directory_iterator(root);
       entry != std::filesystem::recursive_directory_iterator(); ++entry) {
    const std::string name = std::filesystem::relative(entry->path(), root);
    if (name == "tmp") entry.disable_recursion_pending();
    if (!entry->is_regular_file()) continue;
    const std::string text = ReadFile(entry->path());
    if (name.rfind("env.", 0) == 0) {
      dumps[name] = text;
      continue;
    }
    names.insert(Normalised(name));
    if (!text.empty()) observed_["file." + Normalised(name)] = SortedLines(Normalised(text));
  }
  observed_["files"] = Join({names.begin(), names.end()}, " ");
  ObserveEnvironments(dumps);
}

// What the launcher has put into or taken out of the workers' environments: a field for each
// variable, with one value if all workers have the same, otherwise one for each dump in order.
void Run::ObserveEnvironments(const std::map<std::string, std::string>& dumps) {
  std::map<std::string, std::string> before;
  for (char** entry = environ; *entry != nullptr; ++entry) before.merge(ReadDump(*entry));
  for (const auto& [name, value] : env_) before[name] = value;
  before[kMarkName] = "";
  std::map<std::string, std::vector<std::string>> values;
  for (const auto& [dump, text] : dumps) {
    std::map<std::string, std::string> after = ReadDump(text);
    after.erase(kMarkName);
    after.erase("PWD");
    for (const auto& [name, value] : after) {
      // A shell's exported function: of several lines.
      if (name.rfind("BASH_FUNC_", 0) == 0) continue;
      if (before.count(name) == 0 || before[name] != value) values[name];
    }
    for (const auto& [name, value] : before) {
      if (!value.empty() && after.count(name) == 0 && name != "PWD") values[name];
    }
  }
  for (auto& [name, list] : values) {
    for (const auto& [dump, text] : dumps) {
      const std::map<std::string, std::string> after = ReadDump(text);
      const auto found = after.find(name);
      std::string value = found == after.end() ? kAbsent : Normalised(found->second);
      if (name == "MASTER_PORT" && value != "{port}") value = "{free port}";
      if (name == "MASTER_ADDR" && IsThisHost(value)) value = "{host}";
      if (name == "TORCHELASTIC_ERROR_FILE") value.erase(0, value.find("/attempt_"));
      list.push_back(value);
    }
    const bool are_equal = std::all_of(list.begin(), list.end(),
                                       [&](const std::string& value) { return value == list[0]; });
    observed_["env." + name] = are_equal ? list[0] : Join(list, " ");
  }
  if (!dumps.empty()) observed_["workers"] = std::to_string(dumps.size());
  if (scenario_.is_worker_per_cpu) ForgetCpus();
}

std::string Run::Filled(std::string word) const {
  const std::string file = Runfile("tests/conformance/programs/env.py");
  ReplaceAll(word, "{programs}", file.substr(0, file.rfind('/')));
  ReplaceAll(word, "{toy}", Runfile("tests/e2e/toy_worker"));
  ReplaceAll(word, "{dir}", Dir());
  ReplaceAll(word, "{port}", std::to_string(job_.port()));
  return word;
}

// What is another in every run gets a name.
std::string Run::Normalised(std::string text) const {
  static const std::regex uuid(
      "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\\b[0-9a-f]{16}\\b");
  static const std::regex run_folder("_[A-Za-z0-9_]{6,8}/attempt_");
  ReplaceAll(text, Dir(), "{dir}");
  ReplaceAll(text, ":" + std::to_string(job_.port()), ":{port}");
  if (text == std::to_string(job_.port())) text = "{port}";
  // As a report names it. Elsewhere a host's name may be a word of the program.
  const std::string host = rendezvous::HostName();
  if (text.rfind(host + " (", 0) == 0) text.replace(0, host.size(), "{host}");
  text = std::regex_replace(text, run_folder, "_{random}/attempt_");
  return std::regex_replace(text, uuid, "{uuid}");
}

// The numbers of workers, and what each of them has one of, where that is a number of CPUs.
void Run::ForgetCpus() {
  static const std::set<std::string> of_all = {"workers", "env.WORLD_SIZE", "env.LOCAL_WORLD_SIZE",
                                               "env.ROLE_WORLD_SIZE"};
  cpu_set_t allowed;
  CHECK(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  const std::string all = std::to_string(CPU_COUNT(&allowed));
  std::vector<std::string> ranks;
  std::vector<std::string> files;
  for (int rank = 0; rank < CPU_COUNT(&allowed); ++rank) {
    ranks.push_back(std::to_string(rank));
    files.push_back("/attempt_0/" + ranks.back() + "/error.json");
  }
  for (auto& [field, value] : observed_) {
    if (of_all.count(field) != 0 && value == all) value = "{cpus}";
    const bool is_rank =
        field == "env.RANK" || field == "env.LOCAL_RANK" || field == "env.ROLE_RANK";
    if (is_rank && value == Join(ranks, " ")) value = "0 .. {cpus} - 1";
    if (value == Join(files, " ")) value = "/attempt_0/0 .. {cpus} - 1/error.json";
  }
}

void Run::KillLeftovers() {
  for (const auto& node : nodes_) {
    if (!node->Wait(0ms)) node->Signal(SIGKILL);
  }
  Eventually(
      [&] {
        const std::vector<int> left = job_.Processes();
        for (const int pid : left) kill(pid, SIGKILL);
        return left.empty();
      },
      20s);
}

std::string Run::Describe() const {
  std::string text = launcher_ == Launcher::kTorchrun ? "\n=== torchrun" : "\n=== ddprun";
  for (const auto& [field, value] : observed_) text += "\n" + field + ": " + value;
  for (const auto& node : nodes_) text += node->Describe();
  return text;
}

void Compare(const Scenario& scenario) {
  const std::vector<std::string> asked = Asked(scenario);
  if (IsRecording()) return Record(scenario.name, {.asked = asked, .seen = RunBoth(scenario)});
  if (scenario.needs_torch && FindTorchPython().python.empty()) return SkipWithoutTorch();
  const std::optional<Observed> torchrun = Recorded(scenario.name, asked);
  if (!torchrun) return;
  Run ddprun(Launcher::kDdprun, scenario);
  ddprun.Drive();
  Check(scenario, *torchrun, ddprun, "");
}

void CompareLive(const Scenario& scenario) {
  if (FindTorchPython().python.empty()) return SkipWithoutTorch();
  RunBoth(scenario);
}

}  // namespace ddprun::testing
