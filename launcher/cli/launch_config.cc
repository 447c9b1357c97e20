#include "launcher/cli/launch_config.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/text.h"
#include "rendezvous/core/rank_assignment.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

// What the reader of one option has to say of a value that it took.
void Warn(const std::string& option, const std::vector<std::string>& texts, LaunchConfig& config) {
  for (const std::string& text : texts) {
    config.warnings.push_back(absl::StrCat(config.SourceOf(option), ": ", text));
  }
}

// Of an option that was given, or not, and that nobody reads then.
void WarnUnused(const GivenValue* value, const std::string& why, LaunchConfig& config) {
  if (value == nullptr || value->is_default) return;
  config.warnings.push_back(absl::StrCat(value->source, " ", Quoted(WithoutPasswords(value->text)),
                                         " is not used: ", why));
}

// torchrun: --run-path wins over the other two, which exclude each other.
void ReadRunAs(OptionReader& read, LaunchConfig& config) {
  const bool is_module = read.Flag("module");
  const bool is_itself = read.Flag("no_python");
  if (read.Flag("run_path")) {
    config.run_as = RunAs::kRunPath;
  } else if (is_module && is_itself) {
    read.Fail(InvalidArgumentError(
        absl::StrCat(read.Find("no_python")->source, " with ", read.Find("module")->source,
                     ": expected one of them; a module is run by Python")));
  } else if (is_module) {
    config.run_as = RunAs::kModule;
  } else if (is_itself) {
    config.run_as = RunAs::kItself;
  }
}

// One of `accepted`.
absl::StatusOr<std::string> OneOf(const std::string& text, const std::vector<std::string>& accepted,
                                  absl::string_view explanation) {
  for (const std::string& word : accepted) {
    if (text == word) return text;
  }
  return InvalidArgumentError(
      absl::StrCat("expected ", absl::StrJoin(accepted, ", "), explanation));
}

// What torchrun has for its own making: Python's way to start processes, plug-ins in Python.
void ReadPythonOnly(OptionReader& read, LaunchConfig& config) {
  std::string unused;
  read.Into("start_method", unused, [](const std::string& text) {
    return OneOf(text, {"spawn", "fork", "forkserver"},
                 " (no effect: workers are always processes of their own)");
  });
  read.Into("event_log_handler", config.event_log_handler, [](const std::string& text) {
    return OneOf(text, {"null", "console", "dynamic_rendezvous"},
                 " (a handler registered in Python is out of reach here)");
  });
  if (const GivenValue* value = read.Find("logs_specs")) {
    read.Refuse(*value,
                "ddprun runs no plug-ins written in Python; use --log-dir, --redirects and --tee");
  }
}

