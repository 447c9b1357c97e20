// By what the agents of one job know each other: a token that all of them have, or certificates.
//
// A token becomes a pre-shared key of TLS 1.3 (RFC 8446, 4.2.11): both ends prove that they have
// it, and there is no certificate that could expire. Each run and each purpose of a connection has
// a key of its own (token_keys.h). A fresh Diffie-Hellman exchange goes into each connection, so
// that who learns the token later cannot read what was recorded.
#ifndef DDPRUN_RENDEZVOUS_TLS_IDENTITY_H_
#define DDPRUN_RENDEZVOUS_TLS_IDENTITY_H_

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/tls/token_keys.h"

namespace ddprun::rendezvous {

class TlsIdentity {
 public:
  // Names of files, each with PEM blocks; none is empty.
  struct PemFiles {
    std::string cert;  // of this machine, and those between it and the authority
    std::string key;   // of `cert`, without a password
    std::string ca;    // the authorities that sign the job's certificates, and nobody else's
  };

  // INTERNAL: OpenSSL does not do what it does everywhere. `run_id`: as a greeting tells it; empty:
  // of a server that takes any run, or of a client that does not know it yet.
  static absl::StatusOr<std::shared_ptr<const TlsIdentity>> OfToken(std::string_view token,
                                                                    std::string_view run_id = "");
  // INVALID_ARGUMENT names the file, and what is wrong with it: not to be read, no PEM, another
  // certificate's key, a certificate that is not valid today, or that `ca` does not vouch for.
  static absl::StatusOr<std::shared_ptr<const TlsIdentity>> OfPem(const PemFiles& files);
  ~TlsIdentity();
  TlsIdentity(const TlsIdentity&) = delete;
  TlsIdentity& operator=(const TlsIdentity&) = delete;

  // On any thread. Whether other nodes with the same authorities believe this one now: a
  // certificate may have been valid at the start and not be any more. UNAUTHENTICATED: "own
  // certificate: ", and what OfPem would say; other nodes read it, too.
  absl::Status Check() const;
  bool is_token() const { return keys_.has_value(); }
  // What may end or open this job though all is well now, a sentence each: a certificate that
  // expires within kSoonDays, or one that nobody but this machine believes; a token that may be
  // guessed.
  const std::vector<std::string>& warnings() const { return warnings_; }
  static constexpr int kSoonDays = 7;
  // The same token, for that run; certificates are for any.  INTERNAL: as OfToken.
  static absl::StatusOr<std::shared_ptr<const TlsIdentity>> ForRun(
      const std::shared_ptr<const TlsIdentity>& identity, std::string_view run_id);
  // OpenSSL counts who uses it. Of a token: a connection's app data is a TlsPurpose, which a client
  // has set, and which a server learns from the key that the client has used.
  SSL_CTX* context() const { return context_; }

 private:
  TlsIdentity() = default;
  static absl::StatusOr<std::shared_ptr<const TlsIdentity>> OfKeys(
      std::optional<TokenKeys> keys, std::vector<std::string> warnings);
  absl::Status Init();
  absl::Status ReadPem();
  static SSL_SESSION* NewSession(SSL* ssl, const TokenKey& key);
  static int OnServerPsk(SSL* ssl, const unsigned char* name, size_t size, SSL_SESSION** session);
  static int OnClientPsk(SSL* ssl, const EVP_MD* digest, const unsigned char** name, size_t* size,
                         SSL_SESSION** session);

  std::optional<TokenKeys> keys_;         // of a token
  std::vector<TokenKeys::Named> offers_;  // of a client, by purpose
  PemFiles files_;                        // empty with a token
  std::vector<std::string> warnings_;
  SSL_CTX* context_ = nullptr;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_TLS_IDENTITY_H_
