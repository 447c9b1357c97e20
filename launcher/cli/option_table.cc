#include "launcher/cli/option_table.h"

#include <array>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

constexpr const char* kJob = "Job";
constexpr const char* kProgram = "Program";
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
              "Rank of this node; with the static backend each needs its own (default there 0).",
              true},
    OptionRow{"role", 0, "NAME", kJob, "Role of this node's workers (default 'default').", true},
    OptionRow{"no_python", 0, nullptr, kProgram,
              "Execute the program as it is, also if it is a .py file.", true},
    OptionRow{"module", 'm', nullptr, kProgram,
              "PROGRAM is a Python module: python3 -u -m PROGRAM (or $PYTHON_EXEC).", true},
    OptionRow{"run_path", 0, nullptr, kProgram,
              "PROGRAM is a Python script of any name, run by runpy.run_path; wins over the two "
              "above.",
              true},
    OptionRow{"numa_binding", 0, "MODE", kJob,
              "Bind each worker to CPUs near its GPU: node, socket, exclusive or core-complex.",
              false},
    OptionRow{"virtual_local_rank", 0, nullptr, kJob,
              "Show each worker its own GPU alone, as LOCAL_RANK 0.", true},
    OptionRow{"standalone", 0, nullptr, kMeeting, "One node, free ports, no endpoint.", true},
    OptionRow{"rdzv_endpoint", 0, "HOST[:PORT]", kMeeting,
              "Where the nodes meet; the node on HOST serves it (default port 29400).", true},
    OptionRow{"rdzv_backend", 0, "NAME", kMeeting,
              "c10d (alias grpc; default with an endpoint alone) or static.", true},
    OptionRow{"rdzv_id", 0, "ID", kMeeting, "Id of the job, equal on all nodes.", true},
    OptionRow{"rdzv_conf", 0, "K=V,...", kMeeting,
              "join_timeout (600), last_call_timeout (30), keep_alive_interval, "
              "keep_alive_max_attempt, is_host, orphan_timeout, exit_barrier_timeout (300); times "
              "in seconds. Accepted without effect: close_timeout, heartbeat_timeout, "
              "read_timeout, rank, store_type=tcp.",
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
              "From SIGTERM to SIGKILL when workers are stopped (default "
              "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT or 30).",
              true},
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
    OptionRow{
        "signals_to_handle", 0, "NAMES", kFailure,
        "Signals that stop the job, besides SIGTERM, SIGINT, SIGHUP and SIGQUIT, which always "
        "do: SIGUSR1,SIGUSR2,... Without it SIGUSR1 and SIGUSR2 are passed on to the workers.",
        true},
    OptionRow{
        "event_log_handler", 0, "NAME", kOutput,
        "Where torchrun's events go: null (nowhere, the default) or console (stderr, as JSON).",
        true},
    OptionRow{"start_method", 0, "METHOD", kOther,
              "Accepted (spawn, fork, forkserver): workers are always processes of their own.",
              true},
    OptionRow{"logs_specs", 0, "NAME", kOther,
              "A Python plug-in of torchrun's: not possible here, see --log_dir, -r and -t.",
              false},
    OptionRow{"report_file", 0, "PATH", kOutput,
              "Write the end of the job there as JSON: outcome, failures, rounds.", true},
    OptionRow{"help", 'h', nullptr, kOther, "This text.", false},
    OptionRow{"version", 0, nullptr, kOther, "The version.", false},
};

absl::Status UnknownOption(const std::string& word, std::string_view name) {
  const std::string wanted = Underscored(name);
  if (wanted == "use_env" || wanted == "no_use_env") {
    return InvalidArgumentError(absl::StrCat(
        "option ", Quoted(word),
        " is torch.distributed.launch's; leave it out: workers always find LOCAL_RANK in the "
        "environment (a script that wants an argument takes '--local-rank=${local_rank}')"));
  }
  std::vector<std::string> names;
  for (const OptionRow& row : kTable) names.emplace_back(row.name);
  const std::string nearest = NearestName(name, names);
  return InvalidArgumentError(
      absl::StrCat("unknown option ", Quoted(word), nearest.empty() ? "" : "; did you mean --",
                   nearest, nearest.empty() ? "; ddprun --help lists the options" : "?",
                   " (an option of the program goes after the program)"));
}

// The options that `name` abbreviates: argparse takes a beginning that only one has.
std::vector<const OptionRow*> FindAbbreviated(std::string_view name) {
  const std::string wanted = Underscored(name);
  std::vector<const OptionRow*> found;
  for (const OptionRow& row : kTable) {
    if (std::string_view(row.name).substr(0, wanted.size()) == wanted) found.push_back(&row);
  }
  return found;
}

absl::StatusOr<const OptionRow*> FindLong(const std::string& word, std::string_view name) {
  if (const OptionRow* row = FindOption(name)) return row;
  const std::vector<const OptionRow*> rows = FindAbbreviated(name);
  if (rows.size() == 1) return rows.front();
  if (rows.empty() || name.empty()) return UnknownOption(word, name);
  std::string could_be;
  for (const OptionRow* row : rows) {
    absl::StrAppend(&could_be, could_be.empty() ? "--" : ", --", row->name);
  }
  return InvalidArgumentError(absl::StrCat("option ", Quoted(word), " could be ", could_be));
}

const OptionRow* FindLetter(char letter) {
  for (const OptionRow& row : kTable) {
    if (row.letter != 0 && row.letter == letter) return &row;
  }
  return nullptr;
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
  const absl::StatusOr<const OptionRow*> row = FindLong(word.substr(0, equals), name);
  if (!row.ok()) return row.status();
  OptionWord out;
  out.row = *row;
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
  out.row = FindLetter(word[1]);
  const bool is_flag = out.row != nullptr && out.row->is_flag();
  if (out.row == nullptr || (is_flag && word.size() > 2)) {
    return UnknownOption(word, word.substr(1));
  }
  out.has_value = word.size() > 2;
  if (out.has_value) out.value = word.substr(word[2] == '=' ? 3 : 2);
  return out;
}

// Flags in front of another letter: -mr3 is -m -r3.
std::vector<std::string> SplitLetters(const std::string& word) {
  std::vector<std::string> words;
  size_t next = 1;
  for (; next + 1 < word.size(); ++next) {
    const OptionRow* row = FindLetter(word[next]);
    if (row == nullptr || !row->is_flag() || FindLetter(word[next + 1]) == nullptr) break;
    words.push_back({'-', word[next]});
  }
  words.push_back("-" + word.substr(next));
  return words;
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
    const std::string& whole = args[next];
    if (whole.size() < 2 || whole[0] != '-') break;
    ++next;
    if (whole == "--") break;
    const bool is_long = whole[1] == '-';
    const std::vector<std::string> words =
        is_long ? std::vector<std::string>{whole} : SplitLetters(whole);
    for (const std::string& word : words) {
      absl::StatusOr<OptionWord> option = is_long ? ReadLongWord(word) : ReadShortWord(word);
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
  }
  split.program.assign(args.begin() + static_cast<ptrdiff_t>(next), args.end());
  return split;
}

}  // namespace ddprun::launcher
