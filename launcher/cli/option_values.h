// From the text of one option to its value. [pure]
//
// Every error is InvalidArgument and says what is accepted; the caller puts the option and the
// quoted value in front.
#ifndef DDPRUN_LAUNCHER_CLI_OPTION_VALUES_H_
#define DDPRUN_LAUNCHER_CLI_OPTION_VALUES_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/cli/launch_config.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

inline constexpr int kMaxNodes = 65536;
inline constexpr int kMaxWorkersPerNode = 4096;
inline constexpr uint16_t kDefaultRendezvousPort = 29400;

// Decimal digits only: no sign, space, exponent or other script's digits.
absl::StatusOr<int> ParseNumber(const std::string& text, int min, int max);
absl::StatusOr<NodeRange> ParseNodeRange(const std::string& text);
// Which GPUs, of those that are visible: "1,3,5", each once.
absl::StatusOr<std::vector<int>> ParseGpus(const std::string& text);
// A number, or `cpu`. `gpu` and `auto`, which its error names too, are for the caller.
absl::StatusOr<int> ParseWorkersPerNode(const std::string& text, int cpu_count);
// node, socket, exclusive or core-complex.
absl::StatusOr<NumaBinding> ParseNumaBinding(const std::string& text);
const char* NumaBindingName(NumaBinding binding);
// Seconds, decimals allowed ("30", "0.5"), at most a year.
absl::StatusOr<Duration> ParseSeconds(const std::string& text, bool zero_allowed);
// Seconds as Python's float() reads them ("1e-1"), more than 0.
absl::StatusOr<double> ParseInterval(const std::string& text);
// A flag's variable, as torchrun reads it: a number, 0 is off.
absl::StatusOr<bool> ParseFlag(const std::string& text);
// 1/0, true/false, yes/no, t/f, y/n, on/off; any case.
absl::StatusOr<bool> ParseBool(const std::string& text);
// How many ranks to measure: numbers from 1 to 64 by comma. Ascending, each once; 1 is added.
absl::StatusOr<std::vector<int>> ParseRankCounts(const std::string& text);
// A path, not empty.
absl::StatusOr<std::string> ParsePath(const std::string& text);
// Seconds for one measurement, 0.1 to 60.
absl::StatusOr<Duration> ParseBenchSeconds(const std::string& text);
// A host name or an address, IPv6 with or without brackets; the result has none. An empty text
// stays.
absl::StatusOr<std::string> ParseHost(const std::string& text);
// The name of a network interface, as the kernel takes one.
absl::StatusOr<std::string> ParseInterface(const std::string& text);
// host, host:port, [v6], [v6]:port, v6, v6:port where it cannot be an address. Without a port:
// `default_port`; where that is 0, an error.
absl::StatusOr<Endpoint> ParseEndpoint(const std::string& text, uint16_t default_port);
// Whether `host` is one of `own`, the names and addresses of this machine, or stands for loopback.
// "node1" and "node1.cluster" are one machine, "node1.a" and "node1.b" are two.
bool NamesThisMachine(const std::string& host, const std::vector<std::string>& own);
// Why no other machine reaches a host that is written so, and what is expected; "": some may.
std::string WhyUnreachable(const std::string& host);
// etcd's members by comma, each as above; without a port: etcd's own.
absl::StatusOr<std::vector<Endpoint>> ParseEtcdMembers(const std::string& text);
// Who listens: a coordinator for agents, or a page and metrics for viewers.
enum class Listener { kCoordinator, kViewers };
// Where something of ours listens: HOST:PORT, or :PORT on all interfaces, which is an empty host.
// For viewers PORT alone is on loopback, and so is an empty text, at a free port. A coordinator's
// HOST may come without PORT (29400), and PORT not without HOST or a colon.
absl::StatusOr<Endpoint> ParseListener(const std::string& text, Listener listener);
// A run id or a role: printable, at most 200 bytes.
absl::StatusOr<std::string> ParseName(const std::string& text);
absl::StatusOr<StreamChoice> ParseStreamChoice(const std::string& text);
// Local ranks by comma: "0,1,12", white space around them allowed. An empty text: none.
absl::StatusOr<std::set<int>> ParseLocalRanks(const std::string& text);
// Texts by comma, ",," is a comma in one of them. An empty text: none.
absl::StatusOr<std::vector<std::string>> ParseLineFilters(const std::string& text);
// Of --rdzv_conf: key=value,... An unknown key is no error (torchrun ignores it): it becomes a
// warning. The caller puts the option in front of warnings, here and below.
absl::StatusOr<RendezvousConf> ParseRendezvousConf(const std::string& text,
                                                   std::vector<std::string>& warnings);

