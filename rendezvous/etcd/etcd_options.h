// Where etcd is, and as whom it is asked. [pure]
#ifndef DDPRUN_RENDEZVOUS_ETCD_ETCD_OPTIONS_H_
#define DDPRUN_RENDEZVOUS_ETCD_ETCD_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::rendezvous {

struct EtcdMember {
  std::string host;  // a name or an address, without brackets
  uint16_t port = 0;
};

struct EtcdOptions {
  std::vector<EtcdMember> members;
  std::string prefix = "/ddprun";  // of all keys; no '/' at its end
  bool is_tls = false;
  // PEM, by their paths; empty: the system's authorities, no certificate of ours.
  std::string authority_file;
  std::string certificate_file;
  std::string key_file;
  std::string user;  // empty: nobody
  std::string password;
};

// "h1:2379,h2:2379".
std::string MembersText(const EtcdOptions& options);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_ETCD_OPTIONS_H_
