#include "launcher/cli/option_table.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

constexpr const char* kJob = "Job";
constexpr const char* kMeeting = "Rendezvous";
constexpr const char* kFailure = "Failures";
constexpr const char* kOutput = "Output";
constexpr const char* kOther = "Other";

constexpr std::array kTable = {
    OptionRow{"nnodes", 0, "N|MIN:MAX", kJob, "Number of nodes, or a range (default 1).", true},
    OptionRow{
        "nproc_per_node", 0, "COUNT", kJob,
        "Workers on this node: a number (default 1), gpu (one for each visible GPU), cpu (one "
        "for each CPU) or auto (gpu, where there is none cpu).",
        true},
    OptionRow{"node_rank", 0, "N", kJob,
              "Rank of this node; needed with the static backend (default there 0).", true},
    OptionRow{"role", 0, "NAME", kJob, "Role of this node's workers (default 'default').", true},
    OptionRow{"no_python", 0, nullptr, kJob,
              "Execute the program as it is, also if it is a .py file.", true},
    OptionRow{"standalone", 0, nullptr, kMeeting, "One node, free ports, no endpoint.", true},
    OptionRow{"rdzv_endpoint", 0, "HOST[:PORT]", kMeeting,
              "Where the nodes meet; the node on HOST serves it (default port 29400).", true},
    OptionRow{"rdzv_backend", 0, "NAME", kMeeting,
              "c10d (alias grpc; default with an endpoint alone) or static.", true},
    OptionRow{"rdzv_id", 0, "ID", kMeeting, "Id of the job, equal on all nodes.", true},
    OptionRow{"rdzv_conf", 0, "K=V,...", kMeeting,
              "join_timeout, last_call_timeout, keep_alive_interval, keep_alive_max_attempt, "
              "is_host, orphan_timeout, exit_barrier_timeout; times in seconds.",
              true},
    OptionRow{"master_addr", 0, "HOST", kMeeting,
              "Address of node 0 with the static backend (default 127.0.0.1).", true},
    OptionRow{"master_port", 0, "PORT", kMeeting,
              "Port on node 0 with the static backend (default 29500; one node: a free one).",
              true},
    OptionRow{"local_addr", 0, "HOST", kMeeting,
              "Address of this node for the others (default: found out).", true},
    OptionRow{"max_restarts", 0, "N", kFailure,
              "How often the whole job is restarted after a failure (default 0).", true},
    OptionRow{"monitor_interval", 0, "SECONDS", kFailure,
              "Accepted; a worker's end is seen at once.", true},
    OptionRow{"shutdown_timeout", 0, "SECONDS", kFailure,
              "From SIGTERM to SIGKILL when workers are stopped (default 30).", true},
    OptionRow{"log_dir", 0, "DIR", kOutput,
              "Where log files go: DIR/<id>_<random>/attempt_<n>/<local rank>/.", true},
    OptionRow{"redirects", 'r', "STREAMS", kOutput,
              "Send to files: 1 stdout, 2 stderr, 3 both, or one for each local rank: 0:1,1:3.",
              true},
    OptionRow{"tee", 't', "STREAMS", kOutput, "Like --redirects, and to the console with a prefix.",
              true},
    OptionRow{"local_ranks_filter", 0, "RANKS", kOutput,
              "Show only these local ranks on the console, as in 0,12; files keep all.", true},
    OptionRow{"duplicate_stdout_filters", 0, "TEXTS", kOutput,
              "Copy tee'd stdout lines that hold one of these texts (by comma, ,, is a comma) to "
              "attempt_<n>/filtered_stdout.log, all ranks together.",
              true},
    OptionRow{"duplicate_stderr_filters", 0, "TEXTS", kOutput,
              "The same for stderr, to filtered_stderr.log.", true},
    OptionRow{"log_line_prefix_template", 0, "TEXT", kOutput,
              "Prefix of tee'd lines with ${role_name}, ${rank}, ${local_rank}, ${hostname} "
              "(default '[${role_name}${local_rank}]:').",
              true},
    OptionRow{"help", 'h', nullptr, kOther, "This text.", false},
    OptionRow{"version", 0, nullptr, kOther, "The version.", false},
};

// Options of torchrun that are not here: whoever uses one should not be told of a typing error.
constexpr std::array<const char*, 9> kMissing = {
    "module",     "run_path",     "start_method",      "event_log_handler",
    "logs_specs", "numa_binding", "signals_to_handle", "virtual_local_rank",
    "use_env"};

