#include "worker_runtime/comm/tcp/link_crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ddp/dynamic_library.h"
#include "rendezvous/base/check.h"

namespace ddp::internal {

// Opened and not linked: programs bring their own OpenSSL or BoringSSL, jobs without a token need
// none, and who mends OpenSSL on a machine has mended this.
struct LinkCryptoFunctions {
  decltype(&::HMAC) HMAC;
  decltype(&::EVP_sha256) EVP_sha256;
  decltype(&::EVP_aes_256_gcm) EVP_aes_256_gcm;
  decltype(&::EVP_CIPHER_CTX_new) EVP_CIPHER_CTX_new;
  decltype(&::EVP_CIPHER_CTX_free) EVP_CIPHER_CTX_free;
  decltype(&::EVP_CIPHER_CTX_ctrl) EVP_CIPHER_CTX_ctrl;
  decltype(&::EVP_CipherInit_ex) EVP_CipherInit_ex;
  decltype(&::EVP_CipherUpdate) EVP_CipherUpdate;
  decltype(&::EVP_CipherFinal_ex) EVP_CipherFinal_ex;
  decltype(&::CRYPTO_memcmp) CRYPTO_memcmp;
  decltype(&::OPENSSL_cleanse) OPENSSL_cleanse;
};

namespace {

constexpr char kLibrary[] = "libcrypto.so.3";

// The first of its functions that the library does not have; null: it has all.
const char* FindAll(const DynamicLibrary& library, LinkCryptoFunctions* functions) {
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto* function) {
    if (!library.Take(name, *function) && missing == nullptr) missing = name;
  };
  find("HMAC", &functions->HMAC);
  find("EVP_sha256", &functions->EVP_sha256);
  find("EVP_aes_256_gcm", &functions->EVP_aes_256_gcm);
  find("EVP_CIPHER_CTX_new", &functions->EVP_CIPHER_CTX_new);
  find("EVP_CIPHER_CTX_free", &functions->EVP_CIPHER_CTX_free);
  find("EVP_CIPHER_CTX_ctrl", &functions->EVP_CIPHER_CTX_ctrl);
  find("EVP_CipherInit_ex", &functions->EVP_CipherInit_ex);
  find("EVP_CipherUpdate", &functions->EVP_CipherUpdate);
  find("EVP_CipherFinal_ex", &functions->EVP_CipherFinal_ex);
  find("CRYPTO_memcmp", &functions->CRYPTO_memcmp);
  find("OPENSSL_cleanse", &functions->OPENSSL_cleanse);
  return missing;
}

const unsigned char* Bytes(const char* text) {
  return reinterpret_cast<const unsigned char*>(text);
}

// 96 bits, as GCM has it without a hash.
std::array<unsigned char, 12> NonceOf(uint64_t number) {
  std::array<unsigned char, 12> nonce{};
  for (size_t i = 0; i < 8; ++i) nonce[4 + i] = static_cast<unsigned char>(number >> (56 - 8 * i));
  return nonce;
}

absl::Status Unusable(const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(
      "encrypt the links between nodes, as the job's token or certificates ask for: ", why,
      "; install OpenSSL 3 where the workers run (Debian: libssl3)"));
}

}  // namespace

std::unique_ptr<LinkCipher> LinkCipher::Make(const LinkCryptoFunctions& functions, const Key& key,
                                             bool is_sealing) {
  evp_cipher_ctx_st* const context = functions.EVP_CIPHER_CTX_new();
  if (context == nullptr) return nullptr;
  std::unique_ptr<LinkCipher> cipher(new LinkCipher(functions, context));
  // Load() has seen it succeed: what it lacks now is memory.
  const bool is_made = functions.EVP_CipherInit_ex(context, functions.EVP_aes_256_gcm(), nullptr,
                                                   key.data(), nullptr, is_sealing ? 1 : 0) == 1;
  return is_made ? std::move(cipher) : nullptr;
}

LinkCipher::LinkCipher(const LinkCryptoFunctions& functions, evp_cipher_ctx_st* context)
    : functions_(functions), context_(context) {}

LinkCipher::~LinkCipher() { functions_.EVP_CIPHER_CTX_free(context_); }