void ReadPlainValues(OptionReader& read, const MachineFacts& machine, LaunchConfig& config) {
  read.Into("nnodes", config.nodes, ParseNodeRange);
  ReadWorkers(read, machine, config);
  read.Into("node_rank", config.node_rank,
            [](const std::string& text) { return ParseNumber(text, 0, kMaxNodes - 1); });
  ReadRestartOptions(read, config);
  ReadBadNodeOptions(read, config);
  read.Into("shutdown_timeout", config.shutdown_timeout,
            [](const std::string& text) { return ParseSeconds(text, true); });
  read.Into("keep_children", config.keep_children,
            [](const std::string& text) { return ParseSeconds(text, true); });
  double unused;  // exits are seen at once: there is nothing to poll
  read.Into("monitor_interval", unused, ParseInterval);
  std::vector<std::string> about_conf;
  read.Into("rdzv_conf", config.rendezvous_options,
            [&](const std::string& text) { return ParseRendezvousConf(text, about_conf); });
  Warn("rdzv_conf", about_conf, config);
  read.Into("rdzv_id", config.run_id, ParseName);
  read.Into("role", config.role, ParseName);
  read.Into("local_addr", config.local_addr, ParseHost);
  read.Into("network", config.network, ParseInterface);
  read.Into("redirects", config.redirects, ParseStreamChoice);
  read.Into("tee", config.tee, ParseStreamChoice);
  read.Into("local_ranks_filter", config.console_ranks, ParseLocalRanks);
  read.Into("duplicate_stdout_filters", config.stdout_filters, ParseLineFilters);
  read.Into("duplicate_stderr_filters", config.stderr_filters, ParseLineFilters);
  config.log_line_prefix_template = read.Text("log_line_prefix_template");
  ReadRunAs(read, config);
  ReadPythonOnly(read, config);
  const GivenValue* signals = read.Find("signals_to_handle");
  config.signals_to_handle = signals != nullptr ? signals->text : kDefaultSignalsToHandle;
  std::vector<std::string> about_signals;
  config.more_stop_signals = MoreStopSignals(config.signals_to_handle, about_signals);
  Warn("signals_to_handle", about_signals, config);
  read.Into("preempt_signal", config.preempt_signal, ParsePreemptSignal);
  read.Into("requeue_code", config.requeue_code,
            [](const std::string& text) { return ParseNumber(text, 0, 255); });
  const GivenValue* code = read.Find("requeue_code");
  if (code != nullptr && code->is_default && config.preempt_signal == 0)
    config.requeue_code.reset();
  config.trust = ReadTrustFiles(read);
  ReadWatchOptions(read, config);
  read.Into("numa_binding", config.numa_binding, ParseNumaBinding);
  config.virtual_local_rank = read.Flag("virtual_local_rank");
  config.checks_itself = read.Flag("check");
  config.log_dir = read.Text("log_dir");
  read.Into("report_file", config.report_file, ParsePath);
  read.Into("termination_message_file", config.termination_message_file, ParsePath);
  const GivenValue* message = read.FindText("termination_message_file");
  if (message != nullptr && message->text == config.report_file) {
    read.Refuse(*message, "--report-file names it, too; expected a file of its own");
  }
  if (config.role.empty()) config.role = "default";
}

// Empty: nobody said.
std::optional<RendezvousKind> ReadBackend(OptionReader& read) {
  const GivenValue* value = read.FindText("rdzv_backend");
  if (value == nullptr) return std::nullopt;
  if (value->text == "c10d" || value->text == "grpc") return RendezvousKind::kC10d;
  if (value->text == "etcd") return RendezvousKind::kEtcd;
  if (value->text == "etcd-v2") {
    read.Refuse(*value,
                "it needs the v2 API, which etcd 3.4 and newer switch off; use --rdzv-backend=etcd "
                "with the same --rdzv-endpoint");
  } else if (value->text != "static") {
    read.Refuse(*value, absl::StrCat("expected c10d, grpc, etcd or static",
                                     DidYouMean(value->text, {"c10d", "grpc", "etcd", "static"})));
  }
  return RendezvousKind::kStatic;
}

void RefuseUnreachable(OptionReader& read, const GivenValue* value, const Endpoint& endpoint) {
  if (value == nullptr) return;
  if (const std::string why = WhyUnreachable(endpoint.host); !why.empty()) read.Refuse(*value, why);
}

void ReadStaticEndpoint(OptionReader& read, LaunchConfig& config) {
  if (const GivenValue* value = read.FindText("rdzv_endpoint")) {
    config.endpoint_source = value->source;
    return read.Into("rdzv_endpoint", config.endpoint, [](const std::string& text) {
      absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text, 0);
      if (!endpoint.ok() || endpoint->port != 0) return endpoint;
      return absl::StatusOr<Endpoint>(InvalidArgumentError("static needs a port above 0"));
    });
  }
  config.endpoint = {.host = "127.0.0.1", .port = 29500};  // torchrun's
  config.endpoint_source = config.SourceOf("master_port");
  config.is_endpoint_assumed = read.FindText("master_addr") == nullptr;
  if (!config.is_endpoint_assumed) read.Into("master_addr", config.endpoint.host, ParseHost);
  read.Into("master_port", config.endpoint.port,
            [](const std::string& text) { return ParseNumber(text, 1, 65535); });
}

// `--rdzv-endpoint=$ENDPOINT` of an unset variable, say: several nodes would wait for one another,
// each on its own loopback.
void RefuseEmptyEndpoint(OptionReader& read, const LaunchConfig& config) {
  const GivenValue* value = read.Find("rdzv_endpoint");
  if (value == nullptr || !value->text.empty() || config.nodes.max == 1) return;
  read.Refuse(*value, "expected HOST:PORT; is a shell variable in it unset?");
}

