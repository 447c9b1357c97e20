#include "launcher/cli/option_table.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

constexpr const char* kJob = "Job";
constexpr const char* kProgram = "Program";
constexpr const char* kMeeting = "Rendezvous";
constexpr const char* kFailure = "Failures";
constexpr const char* kOutput = "Output";
constexpr const char* kWatching = "Watching";
constexpr const char* kOther = "Other";
constexpr const char* kOptions = "Options";  // of a command

constexpr Deprecation kDeprecations[] = {
    {"--max-same-failure", "max_same_failures", "--max-same-failure=N", "--max-same-failures=N-1",
     "0.1.0", "the Nth same failure ends the job"},
    {"--json", "output", "bench --json=FILE", "bench --output=FILE", "0.1.0", "the same"},
    {"--ranks", "world_sizes", "bench --ranks=N,...", "bench --world-sizes=N,...", "0.1.0",
     "the same"},
    {"--after-step", "graceful", "stop --after-step", "stop --graceful", "0.1.0", "the same"},
};

// That of an option's successor.
consteval const Deprecation* OldNameOf(std::string_view successor) {
  for (const Deprecation& row : kDeprecations) {
    if (successor == row.successor) return &row;
  }
  std::abort();  // not while compiling
}

constexpr OptionRow kTable[] = {
    {"nnodes", 0, "N|MIN:MAX", kJob, "Number of nodes, or a range (default 1)."},
    {"nproc_per_node", 0, "COUNT|gpu|cpu|auto", kJob,
     "Workers on this node: a number (default 1), gpu (one for each visible GPU), cpu (one for "
     "each CPU) or auto. With auto it is gpu, or cpu without a GPU. With gpu:1,3,5 there is one on "
     "each "
     "of these."},
    {"workers", 'n', "N", kJob,
     "Workers of all nodes together, as mpirun's -n and -np: divided among --nnodes, or with "
     "--nproc-per-node (-ppn) it says how many nodes there are.",
     false, true},
    {"node_rank", 0, "N", kJob,
     "Rank of this node; with the static backend each needs its own (default there 0)."},
    {"role", 0, "NAME", kJob, "Role of this node's workers (default 'default')."},
    {"no_python", 0, nullptr, kProgram, "Execute the program as it is, also if it is a .py file."},
    {"module", 'm', nullptr, kProgram, "PROGRAM is a Python module: run as python3 -u -m PROGRAM."},
    {"run_path", 0, nullptr, kProgram,
     "PROGRAM is a Python script of any name, run by runpy.run_path; wins over the two "
     "above."},
    {"numa_binding", 0, "node|socket|exclusive|core-complex", kJob,
     "Bind each worker to CPUs near its GPU.", false},
    {"virtual_local_rank", 0, nullptr, kJob,
     "Show each worker its own GPU alone, as LOCAL_RANK 0."},
    {"standalone", 0, nullptr, kMeeting, "One node, free ports, no endpoint."},
    {"no_cluster", 0, nullptr, kMeeting,
     "Derive nothing from the variables of Slurm, Open MPI, PMIx, SkyPilot or an indexed Job.",
     false, true},
    {"rdzv_endpoint", 0, "HOST[:PORT]", kMeeting,
     "Address at which the nodes meet; the node on HOST serves it (default port 29400). With etcd "
     "its members, HOST:PORT,... (default port 2379)."},
    {"rdzv_backend", 0, "c10d|etcd|static", kMeeting,
     "c10d (alias grpc) is the default with an endpoint alone."},
    {"rdzv_id", 0, "ID", kMeeting, "Id of the job, equal on all nodes."},
    {"rdzv_conf", 0, "K=V,...", kMeeting,
     "join_timeout (600), last_call_timeout (30), keep_alive_interval, "
     "keep_alive_max_attempt, is_host, orphan_timeout, exit_barrier_timeout (300); times "
     "in seconds. Of etcd: protocol=https, cacert, cert, key, user (the password in "
     "$DDPRUN_ETCD_PASSWORD), etcd_prefix (/ddprun). Accepted without effect: close_timeout, "
     "heartbeat_timeout, "
     "read_timeout, cas_backoff_max_seconds, rank, store_type=tcp."},
    {"master_addr", 0, "HOST", kMeeting,
     "Address of node 0 with the static backend (default 127.0.0.1)."},
    {"master_port", 0, "PORT", kMeeting,
     "Port on node 0 with the static backend (default 29500; one node: a free one)."},
    {"local_addr", 0, "HOST", kMeeting,
     "Address of this node for the others (default: found out)."},
    {"network", 0, "INTERFACE", kMeeting,
     "Network interface for NCCL and Gloo: their *_SOCKET_IFNAME in the workers.", true, true},
    {"token_file", 0, "FILE", kMeeting,
     "File with the job's token (ddprun token new), the same on all nodes, or the variable "
     "DDPRUN_TOKEN: agents prove that they have it, and all between them is encrypted.",
     true, true},
    {"tls_cert", 0, "FILE", kMeeting,
     "Instead of a token: this node's certificate, and those between it and the authority (PEM).",
     true, true},
    {"tls_key", 0, "FILE", kMeeting, "The certificate's key, without a password (PEM).", true,
     true},
    {"tls_ca", 0, "FILE", kMeeting,
     "The authorities whose certificates are believed: of this job's nodes alone (PEM).", true,
     true},
    {"max_restarts", 0, "N", kFailure,
     "How often the whole job is restarted after a failure (default 0)."},
    {"max_same_failures", 0, "N", kFailure,
     "End the job if it fails more than N times in a row at the same step with the same error "
     "(from 1; default: no limit).",
     true, true},
    {"max_same_failure", 0, "N", kFailure, "", true, true, false, OldNameOf("max_same_failures")},
    {"max_node_losses", 0, "N", kFailure,
     "End the job if more than N rounds have ended by the loss of a node (default: no limit).",
     true, true},
    {"max_preemptions", 0, "N", kFailure,
     "The same for nodes that leave because a signal told their ddprun to end.", true, true},
    {"restart_backoff", 0, "SECONDS", kFailure,
     "Wait before the second restart in a row, twice as long before each further one, at most 300 "
     "s; after 10 minutes of progress it begins again (default: no wait).",
     true, true},
    {"restart_budget_period", 0, "SECONDS", kFailure,
     "Give restarts, node losses and preemptions back after so long of progress, as 3600 (default: "
     "never).",
     true, true},
    {"scale_up", 0, "now|graceful|restart", kFailure,
     "When a job with room restarts for new nodes: 5 s after they come, after a graceful stop, or "
     "by the next restart of another cause (default now).",
     true, true},
    {"health_check", 0, "CMD", kFailure,
     "Run CMD by a shell on each node before each round, beside the stop of its workers, and on "
     "spares while they wait. Exit code 0 is healthy, 1 is bad; a bad node leaves the job. "
     "ddprun-check is ddprun's own check.",
     true, true},
    {"health_timeout", 0, "SECONDS", kFailure,
     "How long --health-check may take, and how long a spare waits before the next one (default "
     "60).",
     true, true},
    {"health_unknown", 0, "admit|refuse", kFailure,
     "What to do with a node whose check has no result: another exit code, or none in time "
     "(default admit).",
     true, true},
    {"max_node_failures", 0, "N[:ROUNDS]", kFailure,
     "Count a node as bad if its workers failed first in more than N of the last ROUNDS rounds "
     "(default: no limit; ROUNDS is 10).",
     true, true},
    {"quarantine", 0, "SECONDS", kFailure,
     "How long no agent on the host of a bad node is let into this job (default 3600).", true,
     true},
    {"max_bad_nodes", 0, "N", kFailure,
     "End the job if more than N nodes are bad: the check may be broken (default 3).", true, true},
    {"on_bad_node", 0, "CMD", kFailure,
     "Run CMD HOST REASON by a shell for each bad node, on the node of the coordinator.", true,
     true},
    {"monitor_interval", 0, "SECONDS", kFailure, "Accepted; a worker's end is seen at once."},
    {"shutdown_timeout", 0, "SECONDS", kFailure,
     "From SIGTERM to SIGKILL when workers are stopped (default "
     "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT or 30)."},
    {"keep_children", 0, "SECONDS", kFailure,
     "Let processes that a worker leaves go on for so long after it has ended with 0 (default 0: "
     "they are ended). One with a GPU open is ended at once; a failure, a stop or a restart ends "
     "all. Once all ranks have succeeded, a signal or `ddprun stop` ends this wait and the exit "
     "code is 0.",
     true, true},
    {"log_dir", 0, "DIR", kOutput,
     "Where log files go: DIR/<id>_<random>/attempt_<n>/<local_rank>/."},
    {"redirects", 'r', "STREAMS", kOutput,
     "Send to files: 1 stdout, 2 stderr, 3 both, or one for each local rank: 0:1,1:3."},
    {"tee", 't', "STREAMS", kOutput, "Like --redirects, and to the console with a prefix."},
    {"local_ranks_filter", 0, "RANKS", kOutput,
     "Show only these local ranks on the console, as in 0,12; files keep all."},
    {"duplicate_stdout_filters", 0, "TEXTS", kOutput,
     "Copy tee'd stdout lines that hold one of these texts (by comma, ,, is a comma) to "
     "attempt_<n>/filtered_stdout.log, all ranks together."},
    {"duplicate_stderr_filters", 0, "TEXTS", kOutput,
     "The same for stderr, to filtered_stderr.log."},
    {"log_line_prefix_template", 0, "TEXT", kOutput,
     "Prefix of tee'd lines with ${role_name}, ${rank}, ${local_rank}, ${hostname} "
     "(default '[${role_name}${local_rank}]:')."},
    {"signals_to_handle", 0, "NAMES", kFailure,
     "Signals that stop the job, besides SIGTERM, SIGINT, SIGHUP and SIGQUIT, which always "
     "do: SIGUSR1,SIGUSR2,... Without it SIGUSR1 and SIGUSR2 are passed on to the workers."},
    {"preempt_signal", 0, "SIGNAL", kFailure,
     "Signal (USR1, ...) that asks this node's workers for a graceful stop: they save and end "
     "after their step, by a flag that they poll. It is not passed on to them.",
     true, true},
    {"requeue_code", 0, "CODE", kFailure,
     "Exit code, 0 to 255, after a graceful stop that a worker of this node has read.", true, true},
    {"event_log_handler", 0, "null|console", kOutput,
     "Where torchrun's events go: null (nowhere, the default) or console (stderr, as JSON)."},
    {"hang_timeout", 0, "SECONDS", kWatching,
     "How long ranks may wait in a collective for others, or no step end, until that is called a "
     "hang (default 30; 0: never).",
     true, true},
    {"on_hang", 0, "report|dump|restart", kWatching,
     "What is done about a hang: one line (report, the default), a folder with all stacks as well, "
     "or a restart as after a failure.",
     true, true},
    {"dashboard", 0, "[HOST:]PORT", kWatching,
     "Serve a page that shows the job: 8080 on loopback, :8080 on all interfaces (default: a free "
     "port on loopback).",
     true, true, true},
    {"metrics", 0, "[HOST:]PORT", kWatching,
     "Serve metrics for Prometheus: 9400 on loopback, :9400 on all interfaces (default: a free "
     "port on loopback).",
     true, true, true},
    {"event_file", 0, "PATH", kWatching, "Append what happens there, as JSON lines.", true, true},
    {"check", 0, nullptr, kFailure,
     "Let this node check itself for some seconds before it joins; one that fails ends with 120 "
     "and leaves its place to a spare.",
     true, true},
    {"start_method", 0, "spawn|fork|forkserver", kOther,
     "Accepted; workers are always processes of their own."},
    {"logs_specs", 0, "NAME", kOther,
     "A Python plug-in of torchrun's: not possible here, see --log-dir, -r and -t.", false},
    {"report_file", 0, "PATH", kOutput,
     "Write the end of the job there as JSON: outcome, failures, rounds.", true, true},
    {"termination_message_file", 0, "PATH", kOutput,
     "Write the first failure there in at most 4096 bytes (default in a container of "
     "Kubernetes: /dev/termination-log).",
     true, true},
    {"print_completion", 0, "bash|zsh|tcsh|fish", kOther,
     "Print the completion of the command line for that shell.", false},
    {"help", 'h', nullptr, kOther, "The commands and the commonest options.", false},
    {"help_all", 0, nullptr, kOther, "Every command, option and exit code.", false, true},
    {"version", 0, nullptr, kOther, "The version and the protocol.", false},
};

