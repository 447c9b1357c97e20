#include "launcher/cli/launch_config.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

constexpr char kDefaultStaticHost[] = "127.0.0.1";
constexpr uint16_t kDefaultStaticPort = 29500;

absl::Status Wrong(const GivenValue& given, absl::string_view accepted) {
  return InvalidArgumentError(absl::StrCat(given.source, " ", Quoted(given.text), ": ", accepted));
}

// Hands out the options by name and remembers the first one that was wrong.
class Reader {
 public:
  explicit Reader(const GivenOptions& given) : given_(given) {}

  const GivenValue* Find(const std::string& name) const {
    const auto found = given_.find(name);
    return found == given_.end() ? nullptr : &found->second;
  }
  // An empty text counts as not given, as in torchrun.
  const GivenValue* FindText(const std::string& name) const {
    const GivenValue* value = Find(name);
    return value != nullptr && !value->text.empty() ? value : nullptr;
  }
  std::string Text(const std::string& name, std::string fallback) const {
    const GivenValue* value = FindText(name);
    return value != nullptr ? value->text : std::move(fallback);
  }
  // Parses the option into `target`, which keeps its value when the option is absent or wrong.
  template <typename T, typename Parse>
  void Into(const std::string& name, T& target, Parse parse) {
    const GivenValue* value = Find(name);
    if (value == nullptr) return;
    auto parsed = parse(value->text);
    if (parsed.ok()) {
      target = *std::move(parsed);
    } else {
      Fail(Wrong(*value, parsed.status().message()));
    }
  }
  bool Flag(const std::string& name) {
    bool is_set = false;
    Into(name, is_set, ParseFlag);
    return is_set;
  }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const absl::Status& status() const { return status_; }

 private:
  const GivenOptions& given_;
  absl::Status status_;
};

// What the reader of one option has to say of a value that it took.
void Warn(const std::string& option, const std::vector<std::string>& texts, LaunchConfig& config) {
  for (const std::string& text : texts) {
    config.warnings.push_back(absl::StrCat(config.SourceOf(option), ": ", text));
  }
}

absl::StatusOr<std::string> HostOrNothing(const std::string& text) {
  if (text.empty()) return std::string();
  return ParseHost(text);
}

// Counting GPUs takes a probe of the driver: no business of a reader of options.
void ReadWorkers(Reader& read, const MachineFacts& machine, LaunchConfig& config) {
  const GivenValue* value = read.Find("nproc_per_node");
  if (value != nullptr && (value->text == "gpu" || value->text == "auto")) {
    config.workers_by = value->text == "gpu" ? WorkersBy::kGpu : WorkersBy::kGpuOrCpu;
    return;
  }
  read.Into("nproc_per_node", config.workers_per_node,
            [&](const std::string& text) { return ParseWorkersPerNode(text, machine.cpu_count); });
}

// torchrun: --run_path wins over the other two, which exclude each other.
void ReadRunAs(Reader& read, LaunchConfig& config) {
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
void ReadPythonOnly(Reader& read, LaunchConfig& config) {
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
    read.Fail(Wrong(*value,
                    "plug-ins written in Python are out of reach here; expected --log_dir, "
                    "--redirects and --tee in its place"));
  }
}

void ReadPlainValues(Reader& read, const MachineFacts& machine, LaunchConfig& config) {
  read.Into("nnodes", config.nodes, ParseNodeRange);
  ReadWorkers(read, machine, config);
  read.Into("node_rank", config.node_rank,
            [](const std::string& text) { return ParseNumber(text, 0, kMaxNodes - 1); });
  read.Into("max_restarts", config.max_restarts,
            [](const std::string& text) { return ParseNumber(text, 0, 1000000); });
  read.Into("shutdown_timeout", config.shutdown_timeout,
            [](const std::string& text) { return ParseSeconds(text, true); });
  double unused;  // exits are seen at once: there is nothing to poll
  read.Into("monitor_interval", unused, ParseInterval);
  std::vector<std::string> about_conf;
  read.Into("rdzv_conf", config.rendezvous_options,
            [&](const std::string& text) { return ParseRendezvousConf(text, about_conf); });
  Warn("rdzv_conf", about_conf, config);
  read.Into("rdzv_id", config.run_id, ParseName);
  read.Into("role", config.role, ParseName);
  read.Into("local_addr", config.local_addr, HostOrNothing);
  read.Into("redirects", config.redirects, ParseStreamChoice);
  read.Into("tee", config.tee, ParseStreamChoice);
  read.Into("local_ranks_filter", config.console_ranks, ParseLocalRanks);
  read.Into("duplicate_stdout_filters", config.stdout_filters, ParseLineFilters);
  read.Into("duplicate_stderr_filters", config.stderr_filters, ParseLineFilters);
  config.log_line_prefix_template = read.Text("log_line_prefix_template", "");
  ReadRunAs(read, config);
  ReadPythonOnly(read, config);
  const GivenValue* signals = read.Find("signals_to_handle");
  config.signals_to_handle = signals != nullptr ? signals->text : kDefaultSignalsToHandle;
  std::vector<std::string> about_signals;
  config.more_stop_signals = MoreStopSignals(config.signals_to_handle, about_signals);
  Warn("signals_to_handle", about_signals, config);
  read.Into("numa_binding", config.numa_binding, ParseNumaBinding);
  config.virtual_local_rank = read.Flag("virtual_local_rank");
  config.log_dir = read.Text("log_dir", "");
  config.report_file = read.Text("report_file", "");
  if (config.role.empty()) config.role = "default";
}

