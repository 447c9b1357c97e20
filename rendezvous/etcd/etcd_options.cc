#include "rendezvous/etcd/etcd_options.h"

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {

std::string MembersText(const EtcdOptions& options) {
  std::string text;
  for (const EtcdMember& member : options.members) {
    absl::StrAppend(&text, text.empty() ? "" : ",", EndpointText(member.host, member.port));
  }
  return text;
}

}  // namespace ddprun::rendezvous
