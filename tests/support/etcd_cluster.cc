#include "tests/support/etcd_cluster.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "rendezvous/base/check.h"
#include "tests/support/free_port.h"

namespace ddprun::testing {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Whether this test is to run by the newer etcd: its target's word.
bool IsNewerWanted() { return !Variable("DDPRUN_TEST_WITH_NEWER_ETCD").empty(); }

std::string Program(const std::string& name) {
  const std::string folder =
      Variable(IsNewerWanted() ? "DDPRUN_TEST_NEWER_ETCD" : "DDPRUN_TEST_ETCD");
  return (folder.empty() && !IsNewerWanted() ? "/usr/bin" : folder) + "/" + name;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

}  // namespace

std::string WhyNoEtcd() {
  if (access(Program("etcd").c_str(), X_OK) == 0 && access(Program("etcdctl").c_str(), X_OK) == 0) {
    return "";
  }
  const std::string remedy = "; tools/setup --with-etcd installs it";
  return (IsNewerWanted() ? "no newer etcd here (DDPRUN_TEST_NEWER_ETCD)" : "no etcd here") +
         remedy;
}

EtcdCluster::EtcdCluster(Options options) : options_(std::move(options)) {
  for (int i = 0; i < options_.members; ++i) {
    client_ports_.push_back(FreePort());
    peer_ports_.push_back(FreePort());
  }
  members_.resize(client_ports_.size());
  for (size_t i = 0; i < members_.size(); ++i) Start(i);
  DDP_CHECK(AwaitWrites());
}

EtcdCluster::~EtcdCluster() {
  SignalAll(SIGKILL);  // one that has lost the others takes seconds to end by SIGTERM
  for (const auto& member : members_) member->Wait();
}

void EtcdCluster::Start(size_t member) {
  const auto name = [](size_t index) { return "e" + std::to_string(index); };
  std::vector<std::string> peers;
  for (size_t i = 0; i < client_ports_.size(); ++i) peers.push_back(name(i) + "=" + PeerUrl(i));
  std::vector<std::string> argv = {Program("etcd"),
                                   "--name=" + name(member),
                                   "--data-dir=" + dir_.File(name(member)),
                                   "--listen-client-urls=" + ClientUrl(member),
                                   "--advertise-client-urls=" + ClientUrl(member),
                                   "--listen-peer-urls=" + PeerUrl(member),
                                   "--initial-advertise-peer-urls=" + PeerUrl(member),
                                   "--initial-cluster=" + Joined(peers),
                                   "--initial-cluster-state=new",
                                   "--logger=zap",
                                   "--log-outputs=" + dir_.File(name(member) + ".log")};
  argv.insert(argv.end(), options_.more.begin(), options_.more.end());
  Subprocess::Options how;
  if (!options_.netns.empty()) how.netns = options_.netns[member];
  members_[member] = std::make_unique<Subprocess>(std::move(argv), std::move(how));
}

std::string EtcdCluster::Address(size_t member) const {
  return options_.addresses.empty() ? "127.0.0.1" : options_.addresses[member];
}

std::string EtcdCluster::ClientUrl(size_t member) const {
  return options_.scheme + "://" + endpoint(member);
}

std::string EtcdCluster::PeerUrl(size_t member) const {
  return "http://" + Address(member) + ":" + std::to_string(peer_ports_[member]);
}

std::string EtcdCluster::endpoint(size_t member) const {
  return Address(member) + ":" + std::to_string(client_ports_[member]);
}

uint16_t EtcdCluster::port(size_t member) const {
  return static_cast<uint16_t>(client_ports_[member]);
}

std::string EtcdCluster::endpoints() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < client_ports_.size(); ++i) all.push_back(endpoint(i));
  return Joined(all);
}

size_t EtcdCluster::LeadingMember() {
  size_t leading = 0;
  const bool is_found = Eventually([&] {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i]->Wait(std::chrono::milliseconds(0))) continue;
      // "endpoint, id, version, size, is leader, ...".
      const std::string status =
          Ctl({"endpoint", "status", "--write-out=simple"}, static_cast<int>(i));
      size_t at = 0;
      for (int comma = 0; comma < 4 && at != std::string::npos; ++comma) {
        at = status.find(", ", at == 0 ? 0 : at + 1);
      }
      if (at == std::string::npos || status.compare(at, 6, ", true") != 0) continue;
      leading = i;
      return true;
    }
    return false;
  });
  DDP_CHECK(is_found);
  return leading;
}

void EtcdCluster::Restart(size_t member) {
  members_[member]->Signal(SIGKILL);
  members_[member]->Wait();
  Start(member);
}

void EtcdCluster::SignalAll(int signal) {
  for (const auto& member : members_) {
    if (!member->Wait(std::chrono::milliseconds(0))) member->Signal(signal);
  }
}

bool EtcdCluster::AwaitWrites() {
  return Eventually([&] { return Ctl({"put", "test-of-writes", "x"}) == "OK\n"; });
}

std::string EtcdCluster::Ctl(std::vector<std::string> words, int member) const {
  std::vector<std::string> argv = {Program("etcdctl"), "--dial-timeout=1s", "--command-timeout=3s"};
  std::vector<std::string> urls;
  for (size_t i = 0; i < client_ports_.size(); ++i) {
    if (member < 0 || static_cast<size_t>(member) == i) urls.push_back(ClientUrl(i));
  }
  argv.push_back("--endpoints=" + Joined(urls));
  argv.insert(argv.end(), options_.ctl.begin(), options_.ctl.end());
  argv.insert(argv.end(), words.begin(), words.end());
  Subprocess::Options how{.env = {{"ETCDCTL_API", "3"}}};
  if (!options_.netns.empty())
    how.netns = options_.netns[member < 0 ? 0 : static_cast<size_t>(member)];
  Subprocess ctl(std::move(argv), std::move(how));
  ctl.Wait();
  return ctl.out();
}

std::string EtcdCluster::KeysUnder(const std::string& prefix) const {
  return Ctl({"get", "--prefix", prefix});
}

}  // namespace ddprun::testing