// torchrun's default; workers are told of it by TORCHELASTIC_SIGNALS_TO_HANDLE.
inline constexpr char kDefaultSignalsToHandle[] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
// The numbers of the signals named in `text` that stop the job only because they are named there:
// the four of the default always do. A name that is none, or of a signal that cannot be handled, is
// no error (torchrun goes on without it): it becomes a warning.
std::vector<int> MoreStopSignals(const std::string& text, std::vector<std::string>& warnings);

// The number of a signal by which workers can be asked to save and stop: "USR1", "SIGUSR1", "10".
absl::StatusOr<int> ParsePreemptSignal(const std::string& text);

// Hands out what was given by name and remembers the first thing that was wrong.
class OptionReader {
 public:
  // `given` outlives it.
  explicit OptionReader(const GivenOptions& given) : given_(given) {}

  const GivenValue* Find(const std::string& name) const;
  // An empty text counts as not given, as in torchrun.
  const GivenValue* FindText(const std::string& name) const;
  // Empty: not given.
  std::string Text(const std::string& name) const;
  // Parses the option into `target`, which keeps its value when the option is absent or wrong.
  template <typename T, typename Parse>
  void Into(const std::string& name, T& target, Parse parse) {
    const GivenValue* value = Find(name);
    if (value == nullptr) return;
    auto parsed = parse(value->text);
    if (!parsed.ok()) return Refuse(*value, parsed.status().message());
    target = *std::move(parsed);
  }
  bool Flag(const std::string& name);

  void Refuse(const GivenValue& given, absl::string_view accepted);
  void Fail(const absl::Status& status) { status_.Update(status); }
  const absl::Status& status() const { return status_; }

 private:
  const GivenOptions& given_;
  absl::Status status_;
};

// --token_file, --tls_cert, --tls_key, --tls_ca.
TrustFiles ReadTrustFiles(OptionReader& read);

// `text` with "..." for a password in it: "user=a:...,password=...", "http://a:...@h". For
// messages.
std::string WithoutPasswords(const std::string& text);

// Of --rdzv_conf: what concerns etcd, without its members and the password. Adds the keys that it
// knows to `known`, those that were given to `given`, and to `warnings` what is wrong with them.
absl::StatusOr<rendezvous::EtcdOptions> ReadEtcdConf(OptionReader& read,
                                                     std::vector<std::string>& known,
                                                     std::vector<std::string>& given,
                                                     std::vector<std::string>& warnings);

// --hang_timeout, --on_hang, --dashboard, --metrics, --event_file.
void ReadWatchOptions(OptionReader& read, LaunchConfig& config);

// --max_restarts, and what else limits restarts.
void ReadRestartOptions(OptionReader& read, LaunchConfig& config);

// --health_check, --max_node_failures, and what else concerns bad nodes.
void ReadBadNodeOptions(OptionReader& read, LaunchConfig& config);

// A command for a shell: not empty.
absl::StatusOr<std::string> ParseCommand(const std::string& text);

// The workers of this node, and with -n the nodes. REQUIRES: config.nodes has been read.
void ReadWorkers(OptionReader& read, const MachineFacts& machine, LaunchConfig& config);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_OPTION_VALUES_H_