void UseStatic(OptionReader& read, LaunchConfig& config) {
  config.rendezvous = RendezvousKind::kStatic;
  if (!config.node_rank) config.node_rank = 0;
  ReadStaticEndpoint(read, config);
  if (*config.node_rank == 0) return;  // it listens there
  const GivenValue* endpoint = read.FindText("rdzv_endpoint");
  RefuseUnreachable(read, endpoint != nullptr ? endpoint : read.FindText("master_addr"),
                    config.endpoint);
}

void UseC10d(OptionReader& read, const MachineFacts& machine, LaunchConfig& config) {
  config.rendezvous = RendezvousKind::kC10d;
  config.endpoint = {.host = "localhost", .port = kDefaultRendezvousPort};
  config.endpoint_source = config.SourceOf("rdzv_endpoint");
  const GivenValue* value = read.FindText("rdzv_endpoint");
  config.is_endpoint_assumed = value == nullptr;
  if (value != nullptr) {
    read.Into("rdzv_endpoint", config.endpoint,
              [](const std::string& text) { return ParseEndpoint(text, kDefaultRendezvousPort); });
  }
  for (const char* name : {"master_addr", "master_port"}) {
    WarnUnused(read.FindText(name), "only the static backend reads it", config);
  }
  // `localhost:0` and `$(hostname):0` are how torchrun's users ask for a free port on one node.
  const bool is_alone = config.nodes.max == 1;
  const bool is_any_port = value != nullptr && config.endpoint.port == 0;
  const bool is_here = NamesThisMachine(config.endpoint.host, machine.names);
  if (is_alone && (value == nullptr || (is_any_port && is_here))) {
    config.rendezvous = RendezvousKind::kStandalone;
  } else if (is_any_port) {
    read.Refuse(*value, is_alone ? "port 0 is a free port of this machine, and no name or address "
                                   "of it is that host; expected HOST:PORT, or localhost:0"
                                 : "port 0 is for --nnodes=1; expected HOST:PORT");
  } else if (!config.rendezvous_options.is_host.value_or(false)) {
    RefuseUnreachable(read, value, config.endpoint);
  }
}

void UseEtcd(OptionReader& read, LaunchConfig& config) {
  config.rendezvous = RendezvousKind::kEtcd;
  config.endpoint_source = config.SourceOf("rdzv_endpoint");
  const std::string backend = config.SourceOf("rdzv_backend");
  for (const char* name : {"master_addr", "master_port"}) {
    WarnUnused(read.FindText(name), "only the static backend reads it", config);
  }
  if (read.FindText("rdzv_endpoint") == nullptr) {
    return read.Fail(InvalidArgumentError(
        absl::StrCat(backend, " 'etcd': expected --rdzv-endpoint HOST:PORT,..., etcd's members")));
  }
  // One etcd serves many jobs, of many users.
  if (read.FindText("rdzv_id") == nullptr) {
    return read.Fail(InvalidArgumentError(absl::StrCat(
        backend, " 'etcd': expected --rdzv-id, an id of this job alone, the same on all nodes")));
  }
  read.Into("rdzv_endpoint", config.etcd_members, ParseEtcdMembers);
  if (!config.etcd_members.empty()) config.endpoint = config.etcd_members.front();
}

