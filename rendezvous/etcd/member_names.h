// The addresses of etcd's members: names are resolved on a thread that may hang, and is left
// behind.
#ifndef DDPRUN_RENDEZVOUS_ETCD_MEMBER_NAMES_H_
#define DDPRUN_RENDEZVOUS_ETCD_MEMBER_NAMES_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "rendezvous/base/mailbox.h"
#include "rendezvous/base/time.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/net/socket_address.h"

namespace ddprun::rendezvous {

// One thread resolves; any may Cancel().
class MemberNames {
 public:
  MemberNames(std::vector<EtcdMember> members, Resolver resolver);
  ~MemberNames();
  MemberNames(const MemberNames&) = delete;
  MemberNames& operator=(const MemberNames&) = delete;

  // Waits until `by` at most. Where the resolver does not answer by then: what it said last of this
  // member, if it ever found it.
  Resolution Resolve(size_t member, TimePoint by);
  // No wait goes on, and no later one begins.
  void Cancel();

 private:
  struct Found;  // shared with the thread

  // That there is no such name may have been true an hour ago, when nobody waited for it.
  void DropOldRefusal(size_t member);
  void Ask(size_t member);

  const std::vector<EtcdMember> members_;
  const Resolver resolver_;
  const std::shared_ptr<Found> found_;
  std::optional<HelperThread> thread_;  // from the first name on
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_MEMBER_NAMES_H_