// The same option as ddprun's own.
consteval OptionRow Own(std::string_view name) {
  for (const OptionRow& row : kTable) {
    if (name == row.name) return row;
  }
  std::abort();  // not while compiling: a name that is none does not compile
}

constexpr OptionRow kDoctorTable[] = {
    {"require", 0, "cuda", kOptions,
     "Exit with 120 when CUDA training cannot run here; stderr has the reason.", false},
    {"json", 0, nullptr, kOptions, "One JSON object instead of the text.", false},
    {"help", 'h', nullptr, kOptions, "This text.", false},
};

constexpr OptionRow kCoordinatorTable[] = {
    {"bind", 0, "[HOST]:PORT", kOptions,
     "What it listens at: HOST:PORT with an IP address of this machine, or :PORT on all interfaces "
     "(default :29400; port 0: a free one).",
     false},
    {"rdzv_id", 0, "ID", kOptions,
     "Id of the job; without it that of the first node that joins. With it a coordinator "
     "that is started again finds what its predecessor wrote down.",
     false},
    Own("token_file"),
    Own("tls_cert"),
    Own("tls_key"),
    Own("tls_ca"),
    {"on_bad_node", 0, "CMD", kOptions,
     "Run CMD HOST REASON by a shell for each node that the job finds bad.", false},
    {"help", 'h', nullptr, kOptions, "This text.", false},
};