enum class Asked { kNothing, kC10d, kStatic };

Asked ReadBackend(Reader& read) {
  const GivenValue* value = read.FindText("rdzv_backend");
  if (value == nullptr) return Asked::kNothing;
  if (value->text == "c10d" || value->text == "grpc") return Asked::kC10d;
  if (value->text.rfind("etcd", 0) == 0) {
    read.Fail(Wrong(*value,
                    "no etcd server is needed here; expected c10d with --rdzv_endpoint, "
                    "whose host serves the rendezvous itself"));
  } else if (value->text != "static") {
    const std::string nearest = NearestName(value->text, {"c10d", "grpc", "static"});
    read.Fail(Wrong(*value, absl::StrCat("expected c10d, grpc or static",
                                         nearest.empty() ? "" : "; did you mean ", nearest,
                                         nearest.empty() ? "" : "?")));
  }
  return Asked::kStatic;
}

void UseStatic(Reader& read, LaunchConfig& config) {
  config.rendezvous = RendezvousKind::kStatic;
  if (!config.node_rank) config.node_rank = 0;
  if (const GivenValue* value = read.FindText("rdzv_endpoint")) {
    absl::StatusOr<Endpoint> endpoint = ParseEndpoint(value->text, 0);
    if (endpoint.ok() && endpoint->port == 0) {
      endpoint = InvalidArgumentError("static needs a port above 0");
    }
    if (!endpoint.ok()) return read.Fail(Wrong(*value, endpoint.status().message()));
    config.endpoint = *endpoint;
    config.endpoint_source = value->source;
    return;
  }
  config.endpoint = {.host = kDefaultStaticHost, .port = kDefaultStaticPort};
  config.endpoint_source = config.SourceOf("master_port");
  config.is_endpoint_assumed = read.FindText("master_addr") == nullptr;
  read.Into("master_addr", config.endpoint.host, [](const std::string& text) {
    return HostOrNothing(text.empty() ? kDefaultStaticHost : text);
  });
  read.Into("master_port", config.endpoint.port,
            [](const std::string& text) { return ParseNumber(text, 1, 65535); });
}

bool IsLoopbackName(const std::string& host) {
  return host == "localhost" || host == "::1" || host.substr(0, 4) == "127.";
}

void UseC10d(Reader& read, LaunchConfig& config) {
  config.rendezvous = RendezvousKind::kC10d;
  config.endpoint = {.host = "localhost", .port = kDefaultRendezvousPort};
  config.endpoint_source = config.SourceOf("rdzv_endpoint");
  const GivenValue* value = read.FindText("rdzv_endpoint");
  config.is_endpoint_assumed = value == nullptr;
  if (value != nullptr) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(value->text, kDefaultRendezvousPort);
    if (!endpoint.ok()) return read.Fail(Wrong(*value, endpoint.status().message()));
    config.endpoint = *endpoint;
  }
  for (const char* name : {"master_addr", "master_port"}) {
    if (const GivenValue* unused = read.FindText(name)) {
      config.warnings.push_back(absl::StrCat(unused->source, " ", Quoted(unused->text),
                                             " is not used: only the static backend reads it"));
    }
  }
  // `localhost:0` is how torchrun's users ask for a free port on one node.
  const bool is_alone = config.nodes.max == 1;
  if (is_alone &&
      (value == nullptr || (config.endpoint.port == 0 && IsLoopbackName(config.endpoint.host)))) {
    config.rendezvous = RendezvousKind::kStandalone;
  } else if (config.endpoint.port == 0) {
    read.Fail(Wrong(*value, "port 0 is for --nnodes=1 on localhost; expected HOST:PORT"));
  }
}