// The rule for what was not said stands in the design: an endpoint alone means c10d, anything
// that names the master or a rank means static, nothing at all on one node means standalone.
void ChooseRendezvous(OptionReader& read, const MachineFacts& machine, LaunchConfig& config) {
  if (read.Flag("standalone")) {
    config.rendezvous = RendezvousKind::kStandalone;
    const std::string why = config.SourceOf("standalone") + " is a job of one node";
    WarnUnused(read.FindText("rdzv_endpoint"), why, config);
    if (config.node_rank.value_or(0) != 0) {
      WarnUnused(read.Find("node_rank"), why, config);
      config.node_rank.reset();
    }
    return;
  }
  const bool names_master = read.FindText("master_addr") || read.FindText("master_port");
  const bool has_endpoint = read.FindText("rdzv_endpoint") != nullptr;
  if (!names_master) RefuseEmptyEndpoint(read, config);
  const bool is_c10d = has_endpoint && !names_master && !config.node_rank;
  const std::optional<RendezvousKind> backend = ReadBackend(read);
  const RendezvousKind kind =
      backend.value_or(is_c10d ? RendezvousKind::kC10d : RendezvousKind::kStatic);
  if (!backend && has_endpoint && config.node_rank && !names_master) {
    config.warnings.push_back(absl::StrCat(
        config.SourceOf("node_rank"), " beside ", config.SourceOf("rdzv_endpoint"),
        " means --rdzv-backend=static, as with torchrun: every node has to name its rank, and "
        "rank 0 serves the endpoint; with --rdzv-backend=c10d the nodes just meet there"));
  }
  if (kind != RendezvousKind::kEtcd && !config.rendezvous_options.etcd_keys.empty()) {
    config.warnings.push_back(absl::StrCat(config.SourceOf("rdzv_conf"), ": ",
                                           absl::StrJoin(config.rendezvous_options.etcd_keys, ", "),
                                           " is not used: only the etcd backend reads it"));
  }
  if (kind == RendezvousKind::kC10d) {
    UseC10d(read, machine, config);
  } else if (kind == RendezvousKind::kEtcd) {
    UseEtcd(read, config);
  } else if (config.nodes.max == 1 && !has_endpoint && !read.FindText("master_port")) {
    config.rendezvous = RendezvousKind::kStandalone;
  } else {
    UseStatic(read, config);
  }
}

void WarnOfRanks(const std::string& option, std::vector<int> ranks, const LaunchConfig& config,
                 std::vector<std::string>& warnings) {
  constexpr size_t kMaxNamed = 8;
  std::erase_if(ranks, [&](int rank) { return rank < config.workers_per_node; });
  if (ranks.empty()) return;
  const bool has_more = ranks.size() > kMaxNamed;
  if (has_more) ranks.resize(kMaxNamed);
  const int last = config.workers_per_node - 1;
  warnings.push_back(
      absl::StrCat(option, ": no worker here has local rank ", absl::StrJoin(ranks, ", "),
                   has_more ? ", ..." : "",
                   last == 0 ? "; the only one is 0" : absl::StrCat("; they are 0 to ", last)));
}

// Whether lines of that stream of some worker reach the console, and so the filters.
bool HasTee(const LaunchConfig& config, bool Streams::*stream) {
  for (int rank = 0; rank < config.workers_per_node; ++rank) {
    const bool is_shown = config.console_ranks.empty() || config.console_ranks.contains(rank);
    if (is_shown && config.tee.For(rank).*stream) return true;
  }
  return false;
}

// What holds between the values.
absl::Status Validate(const LaunchConfig& config) {
  const std::string nodes = config.nodes.is_elastic()
                                ? absl::StrCat(config.nodes.min, ":", config.nodes.max)
                                : absl::StrCat(config.nodes.max);
  if (config.rendezvous == RendezvousKind::kStandalone && config.nodes.max > 1) {
    return InvalidArgumentError(
        absl::StrCat(config.SourceOf("standalone"), " with ", config.SourceOf("nnodes"), " '",
                     nodes, "': expected --nnodes=1, or --rdzv-endpoint instead of --standalone"));
  }
  if (config.rendezvous == RendezvousKind::kStatic && config.nodes.is_elastic()) {
    const bool is_named = config.sources.contains("rdzv_backend");
    return InvalidArgumentError(absl::StrCat(
        config.SourceOf("nnodes"), " '", nodes, "'", is_named ? " with the static backend" : "",
        ": expected a fixed number, or ", is_named ? "--rdzv-backend=c10d with " : "",
        "--rdzv-endpoint=HOST:PORT, at which the nodes meet"));
  }
  if (config.node_rank && *config.node_rank >= config.nodes.max) {
    return InvalidArgumentError(absl::StrCat(
        config.SourceOf("node_rank"), " '", *config.node_rank, "' with ", config.SourceOf("nnodes"),
        " '", nodes, "': expected a rank from 0 to ", config.nodes.max - 1));
  }
  const std::vector<int>& stops = config.more_stop_signals;
  if (std::find(stops.begin(), stops.end(), config.preempt_signal) != stops.end()) {
    return InvalidArgumentError(
        absl::StrCat(config.SourceOf("preempt_signal"), " names a signal of ",
                     config.SourceOf("signals_to_handle"), " '", config.signals_to_handle,
                     "': expected one that either asks the workers to stop or stops the job"));
  }
  if (config.requeue_code && config.preempt_signal == 0) {
    return InvalidArgumentError(
        absl::StrCat(config.SourceOf("requeue_code"), " '", *config.requeue_code,
                     "' without --preempt-signal: expected the signal that asks for a graceful "
                     "stop, too"));
  }
  return absl::OkStatus();
}

}  // namespace