constexpr OptionRow kBenchTable[] = {
    {"world_sizes", 0, "N,...", kOptions,
     "Numbers of ranks, 1 to 64 (default 1,2,4). One is always measured, for comparison.", false},
    {"seconds", 0, "S", kOptions, "Time for each row, 0.1 to 60 (default 3).", false},
    {"device", 0, "cpu|cuda", kOptions,
     "What trains: this machine's cores (cpu, the default) or its GPUs, one for each rank.", false},
    {"json", 0, nullptr, kOptions, "One JSON object instead of the table.", false},
    {"output", 0, "FILE", kOptions, "Write the JSON object there.", false},
    {"html", 0, "FILE", kOptions, "Write a page with plots there; it needs no other file.", false},
    {"help", 'h', nullptr, kOptions, "This text.", false},
    {"ranks", 0, "N,...", kOptions, "", false, false, false, OldNameOf("world_sizes")},
    {kOldJson, 0, "FILE", kOptions, "", false, false, false, OldNameOf("output")},
};

constexpr OptionRow kCheckTable[] = {
    Own("nnodes"),
    Own("nproc_per_node"),
    Own("workers"),
    Own("node_rank"),
    Own("standalone"),
    Own("no_cluster"),
    Own("rdzv_endpoint"),
    Own("rdzv_backend"),
    Own("rdzv_id"),
    Own("rdzv_conf"),
    Own("master_addr"),
    Own("master_port"),
    Own("local_addr"),
    Own("network"),
    Own("token_file"),
    Own("tls_cert"),
    Own("tls_key"),
    Own("tls_ca"),
    {"tolerance", 0, "TIMES", kOptions,
     "How many times slower than the median is slow, from 1.1 to 100 (default 1.5).", false},
    {"json", 0, nullptr, kOptions, "One JSON object instead of the table.", false},
    {"help", 'h', nullptr, kOptions, "This text.", false},
};

