// What one `ddprun` was asked to do, as plain values. [pure]
#ifndef DDPRUN_LAUNCHER_CLI_LAUNCH_CONFIG_H_
#define DDPRUN_LAUNCHER_CLI_LAUNCH_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"
#include "rendezvous/core/types.h"
#include "rendezvous/etcd/etcd_options.h"

namespace ddprun::launcher {

// --nnodes: N or MIN:MAX.
struct NodeRange {
  int min = 1;
  int max = 1;
  bool is_elastic() const { return min != max; }
};

enum class RendezvousKind {
  kStandalone,  // one node, everything in this process, no TCP port
  kC10d,        // the agent on the endpoint's host is the coordinator
  kEtcd,        // an agent that etcd agrees on is the coordinator, and another when it is gone
  kStatic,      // fixed nodes with given ranks; MASTER_ADDR and MASTER_PORT are the endpoint
};

struct Endpoint {
  std::string host;  // a name or an address; IPv6 without brackets
  uint16_t port = 0;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// What --rdzv_conf says, in our terms.
struct RendezvousConf {
  Duration join_timeout = std::chrono::seconds(600);
  Duration last_call = std::chrono::seconds(30);
  Duration exit_barrier_timeout = std::chrono::seconds(300);
  // How long workers live on without contact to the coordinator; default: join_timeout.
  Duration orphan_timeout = std::chrono::seconds(600);
  std::optional<Duration> keep_alive_interval;  // a node's beats come at least as often
  // keep_alive_interval * keep_alive_max_attempt when either is given: how long a silent node
  // stays in the job. Empty: the coordinator's own default.
  std::optional<Duration> evict_after;
  // Whether this agent hosts the coordinator; empty: found out from the endpoint, or by etcd.
  std::optional<bool> is_host;
  // Without the members of etcd and the password; and what of it was given.
  rendezvous::EtcdOptions etcd;
  std::vector<std::string> etcd_keys;
};

// A choice of a worker's output streams.
struct Streams {
  bool out = false;
  bool err = false;
  friend bool operator==(const Streams&, const Streams&) = default;
};

// --redirects and --tee: one choice for every local rank (`3`) or one each (`0:1,12:3`).
struct StreamChoice {
  Streams everyone;
  std::map<int, Streams> by_local_rank;

  Streams For(int local_rank) const;
  bool is_none() const { return everyone == Streams{} && by_local_rank.empty(); }
};

// What --nproc_per_node names.
enum class WorkersBy {
  kNumber,    // a number, or cpu: workers_per_node has it
  kGpu,       // the visible GPUs
  kGpuOrCpu,  // auto: the same, and where there is none the CPUs
};

// How a worker executes the program.
enum class RunAs {
  kByName,   // a name ending in .py under Python, anything else as it is
  kItself,   // --no_python: as it is
  kModule,   // -m: python -m
  kRunPath,  // --run_path: under Python by runpy.run_path, whatever its name
};

// --numa_binding: what of the machine a worker is bound to, near its GPU.
enum class NumaBinding { kNode, kSocket, kExclusive, kCoreComplex };

// --on_hang: what is done about a hang beside telling of it.
enum class OnHang { kReport, kDump, kRestart };

// Files by which this node proves that it is of its job; all empty: none were given. Either the
// first or the others.
struct TrustFiles {
  std::string token;
  std::string token_source = "--token-file";  // what messages call it
  std::string cert;
  std::string key;
  std::string ca;
};

// --health-check=ddprun-check: ddprun's own check, as --check.
inline constexpr char kOwnHealthCheck[] = "ddprun-check";

// The id of a job that nobody has named, as torchrun's.
inline constexpr char kUnnamedJob[] = "none";

struct LaunchConfig {
  NodeRange nodes;
  int workers_per_node = 1;
  // Other than kNumber: not known before the driver was asked (ResolveWorkers).
  WorkersBy workers_by = WorkersBy::kNumber;
  std::vector<int> gpus;                    // gpu:1,3,5: one worker on each; empty: not chosen
  std::optional<NumaBinding> numa_binding;  // empty: workers inherit the launcher's CPUs
  bool virtual_local_rank = false;          // LOCAL_RANK=0, and each worker sees its own GPU alone
  std::optional<int> node_rank;             // always there with kStatic

  RendezvousKind rendezvous = RendezvousKind::kStandalone;
  Endpoint endpoint;  // empty with kStandalone; kEtcd: its first member
  std::vector<Endpoint> etcd_members;
  std::vector<uint16_t> more_ports;  // for nodes that others keep from the endpoint's
  std::string endpoint_source;       // what messages call the option that names its port
  bool is_endpoint_assumed = false;  // nobody named its host
  std::string run_id;
  RendezvousConf rendezvous_options;
  std::string local_addr;  // empty: not given
  std::string network;     // the interface of --network; empty: not given
  TrustFiles trust;