Streams StreamChoice::For(int local_rank) const {
  const auto found = by_local_rank.find(local_rank);
  return found == by_local_rank.end() ? everyone : found->second;
}

std::string LaunchConfig::SourceOf(const std::string& option) const {
  const auto found = sources.find(option);
  return found == sources.end() ? Dashed(option) : found->second;
}

absl::StatusOr<LaunchConfig> BuildLaunchConfig(const GivenOptions& given,
                                               const MachineFacts& machine) {
  LaunchConfig config;
  for (const auto& [option, value] : given) config.sources[option] = value.source;
  OptionReader read(given);
  ReadPlainValues(read, machine, config);
  ChooseRendezvous(read, machine, config);
  if (!read.status().ok()) return read.status();
  WarnOfEtcdPassword(machine, config);
  if (config.rendezvous == RendezvousKind::kStandalone) config.endpoint = {};
  if (config.run_id.empty()) {
    // A standalone job's id may be its own. An empty one is, as in torchrun, replaced by a fresh
    // one; there each of several nodes gets another, and they wait for each other in vain.
    const GivenValue* empty = read.Find("rdzv_id");
    if (empty != nullptr && config.nodes.max > 1) {
      read.Refuse(*empty, "expected an id of the job, the same on all nodes (an unset variable?)");
      return read.status();
    }
    const bool is_own = config.rendezvous == RendezvousKind::kStandalone || empty != nullptr;
    config.run_id = is_own && !machine.fresh_run_id.empty() ? machine.fresh_run_id : kUnnamedJob;
  }
  if (absl::Status status = Validate(config); !status.ok()) return status;
  return config;
}

std::vector<std::string> OutputWarnings(const LaunchConfig& config) {
  std::vector<std::string> warnings;
  for (const auto& [option, choice] :
       {std::pair{"redirects", &config.redirects}, std::pair{"tee", &config.tee}}) {
    std::vector<int> ranks;
    for (const auto& [rank, streams] : choice->by_local_rank) ranks.push_back(rank);
    WarnOfRanks(config.SourceOf(option), std::move(ranks), config, warnings);
  }
  WarnOfRanks(config.SourceOf("local_ranks_filter"),
              {config.console_ranks.begin(), config.console_ranks.end()}, config, warnings);
  const auto check_filters = [&](const char* option, const char* stream, bool is_teed) {
    if (config.log_dir == "/dev/null") {
      warnings.push_back(absl::StrCat(config.SourceOf(option), " copies nothing: with ",
                                      config.SourceOf("log_dir"),
                                      "=/dev/null there is no file to copy to"));
    } else if (!is_teed) {
      warnings.push_back(absl::StrCat(
          config.SourceOf(option), " copies nothing: only lines that ", config.SourceOf("tee"),
          " shows on the console are copied, and it shows no ", stream));
    }
  };
  if (!config.stdout_filters.empty()) {
    check_filters("duplicate_stdout_filters", "stdout", HasTee(config, &Streams::out));
  }
  if (!config.stderr_filters.empty()) {
    check_filters("duplicate_stderr_filters", "stderr", HasTee(config, &Streams::err));
  }
  // The names that LinePrefix (launcher/logs/log_router.h) knows.
  WithMacros(config.log_line_prefix_template, [&](std::string_view name) {
    constexpr std::string_view kKnown[] = {"role_name", "rank", "local_rank", "hostname"};
    if (!name.empty() && std::ranges::find(kKnown, name) == std::end(kKnown)) {
      warnings.push_back(absl::StrCat(
          config.SourceOf("log_line_prefix_template"), ": ", Quoted("${" + std::string(name) + "}"),
          " stays as it is: none of ${role_name}, ${rank}, ${local_rank}, ${hostname}"));
    }
    return std::optional<std::string>();
  });
  return warnings;
}

}  // namespace ddprun::launcher
