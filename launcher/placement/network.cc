#include "launcher/placement/network.h"

#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/core/rank_assignment.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Resolution;
using rendezvous::SocketAddress;

constexpr char kNcclVariable[] = "NCCL_SOCKET_IFNAME";
constexpr char kGlooVariable[] = "GLOO_SOCKET_IFNAME";

std::vector<std::string> InterfaceNames() {
  std::vector<std::string> names;
  struct if_nameindex* const list = if_nameindex();
  if (list == nullptr) return names;
  for (const struct if_nameindex* at = list; at->if_index != 0; ++at) names.push_back(at->if_name);
  if_freenameindex(list);
  return names;
}

bool HasValue(const std::vector<std::string>& variables, const std::string& name) {
  const std::string beginning = name + "=";
  return std::any_of(variables.begin(), variables.end(), [&](const std::string& variable) {
    return variable.starts_with(beginning) && variable.size() > beginning.size();
  });
}

void Set(std::vector<std::string>& variables, const std::string& name, const std::string& value) {
  const std::string beginning = name + "=";
  std::erase_if(variables,
                [&](const std::string& variable) { return variable.starts_with(beginning); });
  variables.push_back(beginning + value);
}

// A name server may take minutes, and nothing interrupts the question.
std::optional<Resolution> ResolveWithin(Duration patience, const rendezvous::Resolver& resolve,
                                        const std::string& host) {
  const auto answer = std::make_shared<std::promise<Resolution>>();
  std::future<Resolution> later = answer->get_future();
  std::thread thread =
      StartQuietThread([answer, resolve, host] { answer->set_value(resolve(host, 0)); });
  if (!thread.joinable()) return std::nullopt;
  thread.detach();
  if (later.wait_for(patience) != std::future_status::ready) return std::nullopt;
  return later.get();
}

bool CanBind(const SocketAddress& address) {
  const UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd.is_open() && bind(fd.get(), address.get(), address.size) == 0;
}

// By the kernel's routes; nothing is sent. Empty: there is none, or it is loopback.
std::string InterfaceTowards(SocketAddress address) {
  constexpr uint16_t kAnyPort = 9;
  const auto with_port = rendezvous::ParseIp(rendezvous::IpText(address), kAnyPort);
  if (!with_port) return "";
  const UniqueFd fd(socket(with_port->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() || connect(fd.get(), with_port->get(), with_port->size) != 0) return "";
  const SocketAddress own = rendezvous::LocalAddress(fd.get());
  return rendezvous::IsLoopback(rendezvous::IpText(own)) ? "" : rendezvous::InterfaceOf(own);
}

}  // namespace

absl::Status UseNetwork(LaunchConfig& config, Environment& environment) {
  const std::string& network = config.network;
  if (network.empty()) return absl::OkStatus();
  const std::vector<std::string> names = InterfaceNames();
  if (std::find(names.begin(), names.end(), network) == names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.SourceOf("network"), " ", Quoted(network),
                     ": this machine has no such network interface; it has ",
                     names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }
  // NCCL takes a bare name for the beginning of names: eth1 would be eth10, too.
  for (const auto& [variable, value] :
       {std::pair{kNcclVariable, "=" + network}, std::pair{kGlooVariable, network}}) {
    const std::string old = environment.Get(variable).value_or("");
    if (!old.empty() && old != value && old != network) {
      config.warnings.push_back(absl::StrCat(config.SourceOf("network"), " ", Quoted(network),
                                             " replaces ", variable, "=", EscapeControl(old),
                                             " of the environment"));
    }
    Set(environment.variables, variable, value);
  }
  return absl::OkStatus();
}

GlooInterface::GlooInterface(Options options, std::function<void(const std::string& line)> say)
    : options_(std::move(options)), say_(std::move(say)) {}

std::vector<std::string> GlooInterface::AddTo(std::vector<std::string> variables,
                                              const rendezvous::Assignment& assignment) {
  if (assignment.node_count == 1 || HasValue(variables, kGlooVariable)) return variables;
  if (!is_on_loopback_) is_on_loopback_ = IsOnLoopback();
  // Without an answer nothing is known, and nothing is changed.
  if (!is_on_loopback_.value_or(false)) return variables;
  const std::string interface = Towards(assignment.master_addr);
  if (interface.empty()) return variables;
  Set(variables, kGlooVariable, interface);
  if (!std::exchange(has_said_, true)) {
    say_(absl::StrCat(kGlooVariable, "=", interface, " for the workers: by this machine's name, ",
                      Quoted(rendezvous::HostName()),
                      ", Gloo would listen on loopback, which no other node reaches; set the "
                      "variable or --network to choose"));
  }
  return variables;
}

// The first address that can be listened on is Gloo's; without one it takes 127.0.0.1.
std::optional<bool> GlooInterface::IsOnLoopback() {
  const std::optional<Resolution> own =
      ResolveWithin(options_.patience, options_.resolve, rendezvous::HostName());
  if (!own) return std::nullopt;
  for (const SocketAddress& address : own->addresses) {
    if (CanBind(address)) return rendezvous::IsLoopback(rendezvous::IpText(address));
  }
  return true;
}

std::string GlooInterface::Towards(const std::string& host) const {
  const std::optional<Resolution> there = ResolveWithin(options_.patience, options_.resolve, host);
  if (!there) return "";
  for (const SocketAddress& address : there->addresses) {
    if (std::string interface = InterfaceTowards(address); !interface.empty()) return interface;
  }
  return "";
}

}  // namespace ddprun::launcher
