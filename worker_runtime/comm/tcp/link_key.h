// How two ranks prove to each other that they have the round's key, and what they seal with then.
//
// Who connects says its Hello with a nonce of its own; who listens answers with a nonce of its own
// and a proof over both; who has connected says its proof. Both nonces are new for each connection,
// so nothing that was recorded of another one is of any use, and no two connections are sealed with
// the same keys. The group's secret and the ranks go into all of it.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_LINK_KEY_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_LINK_KEY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker_runtime/comm/nonce.h"
#include "worker_runtime/comm/tcp/link_crypto.h"
#include "worker_runtime/comm/tcp/sealed_records.h"

namespace ddp::internal {

// What a connecting rank says first: all of it or it is dropped.
struct Hello {
  char magic[8];
  Nonce nonce;  // the listener's; of a sealed link the connecting end's own
  int32_t from;
  int32_t to;
};
static_assert(sizeof(Hello) == 32);

// Of a plain link.
Hello MakeHello(const Nonce& nonce, int from, int to);
// Of a sealed one.
Hello MakeSealedHello(int from, int to);
bool IsSealed(const Hello& hello);

// What who listens answers.
struct LinkAnswer {
  Nonce nonce;
  Key proof;
};
static_assert(sizeof(LinkAnswer) == 48);

// The round's key. Shared by all that make links of it.
class LinkKey {
 public:
  // REQUIRES: 32 bytes. Errors: LinkCrypto::OfThisProcess().
  static absl::StatusOr<std::shared_ptr<const LinkKey>> Make(const std::string& round_key);
  ~LinkKey() { crypto_.Forget(key_); }

  // For NCCL's own links: nothing that seals ours follows from it.
  Key ForNccl() const { return crypto_.Derive(key_, "ddp nccl 1"); }

 private:
  friend class LinkSecrets;
  LinkKey(const LinkCrypto& crypto, const std::string& round_key);

  const LinkCrypto& crypto_;
  Key key_{};
};

// What both ends of one connection can derive, and nobody else.
class LinkSecrets {
 public:
  // `group` is a secret of the group's store; `answering` the nonce of who listens.
  LinkSecrets(const LinkKey& key, const Nonce& group, const Hello& hello, const Nonce& answering);
  ~LinkSecrets();
  LinkSecrets(const LinkSecrets&) = delete;
  LinkSecrets& operator=(const LinkSecrets&) = delete;

  Key AnswerProof() const { return Derive("answer"); }
  Key HelloProof() const { return Derive("hello"); }
  bool IsAnswerProof(const Key& said) const;
  bool IsHelloProof(const Key& said) const;
  // Null: there is no memory for it. The link is then none, and not a plain one.
  std::unique_ptr<SealedChannel> Channel(bool is_listener) const;

 private:
  Key Derive(const char* what) const;

  const LinkCrypto& crypto_;
  Key key_{};
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_LINK_KEY_H_