  int max_restarts = 0;
  rendezvous::RestartLimits limits;
  rendezvous::BadNodeRules bad_nodes;
  rendezvous::ScaleUp scale_up = rendezvous::ScaleUp::kNow;
  std::string health_check;  // --health-check, for a shell, or kOwnHealthCheck; empty: none
  std::string on_bad_node;   // --on-bad-node, for a shell; empty: none
  Duration shutdown_timeout = std::chrono::seconds(30);
  Duration keep_children{0};                         // what a worker leaves after its success
  Duration hang_timeout = std::chrono::seconds(30);  // 0: hangs are not looked for
  OnHang on_hang = OnHang::kReport;
  // Where pages for people and for Prometheus are served; port 0: a free one. Empty: nowhere.
  std::optional<Endpoint> dashboard;
  std::optional<Endpoint> metrics;
  std::string event_file;  // empty: not given
  std::string role = "default";

  std::string log_dir;  // empty: not given; "/dev/null": no files at all
  StreamChoice redirects;
  StreamChoice tee;
  std::set<int> console_ranks;              // local ranks that reach the console; empty: all
  std::vector<std::string> stdout_filters;  // what a tee'd line holds that is copied
  std::vector<std::string> stderr_filters;
  std::string log_line_prefix_template;  // empty: not given

  // As given, for the workers' environment, and what stops the job beyond INT, TERM, HUP and QUIT.
  std::string signals_to_handle;
  std::vector<int> more_stop_signals;
  int preempt_signal = 0;                    // asks the workers to save and stop; 0: none
  std::optional<int> requeue_code;           // our exit code where a worker has read that
  std::string report_file;                   // empty: not given
  std::string termination_message_file;      // empty: none
  bool is_termination_file_assumed = false;  // nobody named it: Kubernetes' own
  std::string report_node;  // the node that prints the report of a failure; empty: each does
  std::string event_log_handler = "null";  // null, console or dynamic_rendezvous

  bool checks_itself = false;  // --check: before it joins
  bool is_check = false;       // ddprun check: the program is ddprun, and its failure a finding

  RunAs run_as = RunAs::kByName;
  std::string program;
  std::vector<std::string> args;  // the program's, verbatim

  // For the user to see once the job is known to start: what the cluster's variables told (empty:
  // nothing), and warnings of one line each.
  std::string cluster_line;
  std::string site_line;  // what came from the site's file, for the log; empty: nothing
  std::vector<std::string> warnings;

  rendezvous::ClusterPlace cluster;  // for the coordinator, which refuses agents of another

  // Where the value of each option that was given came from, by the option's name.
  std::map<std::string, std::string> sources;
  // What a message calls an option: "PET_TEE" where that gave the value, "--tee" otherwise.
  std::string SourceOf(const std::string& option) const;
};

struct Deprecation;  // option_table.h

// The text given for one option and where it came from ("--nnodes" or "PET_NNODES").
struct GivenValue {
  std::string text;
  std::string source;
  bool is_default = false;  // of the site: it yields to what it does not go together with
  const Deprecation* old_name = nullptr;  // it was given by that; nullptr: by the option's name
};

// Options by their underscore name, flags as "1" or "0"; what is absent was not given.
using GivenOptions = std::map<std::string, GivenValue>;

// What a configuration depends on beyond the words of the user.
struct MachineFacts {
  int cpu_count = 1;               // CPUs this process may use
  bool is_interactive = false;     // stdin is a terminal, and not Slurm has started us
  std::string fresh_run_id;        // for a job that was given none and that nobody else joins
  bool has_etcd_password = false;  // DDPRUN_ETCD_PASSWORD
  std::vector<std::string> names;  // its host name and the addresses of its interfaces
};

// Turns options into a valid configuration, defaults filled in. The error is InvalidArgument and
// one line that quotes the value and says what is accepted. Program and args are left empty.
absl::StatusOr<LaunchConfig> BuildLaunchConfig(const GivenOptions& given,
                                               const MachineFacts& machine);

// Of a user of etcd who has no password, or whose password everybody on the network can read.
void WarnOfEtcdPassword(const MachineFacts& machine, LaunchConfig& config);

// One line for each thing that was asked for and cannot happen: local ranks that are not on this
// node, copies of lines that nothing tees. REQUIRES: workers_per_node is known.
std::vector<std::string> OutputWarnings(const LaunchConfig& config);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_LAUNCH_CONFIG_H_
