// The keys that a job's token gives: one for each purpose of a connection.
//
//   purpose      name that the client sends      key
//   greeting     "ddprun/1"                      Expand("ddprun/1 agents")
//   rendezvous   "ddprun/2 rendezvous " RUN      Expand(the name)
//   store        "ddprun/2 store " RUN           Expand(the name)
//
// Expand is HKDF-Expand over HKDF-Extract of the token (RFC 5869, without salt: a token is as
// random as a key), and RUN is Expand("ddprun/2 run " and the run id), 32 bytes. So nobody without
// the token can tell from a name which run it is. A server without a run id takes any RUN.
//
// The greeting's key is alike in all protocols and runs, as the greeting is. It opens nothing else.
#ifndef DDPRUN_RENDEZVOUS_TLS_TOKEN_KEYS_H_
#define DDPRUN_RENDEZVOUS_TLS_TOKEN_KEYS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::rendezvous {

enum class TlsPurpose {
  kGreeting,    // hello.h
  kRendezvous,  // an agent's calls to its coordinator
  kStore,       // a worker's way to the store of another node
};

// Overwrites its bytes at its end.
class TokenKey {
 public:
  static constexpr size_t kBytes = 32;
  TokenKey() = default;
  ~TokenKey();
  TokenKey(const TokenKey&) = default;
  TokenKey& operator=(const TokenKey&) = default;
  uint8_t* data() { return bytes_.data(); }
  const uint8_t* data() const { return bytes_.data(); }

 private:
  std::array<uint8_t, kBytes> bytes_{};
};

class TokenKeys {
 public:
  // What a client sends, and the key of that name.
  struct Named {
    TlsPurpose purpose;
    std::string name;
    TokenKey key;
  };

  // Nullopt, like the next two: OpenSSL does not do it; its error is on this thread.
  // `run_id`: as a greeting tells it; empty: as a server, of any run.
  static std::optional<TokenKeys> Of(std::string_view token, std::string_view run_id);
  std::optional<TokenKeys> ForRun(std::string_view run_id) const;

  // As a client.
  std::optional<Named> Offer(TlsPurpose purpose) const;
  // As a server: for a client that has sent `name`. Nullopt, too: that is no name of this run's.
  std::optional<Named> Find(std::string_view name) const;

 private:
  TokenKeys() = default;
  std::optional<Named> Make(TlsPurpose purpose, std::string name) const;

  TokenKey token_;  // HKDF-Extract of it
  std::string run_;
  bool is_any_run_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_TLS_TOKEN_KEYS_H_
