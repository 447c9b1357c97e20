// A real etcd of a test's own: its members, on loopback, ended with the test.
#ifndef DDPRUN_TESTS_SUPPORT_ETCD_CLUSTER_H_
#define DDPRUN_TESTS_SUPPORT_ETCD_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {

// "": etcd and etcdctl are installed. DDPRUN_TEST_ETCD names a folder with others than the
// distribution's. A target whose env has DDPRUN_TEST_WITH_NEWER_ETCD takes those of the folder
// DDPRUN_TEST_NEWER_ETCD.
std::string WhyNoEtcd();

class EtcdCluster {
 public:
  struct Options {
    int members = 3;
    // More of each member's options.
    std::vector<std::string> more;
    // Of the clients' side; "http" or "https", which takes certificates in `more`.
    std::string scheme = "http";
    // What etcdctl is called with, beyond the endpoints.
    std::vector<std::string> ctl;
    // Each member in this network namespace at this address; empty: all here, on 127.0.0.1.
    std::vector<std::string> netns;
    std::vector<std::string> addresses;
  };

  // Waits until it takes writes.
  EtcdCluster() : EtcdCluster(Options()) {}
  explicit EtcdCluster(Options options);
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  // "127.0.0.1:12345,127.0.0.1:12347,...".
  std::string endpoints() const;
  std::string endpoint(size_t member) const;
  uint16_t port(size_t member) const;
  Subprocess& member(size_t index) { return *members_[index]; }
  size_t size() const { return members_.size(); }
  // Which member leads, by their own word; waits until one does.
  size_t LeadingMember();
  // Started again on what it has on disk.
  void Restart(size_t member);
  void SignalAll(int signal);
  // Whether it takes writes, within kPatience.
  bool AwaitWrites();

  // The output of `etcdctl WORD...`, asked of all members or of one.
  std::string Ctl(std::vector<std::string> words, int member = -1) const;
  // Every key below a prefix with its value, a line each; empty: there is none.
  std::string KeysUnder(const std::string& prefix) const;

 private:
  void Start(size_t member);
  std::string Address(size_t member) const;
  std::string ClientUrl(size_t member) const;
  std::string PeerUrl(size_t member) const;

  const Options options_;
  TempDir dir_;
  std::vector<int> client_ports_;
  std::vector<int> peer_ports_;
  std::vector<std::unique_ptr<Subprocess>> members_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_ETCD_CLUSTER_H_
