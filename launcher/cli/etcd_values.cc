// --rdzv-backend=etcd: where etcd is, and as whom it is asked.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/launch_config.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/text.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

constexpr uint16_t kEtcdPort = 2379;
constexpr char kPasswordPlace[] =
    "the password in it is not used, as others can read command lines and logs: "
    "DDPRUN_ETCD_PASSWORD is for it";
// A cluster of etcd has three to seven.
constexpr size_t kMaxMembers = 64;

}  // namespace

absl::StatusOr<std::vector<Endpoint>> ParseEtcdMembers(const std::string& text) {
  std::vector<Endpoint> members;
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  for (const std::string& part : parts) {
    if (absl::StrContains(part, "://")) {
      return InvalidArgumentError(
          "expected HOST:PORT,HOST:PORT..., and --rdzv-conf protocol=https where etcd has TLS");
    }
    absl::StatusOr<Endpoint> member = ParseEndpoint(part, kEtcdPort);
    if (!member.ok()) return member.status();
    if (member->host.empty() || member->port == 0) {
      return InvalidArgumentError("expected HOST:PORT,HOST:PORT..., the members of etcd");
    }
    members.push_back(*std::move(member));
  }
  if (members.size() <= kMaxMembers) return members;
  return InvalidArgumentError(absl::StrCat("expected at most ", kMaxMembers, " members of etcd"));
}

std::string WithoutPasswords(const std::string& given) {
  std::string text = given;
  // Of the last URL first, as what is hidden moves those behind it.
  for (size_t at = text.rfind("://"); at != std::string::npos;
       at = at == 0 ? std::string::npos : text.rfind("://", at - 1)) {
    const size_t user = at + 3;
    const size_t end = text.rfind('@', text.find("://", user));
    if (end == std::string::npos || end < user) continue;
    const size_t colon = text.find(':', user);
    const size_t hidden = colon < end ? colon + 1 : user;
    text.replace(hidden, end - hidden, "...");
  }
  std::vector<std::string> parts = absl::StrSplit(text, ',');
  for (std::string& part : parts) {
    const bool is_user = absl::StrContains(part, "user=");
    const size_t at = is_user                                ? part.find(':')
                      : absl::StrContains(part, "password=") ? part.find('=')
                                                             : std::string::npos;
    if (at != std::string::npos) part = part.substr(0, at + 1) + "...";
  }
  return absl::StrJoin(parts, ",");
}

absl::StatusOr<rendezvous::EtcdOptions> ReadEtcdConf(OptionReader& read,
                                                     std::vector<std::string>& known,
                                                     std::vector<std::string>& given,
                                                     std::vector<std::string>& warnings) {
  rendezvous::EtcdOptions etcd;
  const auto text = [&](const char* key, std::string& target) {
    known.emplace_back(key);
    if (read.Find(key) != nullptr) given.emplace_back(key);
    target = read.Find(key) != nullptr ? read.Text(key) : target;
  };
  std::string protocol = "http";
  text("protocol", protocol);
  text("cacert", etcd.authority_file);
  text("cert", etcd.certificate_file);
  text("key", etcd.key_file);
  text("user", etcd.user);
  // etcdctl takes "user:password".
  const size_t colon = etcd.user.find(':');
  const bool is_key = read.Find("password") != nullptr;
  if (colon != std::string::npos || is_key) warnings.emplace_back(kPasswordPlace);
  if (colon != std::string::npos) etcd.user.resize(colon);
  if (is_key) known.emplace_back("password");
  text("etcd_prefix", etcd.prefix);
  if (protocol != "http" && protocol != "https") {
    return InvalidArgumentError(absl::StrCat("protocol='", protocol, "': expected http or https"));
  }
  etcd.is_tls = protocol == "https";
  for (const char* key : {"cacert", "cert", "key"}) {
    if (!etcd.is_tls && read.Find(key) != nullptr) {
      return InvalidArgumentError(
          absl::StrCat(key, " is for TLS: expected protocol=https with it"));
    }
  }
  if (etcd.certificate_file.empty() != etcd.key_file.empty()) {
    return InvalidArgumentError("expected cert and key, or neither of them");
  }
  while (etcd.prefix.ends_with('/')) etcd.prefix.pop_back();
  if (etcd.prefix.empty()) return InvalidArgumentError("etcd_prefix: expected a path like /ddprun");
  return etcd;
}

void WarnOfEtcdPassword(const MachineFacts& machine, LaunchConfig& config) {
  if (config.rendezvous != RendezvousKind::kEtcd) return;
  const rendezvous::EtcdOptions& etcd = config.rendezvous_options.etcd;
  const std::string source = config.SourceOf("rdzv_conf");
  if (etcd.user.empty()) {
    if (!machine.has_etcd_password) return;
    config.warnings.push_back(
        "DDPRUN_ETCD_PASSWORD is not used: --rdzv-conf user=NAME, whose password it is, is "
        "missing");
  } else if (!machine.has_etcd_password) {
    config.warnings.push_back(
        absl::StrCat(source, ": the user ", Quoted(etcd.user),
                     " has no password: DDPRUN_ETCD_PASSWORD is not set, or empty"));
  } else if (!etcd.is_tls) {
    config.warnings.push_back(absl::StrCat(
        source, ": the password goes over the network as it is; with protocol=https it would not"));
  }
}

}  // namespace ddprun::launcher
