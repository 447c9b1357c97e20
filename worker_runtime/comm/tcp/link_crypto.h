// What sealed links need of OpenSSL's libcrypto, which is opened when the first of them is made.
#ifndef DDPRUN_WORKER_RUNTIME_COMM_TCP_LINK_CRYPTO_H_
#define DDPRUN_WORKER_RUNTIME_COMM_TCP_LINK_CRYPTO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

struct evp_cipher_ctx_st;  // OpenSSL's

namespace ddp::internal {

using Key = std::array<uint8_t, 32>;

struct LinkCryptoFunctions;

// One direction of a link: AES-256-GCM (NIST SP 800-38D) under a key that nothing else is sealed
// with. What is sealed has a number that is never used twice, and is opened under the same.
class LinkCipher {
 public:
  static constexpr size_t kTagBytes = 16;

  ~LinkCipher();
  LinkCipher(const LinkCipher&) = delete;
  LinkCipher& operator=(const LinkCipher&) = delete;

  // Writes both pieces, sealed, and the tag to `to`. `header` goes in the clear and is proved too.
  void Seal(uint64_t number, std::string_view header, std::string_view first,
            std::string_view second, char* to);
  // Opens `size` bytes, behind which the tag stands. False: nobody has sealed them so under this
  // key and number; what `to` holds is then worth nothing.
  bool Open(uint64_t number, std::string_view header, const char* sealed, size_t size, char* to);

 private:
  friend class LinkCrypto;
  // Null: there is no memory for it.
  static std::unique_ptr<LinkCipher> Make(const LinkCryptoFunctions& functions, const Key& key,
                                          bool is_sealing);
  // Takes the context.
  LinkCipher(const LinkCryptoFunctions& functions, evp_cipher_ctx_st* context);

  const LinkCryptoFunctions& functions_;
  evp_cipher_ctx_st* const context_;
};

class LinkCrypto {
 public:
  // FailedPrecondition: libcrypto.so.3 is not there or does not do what is needed, in a sentence
  // that says what to do.
  static absl::StatusOr<const LinkCrypto*> OfThisProcess();

  // HKDF-Expand with SHA-256 (RFC 5869) of a key that is random already, to 32 bytes. Throws
  // std::bad_alloc, as an allocation of our own does, where OpenSSL has no memory.
  Key Derive(const Key& key, std::string_view label) const;
  // In a time that does not tell where they differ.
  bool AreEqual(const Key& one, const Key& other) const;
  // Overwrites it, whatever the compiler thinks of that.
  void Forget(Key& key) const;
  // Null: there is no memory for it. The caller may be a thread in which nothing catches.
  std::unique_ptr<LinkCipher> Sealing(const Key& key) const;
  std::unique_ptr<LinkCipher> Opening(const Key& key) const;

 private:
  explicit LinkCrypto(std::unique_ptr<const LinkCryptoFunctions> functions);
  static absl::StatusOr<const LinkCrypto*> Load();
  // Whether the library does what it has functions for.
  bool Works() const;

  const std::unique_ptr<const LinkCryptoFunctions> functions_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_TCP_LINK_CRYPTO_H_