void LinkCipher::Seal(uint64_t number, std::string_view header, std::string_view first,
                      std::string_view second, char* to) {
  const auto nonce = NonceOf(number);
  bool is_done =
      functions_.EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce.data(), -1) == 1;
  int size = 0;
  is_done = is_done && functions_.EVP_CipherUpdate(context_, nullptr, &size, Bytes(header.data()),
                                                   static_cast<int>(header.size())) == 1;
  for (const std::string_view piece : {first, second}) {
    if (piece.empty()) continue;
    is_done = is_done &&
              functions_.EVP_CipherUpdate(context_, reinterpret_cast<unsigned char*>(to), &size,
                                          Bytes(piece.data()), static_cast<int>(piece.size())) == 1;
    to += piece.size();
  }
  is_done = is_done && functions_.EVP_CipherFinal_ex(context_, reinterpret_cast<unsigned char*>(to),
                                                     &size) == 1;
  is_done = is_done &&
            functions_.EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, to) == 1;
  DDP_CHECK(is_done);
}

bool LinkCipher::Open(uint64_t number, std::string_view header, const char* sealed, size_t size,
                      char* to) {
  const auto nonce = NonceOf(number);
  DDP_CHECK(functions_.EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce.data(), -1) ==
            1);
  int done = 0;
  DDP_CHECK(functions_.EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kTagBytes,
                                           const_cast<char*>(sealed + size)) == 1);
  auto* out = reinterpret_cast<unsigned char*>(to);
  return functions_.EVP_CipherUpdate(context_, nullptr, &done, Bytes(header.data()),
                                     static_cast<int>(header.size())) == 1 &&
         functions_.EVP_CipherUpdate(context_, out, &done, Bytes(sealed), static_cast<int>(size)) ==
             1 &&
         functions_.EVP_CipherFinal_ex(context_, out + size, &done) == 1;
}

LinkCrypto::LinkCrypto(std::unique_ptr<const LinkCryptoFunctions> functions)
    : functions_(std::move(functions)) {}

absl::StatusOr<const LinkCrypto*> LinkCrypto::OfThisProcess() {
  // Never destroyed, as the library is never closed: threads may use both while the process ends.
  static const auto* const loaded = new absl::StatusOr<const LinkCrypto*>(Load());
  return *loaded;
}

absl::StatusOr<const LinkCrypto*> LinkCrypto::Load() {
  absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Open(kLibrary);
  if (!library.ok()) return Unusable(std::string(library.status().message()));
  auto functions = std::make_unique<LinkCryptoFunctions>();
  if (const char* missing = FindAll(*library, functions.get()); missing != nullptr) {
    return Unusable(absl::StrCat(library->path(), " has no ", missing));
  }
  std::unique_ptr<LinkCrypto> crypto(new LinkCrypto(std::move(functions)));
  if (!crypto->Works()) {
    return Unusable(absl::StrCat(
        library->path(), " refuses HMAC with SHA-256 or AES-256-GCM: its configuration may leave ",
        "them out (openssl.cnf, OPENSSL_CONF, OPENSSL_MODULES)"));
  }
  return crypto.release();
}

bool LinkCrypto::Works() const {
  try {
    return Sealing(Derive(Key{}, "")) != nullptr;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

Key LinkCrypto::Derive(const Key& key, std::string_view label) const {
  std::string info(label);
  info += '\x01';
  Key out{};
  unsigned int size = 0;
  // As in LinkCipher::Make().
  if (functions_->HMAC(functions_->EVP_sha256(), key.data(), static_cast<int>(key.size()),
                       Bytes(info.data()), info.size(), out.data(), &size) == nullptr) {
    throw std::bad_alloc();
  }
  DDP_CHECK(size == out.size());
  return out;
}

bool LinkCrypto::AreEqual(const Key& one, const Key& other) const {
  return functions_->CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

void LinkCrypto::Forget(Key& key) const { functions_->OPENSSL_cleanse(key.data(), key.size()); }

std::unique_ptr<LinkCipher> LinkCrypto::Sealing(const Key& key) const {
  return LinkCipher::Make(*functions_, key, true);
}

std::unique_ptr<LinkCipher> LinkCrypto::Opening(const Key& key) const {
  return LinkCipher::Make(*functions_, key, false);
}

}  // namespace ddp::internal