std::string Underscored(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

absl::Status UnknownOption(const std::string& word, std::string_view name) {
  const std::string wanted = Underscored(name);
  const bool is_missing = std::any_of(kMissing.begin(), kMissing.end(),
                                      [&](const char* missing) { return wanted == missing; });
  if (is_missing || word == "-m") {
    return InvalidArgumentError(
        absl::StrCat("option ", Quoted(word), " of torchrun is not supported yet"));
  }
  std::vector<std::string> names;
  for (const OptionRow& row : kTable) names.emplace_back(row.name);
  const std::string nearest = NearestName(name, names);
  return InvalidArgumentError(
      absl::StrCat("unknown option ", Quoted(word), nearest.empty() ? "" : "; did you mean --",
                   nearest, nearest.empty() ? "; ddprun --help lists the options" : "?",
                   " (an option of the program goes after the program)"));
}

// The option that `name` abbreviates without doubt, as argparse has it; nullptr: none or several.
const OptionRow* FindAbbreviated(std::string_view name) {
  const std::string wanted = Underscored(name);
  const OptionRow* found = nullptr;
  for (const OptionRow& row : kTable) {
    if (std::string_view(row.name).substr(0, wanted.size()) != wanted) continue;
    if (found != nullptr) return nullptr;
    found = &row;
  }
  return found;
}

// One word in front of the program, taken apart.
struct OptionWord {
  const OptionRow* row = nullptr;
  bool has_value = false;
  std::string value;
};

absl::StatusOr<OptionWord> ReadLongWord(const std::string& word) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  OptionWord out;
  out.row = FindOption(name);
  if (out.row == nullptr && name.size() >= 2) out.row = FindAbbreviated(name);
  if (out.row == nullptr) return UnknownOption(word.substr(0, equals), name);
  out.has_value = equals != std::string::npos;
  if (out.has_value) out.value = word.substr(equals + 1);
  if (out.has_value && out.row->is_flag()) {
    return InvalidArgumentError(
        absl::StrCat("--", out.row->name, " ", Quoted(out.value), ": it takes no value"));
  }
  return out;
}

// -r3, -r=3, or -r with its value in the next word.
absl::StatusOr<OptionWord> ReadShortWord(const std::string& word) {
  OptionWord out;
  for (const OptionRow& row : kTable) {
    if (row.letter != 0 && row.letter == word[1]) out.row = &row;
  }
  const bool is_flag = out.row != nullptr && out.row->is_flag();
  if (out.row == nullptr || (is_flag && word.size() > 2))
    return UnknownOption(word, word.substr(1));
  out.has_value = word.size() > 2;
  if (out.has_value) out.value = word.substr(word[2] == '=' ? 3 : 2);
  return out;
}

}  // namespace

std::span<const OptionRow> OptionTable() { return kTable; }

const OptionRow* FindOption(std::string_view name) {
  const std::string wanted = Underscored(name);
  for (const OptionRow& row : kTable) {
    if (wanted == row.name) return &row;
  }
  return nullptr;
}

std::string VariableOf(const OptionRow& row) {
  return absl::StrCat("PET_", absl::AsciiStrToUpper(row.name));
}

absl::StatusOr<SplitCommandLine> SplitAtProgram(std::span<const std::string> args) {
  SplitCommandLine split;
  size_t next = 0;
  while (next < args.size()) {
    const std::string& word = args[next];
    if (word.size() < 2 || word[0] != '-') break;
    ++next;
    if (word == "--") break;
    absl::StatusOr<OptionWord> option = word[1] == '-' ? ReadLongWord(word) : ReadShortWord(word);
    if (!option.ok()) return option.status();
    const OptionRow& row = *option->row;
    if (!row.is_flag() && !option->has_value) {
      if (next == args.size()) {
        return InvalidArgumentError(
            absl::StrCat(Quoted(word), " needs a value: --", row.name, "=", row.value));
      }
      option->value = args[next++];
    }
    split.options.push_back({.row = &row, .value = std::move(option->value)});
    if (std::string_view(row.name) == "help" || std::string_view(row.name) == "version") {
      return split;
    }
  }
  split.program.assign(args.begin() + static_cast<ptrdiff_t>(next), args.end());
  return split;
}

}  // namespace ddprun::launcher