// The rule for what was not said stands in the design: an endpoint alone means c10d, anything
// that names the master or a rank means static, nothing at all on one node means standalone.
void ChooseRendezvous(Reader& read, LaunchConfig& config) {
  if (read.Flag("standalone")) {
    config.rendezvous = RendezvousKind::kStandalone;
    const auto warn_of = [&](const GivenValue& value) {
      config.warnings.push_back(absl::StrCat(value.source, " ", Quoted(value.text),
                                             " is not used: ", config.SourceOf("standalone"),
                                             " is a job of one node"));
    };
    if (const GivenValue* value = read.FindText("rdzv_endpoint")) warn_of(*value);
    if (config.node_rank.value_or(0) != 0) {
      warn_of(*read.Find("node_rank"));
      config.node_rank.reset();
    }
    return;
  }
  const bool names_master = read.FindText("master_addr") || read.FindText("master_port");
  const bool has_endpoint = read.FindText("rdzv_endpoint") != nullptr;
  Asked asked = ReadBackend(read);
  if (asked == Asked::kNothing) {
    asked = has_endpoint && !names_master && !config.node_rank ? Asked::kC10d : Asked::kStatic;
  }
  if (asked == Asked::kC10d) {
    UseC10d(read, config);
  } else if (config.nodes.max == 1 && !has_endpoint && !read.FindText("master_port")) {
    config.rendezvous = RendezvousKind::kStandalone;
  } else {
    UseStatic(read, config);
  }
}

}  // namespace

Streams StreamChoice::For(int local_rank) const {
  const auto found = by_local_rank.find(local_rank);
  return found == by_local_rank.end() ? everyone : found->second;
}

std::string LaunchConfig::SourceOf(const std::string& option) const {
  const auto found = sources.find(option);
  return found == sources.end() ? absl::StrCat("--", option) : found->second;
}

absl::StatusOr<LaunchConfig> BuildLaunchConfig(const GivenOptions& given,
                                               const MachineFacts& machine) {
  LaunchConfig config;
  for (const auto& [option, value] : given) config.sources[option] = value.source;
  Reader read(given);
  ReadPlainValues(read, machine, config);
  ChooseRendezvous(read, config);
  if (!read.status().ok()) return read.status();
  if (config.rendezvous == RendezvousKind::kStandalone) config.endpoint = {};
  if (config.run_id.empty()) {
    // A standalone job's id may be its own. An empty one is, as in torchrun, replaced by a fresh
    // one; there each of several nodes gets another, and they wait for each other in vain.
    const GivenValue* empty = read.Find("rdzv_id");
    if (empty != nullptr && config.nodes.max > 1) {
      return Wrong(*empty, "expected an id of the job, the same on all nodes (an unset variable?)");
    }
    const bool is_own = config.rendezvous == RendezvousKind::kStandalone || empty != nullptr;
    config.run_id = is_own && !machine.fresh_run_id.empty() ? machine.fresh_run_id : "none";
  }
  if (absl::Status status = Validate(config); !status.ok()) return status;
  return config;
}

absl::Status Validate(const LaunchConfig& config) {
  const std::string nodes = config.nodes.is_elastic()
                                ? absl::StrCat(config.nodes.min, ":", config.nodes.max)
                                : absl::StrCat(config.nodes.max);
  if (config.rendezvous == RendezvousKind::kStandalone && config.nodes.max > 1) {
    return InvalidArgumentError(
        absl::StrCat(config.SourceOf("standalone"), " with ", config.SourceOf("nnodes"), " '",
                     nodes, "': expected --nnodes=1, or --rdzv_endpoint in place of --standalone"));
  }
  if (config.rendezvous == RendezvousKind::kStatic && config.nodes.is_elastic()) {
    return InvalidArgumentError(absl::StrCat(config.SourceOf("nnodes"), " '", nodes,
                                             "' with the static backend: expected a fixed number, "
                                             "or --rdzv_backend=c10d with --rdzv_endpoint"));
  }
  if (config.node_rank && *config.node_rank >= config.nodes.max) {
    return InvalidArgumentError(absl::StrCat(
        config.SourceOf("node_rank"), " '", *config.node_rank, "' with ", config.SourceOf("nnodes"),
        " '", nodes, "': expected a rank from 0 to ", config.nodes.max - 1));
  }
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