constexpr OptionRow kStatusTable[] = {
    {"json", 0, nullptr, kOptions, "One JSON object instead of the text.", false},
    {"coordinator", 0, "HOST:PORT", kOptions,
     "Ask the coordinator there, from any machine; it shows no log lines.", false},
    Own("token_file"),
    Own("tls_cert"),
    Own("tls_key"),
    Own("tls_ca"),
    {"help", 'h', nullptr, kOptions, "This text.", false},
};

constexpr OptionRow kTopTable[] = {
    {"coordinator", 0, "HOST:PORT", kOptions, "Ask the coordinator there, from any machine.",
     false},
    Own("token_file"),
    Own("tls_cert"),
    Own("tls_key"),
    Own("tls_ca"),
    {"help", 'h', nullptr, kOptions, "This text.", false},
};

constexpr OptionRow kListTable[] = {
    {"json", 0, nullptr, kOptions, "One JSON array instead of the text.", false},
    {"help", 'h', nullptr, kOptions, "This text.", false},
};

constexpr OptionRow kStopTable[] = {
    {"graceful", 0, nullptr, kOptions,
     "A graceful stop: the workers save and end after their step, by the flag that they poll.",
     false},
    {"now", 0, nullptr, kOptions,
     "Kill the workers without their grace, also those of a job that is ending.", false},
    {"help", 'h', nullptr, kOptions, "This text.", false},
    {"after_step", 0, nullptr, kOptions, "", false, false, false, OldNameOf("graceful")},
};

