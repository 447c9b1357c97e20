#include "tools/gpu_check_program/run_check.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/gpu_check_program/check.h"

namespace ddprun::gpu_check {
namespace {

namespace fs = std::filesystem;

constexpr int kExitUsage = 2, kExitMachine = 120;
// Eight minutes, less what stopping the last row may take.
constexpr int kTotal_s = 480 - 20;
constexpr char kUsage[] =
    "usage: ./run [--rows NAME,NAME...] [--list] [--output FILE] [--max_bytes N]\n"
    "             [--trainer_device cpu]\n"
    "Checks ddprun on this machine's GPUs: prints a table, writes JSON, takes at most 8 minutes.\n"
    "  --rows       only these\n"
    "  --list       the names of the rows\n"
    "  --output     where the JSON goes; results.json beside this script\n"
    "  --max_bytes  of an all-reduce; 1073741824\n"
    "  --trainer_device  cpu: the trainer's rows without a GPU, to try the check itself\n";

struct Options {
  std::vector<std::string> rows;  // empty: all
  std::string output;
  size_t max_bytes = 1u << 30;
  std::string trainer_device = "cuda";
};

std::vector<RowKind> AllRows() {
  std::vector<RowKind> all;
  for (const auto* rows : {&CollectiveRows(), &TrainerRows()}) {
    all.insert(all.end(), rows->begin(), rows->end());
  }
  return all;
}

// The row of the machine comes first in every run.
std::vector<std::string> AllNames() {
  std::vector<std::string> names = {MachineRows()[0].name};
  for (const RowKind& row : AllRows()) names.push_back(row.name);
  return names;
}

int Refuse(const std::string& what) {
  std::fprintf(stderr, "run: %s\n%s", what.c_str(), kUsage);
  return kExitUsage;
}

// Or the exit code to end with.
std::optional<int> Parse(const std::vector<std::string>& arguments, Options* options) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--help" || name == "-h") return std::fputs(kUsage, stdout), 0;
    if (name == "--list") {
      for (const std::string& row : AllNames()) std::printf("%s\n", row.c_str());
      return 0;
    }
    if (i + 1 == arguments.size()) return Refuse("unknown or without a value: '" + name + "'");
    const std::string& value = arguments[++i];
    if (name == "--rows") {
      options->rows = absl::StrSplit(value, ',');
    } else if (name == "--output") {
      options->output = value;
    } else if (name == "--trainer_device" && (value == "cpu" || value == "cuda")) {
      options->trainer_device = value;
    } else if (name != "--max_bytes" || !absl::SimpleAtoi(value, &options->max_bytes) ||
               options->max_bytes < 4096) {
      return Refuse("unknown option or bad value: '" + name + " " + value + "'");
    }
  }
  const std::vector<std::string> all = AllNames();
  for (const std::string& name : options->rows) {
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    std::fprintf(stderr, "run: no row is called '%s'; ./run --list names them\n", name.c_str());
    return kExitUsage;
  }
  return std::nullopt;
}

// What a job around us would tell the rows' programs.
void ForgetSurroundings() {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "DDPRUN_ROUND"}) {
    unsetenv(name);
  }
  setenv("OMP_NUM_THREADS", "1", 0);
}

// REQUIRES: errno tells why.
int NoOutput(const std::string& path) {
  std::fprintf(stderr, "run: write \"%s\": %s; --output takes another place\n", path.c_str(),
               std::strerror(errno));
  return kExitMachine;
}

class Runner {
 public:
  Runner(const Options& options, Check check, std::string output)
      : options_(options), check_(std::move(check)), output_(std::move(output)) {}

  int Run() {
    end_ = Clock::now() + std::chrono::seconds(kTotal_s);
    Add(MachineRows()[0]);
    const bool has_gpu = check_.gpus > 0;
    if (check_.device == "cpu") check_.trainer_lack.clear();
    if (has_gpu && DrawDigits()) {
      for (const RowKind& row : AllRows()) {
        if (IsWanted(row.name)) Add(row);
      }
    }
    const int exit_code = Count(Verdict::kFailed) != 0 ? EXIT_FAILURE
                          : has_gpu                    ? EXIT_SUCCESS
                                                       : kExitMachine;
    std::ofstream file(output_);
    file << ToJson(check_.machine, rows_, exit_code);
    file.close();
    if (!file) return NoOutput(output_);
    Summarise();
    return exit_code;
  }

 private:
  bool IsWanted(const std::string& name) const {
    const auto& rows = options_.rows;
    return rows.empty() || std::find(rows.begin(), rows.end(), name) != rows.end();
  }

  void Add(const RowKind& kind) {
    const Clock::time_point begin = Clock::now();
    check_.deadline = std::min(end_, begin + std::chrono::seconds(kind.limit_s));
    Row row{.name = kind.name};
    row.result = begin < end_ ? kind.run(check_) : NotRun("the eight minutes are over");
    row.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::printf("%s\n", Line(row).c_str());
    std::fflush(stdout);
    rows_.push_back(std::move(row));
  }

  bool DrawDigits() {
    check_.deadline = std::min(end_, Clock::now() + std::chrono::seconds(30));
    for (const auto& [name, images, test] :
         {std::tuple("digits", "10000", "500"), std::tuple("digits_small", "2048", "256")}) {
      const Outcome outcome = check_.Run(
          {check_.Program("make_digits"), check_.Scratch(name), "--train", images, "--test", test});
      if (outcome.ok()) continue;
      rows_.push_back({"digits", FailedRun("make_digits", outcome)});
      std::printf("%s\n", Line(rows_.back()).c_str());
      return false;
    }
    return true;
  }

  int Count(Verdict verdict) const {
    return static_cast<int>(std::count_if(
        rows_.begin(), rows_.end(), [&](const Row& r) { return r.result.verdict == verdict; }));
  }
  void Summarise() const {
    std::printf("%d ok, %d missed a target, %d not run, %d failed; %s\n", Count(Verdict::kOk),
                Count(Verdict::kMissed), Count(Verdict::kNotRun), Count(Verdict::kFailed),
                output_.c_str());
  }

  const Options& options_;
  Check check_;
  const std::string output_;
  Clock::time_point end_;
  std::vector<Row> rows_;
};

}  // namespace

int RunCheck(const std::vector<std::string>& arguments) {
  Options options;
  if (const auto exit_code = Parse(arguments, &options)) return *exit_code;
  ForgetSurroundings();
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  Check check;
  check.folder = program.parent_path().parent_path().string();
  check.max_bytes = options.max_bytes;
  check.device = options.trainer_device;
  const std::string output =
      options.output.empty() ? check.folder + "/results.json" : options.output;
  if (!std::ofstream(output)) return NoOutput(output);
  const fs::path temporary = fs::temp_directory_path(error);
  if (error) {
    const char* given = std::getenv("TMPDIR");
    std::fprintf(stderr, "run: TMPDIR: \"%s\" is no directory\n", given ? given : "/tmp");
    return kExitMachine;
  }
  check.scratch = (temporary / "gpu_check.XXXXXX").string();
  if (mkdtemp(check.scratch.data()) == nullptr) {
    std::fprintf(stderr, "run: make the folder \"%s\": %s; TMPDIR takes another place\n",
                 check.scratch.c_str(), std::strerror(errno));
    return kExitMachine;
  }
  const std::string scratch = check.scratch;
  const int exit_code = Runner(options, std::move(check), output).Run();
  fs::remove_all(scratch, error);
  return exit_code;
}

}  // namespace ddprun::gpu_check
