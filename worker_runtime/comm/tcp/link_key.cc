#include "worker_runtime/comm/tcp/link_key.h"

#include <cstring>
#include <string_view>

#include "rendezvous/base/check.h"
#include "worker_runtime/comm/make_nonce.h"

namespace ddp::internal {
namespace {

constexpr char kMagic[8] = {'d', 'd', 'p', 'l', 'i', 'n', 'k', '1'};
constexpr char kSealedMagic[8] = {'d', 'd', 'p', 's', 'e', 'a', 'l', '1'};

Hello MakeHelloOf(const char (&magic)[8], const Nonce& nonce, int from, int to) {
  Hello hello{};
  std::memcpy(hello.magic, magic, sizeof magic);
  hello.nonce = nonce;
  hello.from = from;
  hello.to = to;
  return hello;
}

std::string_view View(const Nonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

}  // namespace

Hello MakeHello(const Nonce& nonce, int from, int to) {
  return MakeHelloOf(kMagic, nonce, from, to);
}

Hello MakeSealedHello(int from, int to) { return MakeHelloOf(kSealedMagic, MakeNonce(), from, to); }

bool IsSealed(const Hello& hello) {
  return std::memcmp(hello.magic, kSealedMagic, sizeof kSealedMagic) == 0;
}

absl::StatusOr<std::shared_ptr<const LinkKey>> LinkKey::Make(const std::string& round_key) {
  DDP_CHECK(round_key.size() == sizeof(Key));
  absl::StatusOr<const LinkCrypto*> crypto = LinkCrypto::OfThisProcess();
  if (!crypto.ok()) return crypto.status();
  return std::shared_ptr<const LinkKey>(new LinkKey(**crypto, round_key));
}

LinkKey::LinkKey(const LinkCrypto& crypto, const std::string& round_key) : crypto_(crypto) {
  std::memcpy(key_.data(), round_key.data(), key_.size());
}

LinkSecrets::LinkSecrets(const LinkKey& key, const Nonce& group, const Hello& hello,
                         const Nonce& answering)
    : crypto_(key.crypto_) {
  std::string label = "ddp link 1 ";
  label += View(group);
  label.append(reinterpret_cast<const char*>(&hello), sizeof hello);
  label += View(answering);
  key_ = crypto_.Derive(key.key_, label);
}

LinkSecrets::~LinkSecrets() { crypto_.Forget(key_); }

Key LinkSecrets::Derive(const char* what) const { return crypto_.Derive(key_, what); }

bool LinkSecrets::IsAnswerProof(const Key& said) const {
  return crypto_.AreEqual(said, AnswerProof());
}

bool LinkSecrets::IsHelloProof(const Key& said) const {
  return crypto_.AreEqual(said, HelloProof());
}

std::unique_ptr<SealedChannel> LinkSecrets::Channel(bool is_listener) const {
  Key to_listener = Derive("to the listener"), from_listener = Derive("from the listener");
  auto sealing = crypto_.Sealing(is_listener ? from_listener : to_listener);
  auto opening = crypto_.Opening(is_listener ? to_listener : from_listener);
  crypto_.Forget(to_listener);
  crypto_.Forget(from_listener);
  if (sealing == nullptr || opening == nullptr) return nullptr;
  return std::unique_ptr<SealedChannel>(
      new SealedChannel{RecordSealer(std::move(sealing)), RecordOpener(std::move(opening))});
}

}  // namespace ddp::internal