constexpr OptionRow kDumpTable[] = {
    {"ranks", 0, "N,...", kOptions, "Of these ranks alone, as in 0-7,12 (default: all).", false},
    {"dir", 0, "DIR", kOptions,
     "Folder in which it makes the new one (default: the working directory).", false},
    {"help", 'h', nullptr, kOptions, "This text.", false},
};

constexpr OptionRow kLogsTable[] = {
    {"rank", 0, "N", kOptions, "Whose output.", false},
    {"follow", 'f', nullptr, kOptions, "Go on as it writes, until the job ends.", false},
    {"help", 'h', nullptr, kOptions, "This text.", false},
};

// Of a command that has no other option.
constexpr OptionRow kHelpAlone[] = {
    {"help", 'h', nullptr, kOptions, "This text.", false},
};

constexpr CommandRow kCommands[] = {
    {"status",
     "Shows what a running job does and what hangs. One sentence comes first, then its ranks, the "
     "worst first. Without JOB: this user's only job on this machine. Exits with 0 when all is "
     "well, with 1 when not, with 2 when the job cannot be asked. Exits with 122 when it is asked "
     "with another token than its own.",
     kStatusTable, nullptr, "JOB"},
    {"top", "Shows the same as status, live, in a terminal. q ends it.", kTopTable, nullptr, "JOB"},
    {"list", "Lists this user's jobs on this machine.", kListTable},
    {"logs", "Shows the last output of one rank, on any node.", kLogsTable, nullptr, "JOB"},
    {"dump",
     "Writes the stacks of all ranks into a folder. It says which ranks wait, where, and which do "
     "not.",
     kDumpTable, nullptr, "JOB"},
    {"stop",
     "Ends a job on all its nodes. Its workers get SIGTERM and their grace, and ddprun ends with "
     "143 everywhere. With --graceful, a graceful stop, they save and end by themselves, and their "
     "exit codes count. With --now they are killed. Exits with 0 once the job's coordinator has "
     "heard it or the job ends anyway. Exits with 1 when only agents on this machine have heard it "
     "or --graceful comes too late, with 2 when the job cannot be asked.",
     kStopTable, nullptr, "JOB"},
    {"doctor",
     "Shows what this machine has for training. That is NVIDIA driver, GPUs, NCCL, cuBLAS, CUDA "
     "toolkit, network, limits; and what each lack means.",
     kDoctorTable},
    {"check",
     "Measures the nodes before a job. Each computes, copies and all-reduces by itself, then they "
     "all-reduce in pairs, so that two rounds name the one that is slow or broken. The same "
     "command on every node, with a job's options; on one node it compares the ranks. Exits with 0 "
     "when all are well, with 1 when not.",
     kCheckTable},
    {"bench",
     "Compares DDP with DataParallel on this machine. It trains a small network both by "
     "DataParallel (one process, a thread for each replica) and by DistributedDataParallel (a "
     "process for each rank). It shows speed, scaling, communication and memory, and what limits. "
     "By default it takes less than a minute; it needs no data.",
     kBenchTable, "dp-ddp"},
    {"coordinator",
     "Runs a job's rendezvous apart from its nodes. These name it by --rdzv-endpoint=HOST:PORT. "
     "It waits for the first of them without end, and ends with the job's exit code. Killed and "
     "started again on the same address it finds the job as it is: workers go on.",
     kCoordinatorTable},
    {"token",
     "Makes a job's token. It is for --token-file or DDPRUN_TOKEN: ddprun token > job.token. The "
     "file is made readable for its owner alone.",
     kHelpAlone, "new"},
    {"completion",
     "Prints the completion for a shell. It goes for example into "
     "~/.local/share/bash-completion/completions/ddprun, a folder of zsh's fpath as _ddprun, or "
     "~/.config/fish/completions/ddprun.fish; tcsh's is for ~/.tcshrc.",
     kHelpAlone, "bash|zsh|tcsh|fish"},
    {"help", "Shows the commands, or all of one of them.", kHelpAlone, nullptr, "COMMAND"},
    {"version", "Prints the version and the protocol.", kHelpAlone},
};

