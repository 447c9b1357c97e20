#include "worker_runtime/comm/nccl/nccl_encryption.h"

#include <string.h>

#include <array>
#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "worker_runtime/gpu/texts_of_file.h"

namespace ddp::internal {
namespace {

// A build with TLS names the library that it opens for it, one without says why it fails. NCCL has
// no function that tells.
constexpr std::string_view kTexts[] = {"libssl.so.3", "NCCL was built without TLS support"};
constexpr size_t kWithoutTls = 1;

// NCCL takes a text, and its bytes for the key as they are.
using Passphrase = std::array<char, 2 * sizeof(Key) + 1>;

void Spell(const Key& key, Passphrase* passphrase) {
  constexpr char kDigits[] = "0123456789abcdef";
  char* to = passphrase->data();
  for (const uint8_t byte : key) {
    *to++ = kDigits[byte >> 4];
    *to++ = kDigits[byte & 15];
  }
  *to = '\0';
}

absl::Status SetKey(const LoadedNccl& nccl, const LinkKey& round_key) {
  Key key = round_key.ForNccl();
  Passphrase passphrase;
  Spell(key, &passphrase);
  NcclEncryptionConfig config;
  config.mode = NcclEncryptionConfig::kPsk;
  config.psk = passphrase.data();
  const NcclResult result = nccl.api.ncclSetEncryption(&config);
  explicit_bzero(key.data(), key.size());
  explicit_bzero(passphrase.data(), passphrase.size());
  const absl::Status status = NcclStatus(nccl.api, "ncclSetEncryption", result, nullptr);
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat("encrypt what NCCL sends, as the job's token or certificates ask for: ",
                   std::string(status.message()), "; name another build of NCCL than ", nccl.path,
                   " by DDPRUN_NCCL_LIB"));
}

}  // namespace

std::string WhyNcclIsPlain(const LoadedNccl& nccl) {
  const std::string what =
      absl::StrCat("NCCL ", NcclVersionText(nccl.version), " (", nccl.path, ")");
  if (nccl.api.ncclSetEncryption == nullptr) {
    return absl::StrCat(what,
                        " cannot; 2.32 or newer can, if it is built with "
                        "TLS_BACKEND=OPENSSL3");
  }
  // A file that does not tell, or is gone, is no reason to go on in the clear.
  if (FirstTextOfFile(nccl.path, kTexts) != kWithoutTls) return "";
  return absl::StrCat(what,
                      " was built without TLS; one that is built with TLS_BACKEND=OPENSSL3, "
                      "and named by DDPRUN_NCCL_LIB, encrypts");
}

void SayNcclIsPlain(const LoadedNccl& nccl) {
  static const bool is_said = [&nccl] {
    std::fprintf(stderr,
                 "ddp: what NCCL sends to other nodes is not encrypted, though the job has a token "
                 "or certificates: %s\n",
                 WhyNcclIsPlain(nccl).c_str());
    return true;
  }();
  (void)is_said;
}

void SayWhatNcclEncrypts() {
  static const bool is_said = [] {
    std::fputs(
        "ddp: NCCL encrypts what it sends to other nodes over TCP; over InfiniBand or RoCE it does "
        "not\n",
        stderr);
    return true;
  }();
  (void)is_said;
}

absl::Status EncryptNccl(const LoadedNccl& nccl, const LinkKey& key) {
  static const auto* const status = new absl::Status(SetKey(nccl, key));
  return *status;
}

std::string AdviceOnEncryption(const std::string& words) {
  if (words.find(kTexts[kWithoutTls]) != std::string::npos) {
    return "; name a build of NCCL with TLS_BACKEND=OPENSSL3 by DDPRUN_NCCL_LIB";
  }
  const bool lacks_openssl = words.find("failed to open libssl.so.3") != std::string::npos ||
                             words.find("failed to open libcrypto.so.3") != std::string::npos;
  return lacks_openssl ? "; NCCL encrypts, as the job's token or certificates ask for: install "
                         "OpenSSL 3 where the workers run (Debian: libssl3)"
                       : "";
}

}  // namespace ddp::internal