constexpr ForeignWord kForeignWords[] = {
    {"run", "ddprun [options] PROGRAM"},
    {"launch", "ddprun [options] PROGRAM"},
    {"jobs", "ddprun list"},
};
// Of accelerate, deepspeed, lightning and torch.multiprocessing.
constexpr ForeignWord kForeignOptions[] = {
    {"nprocs", "--nproc-per-node"},
    {"num_processes", "--nproc-per-node"},
    {"num_gpus", "--nproc-per-node=gpu"},
    {"gpus", "--nproc-per-node=gpu"},
    {"num_nodes", "--nnodes"},
    {"num_machines", "--nnodes"},
    {"machine_rank", "--node-rank"},
    {"main_process_ip", "--master-addr"},
    {"main_process_port", "--master-port"},
};

}  // namespace

std::span<const OptionRow> OptionTable() { return kTable; }

const OptionRow* FindOption(std::string_view name) {
  const std::string wanted = Underscored(name);
  for (const OptionRow& row : kTable) {
    if (wanted == row.name) return &row;
  }
  return nullptr;
}

std::vector<std::string> VariablesOf(const OptionRow& row) {
  const std::string name = absl::AsciiStrToUpper(row.name);
  if (!row.has_variable) return {};
  if (!row.is_ours || row.old != nullptr) return {"PET_" + name};
  return {"DDPRUN_" + name, "PET_" + name};
}

const OptionRow* FindOptionOfVariable(std::string_view variable) {
  for (const OptionRow& row : kTable) {
    if (std::ranges::count(VariablesOf(row), variable) > 0) return &row;
  }
  return nullptr;
}

std::span<const CommandRow> CommandTable() { return kCommands; }

std::span<const ForeignWord> ForeignWords() { return kForeignWords; }

std::span<const ForeignWord> ForeignOptions() { return kForeignOptions; }

std::span<const Deprecation> Deprecations() { return kDeprecations; }

const CommandRow* FindCommand(std::string_view name) {
  for (const CommandRow& row : kCommands) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

std::vector<std::string> ChoicesIn(std::string_view text) {
  return absl::StrSplit(absl::string_view(text.data(), text.size()), '|');
}

}  // namespace ddprun::launcher
