#include "rendezvous/tls/pem_trouble.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {
namespace {

// That two bytes of length tell of.
constexpr size_t kMaxDerBytes = 4 + 65535;
constexpr char kOpenSsh[] = "OPENSSH PRIVATE KEY";

struct Block {
  bool is_damaged = false;  // it is no base64, has no end, or, being of the kind, cannot be decoded
  std::string title;        // "EC PRIVATE KEY"; empty: there is no further block
  std::string header;       // of the older keys with a password
};

bool IsOf(PemKind kind, const std::string& title) {
  return absl::EndsWith(title, kind == PemKind::kPrivateKey ? "PRIVATE KEY" : "CERTIFICATE");
}

bool IsLocked(const Block& block) {
  return absl::StrContains(absl::StrCat(block.title, block.header), "ENCRYPTED");
}

bool IsDecoded(const std::string& title, const unsigned char* bytes, long size) {
  if (title == "PRIVATE KEY") {
    PKCS8_PRIV_KEY_INFO* key = d2i_PKCS8_PRIV_KEY_INFO(nullptr, &bytes, size);
    PKCS8_PRIV_KEY_INFO_free(key);
    return key != nullptr;
  }
  if (absl::EndsWith(title, "PRIVATE KEY")) {
    EVP_PKEY* key = d2i_AutoPrivateKey(nullptr, &bytes, size);
    EVP_PKEY_free(key);
    return key != nullptr;
  }
  X509* certificate = d2i_X509(nullptr, &bytes, size);
  X509_free(certificate);
  return certificate != nullptr;
}

Block NextBlock(BIO* in, PemKind kind) {
  char* title = nullptr;
  char* header = nullptr;
  unsigned char* bytes = nullptr;
  long size = 0;
  Block block;
  if (PEM_read_bio(in, &title, &header, &bytes, &size) == 1) {
    block = {.title = title, .header = header};
    block.is_damaged = IsOf(kind, block.title) && !IsLocked(block) && block.title != kOpenSsh &&
                       !IsDecoded(block.title, bytes, size);
  } else {
    block.is_damaged = ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE;
  }
  ERR_clear_error();
  OPENSSL_free(title);
  OPENSSL_free(header);
  OPENSSL_clear_free(bytes, static_cast<size_t>(size));
  return block;
}

// Whether `text` is one SEQUENCE of DER (X.690, 8.1): 0x30, its length in one byte, or in the one
// or two behind it, and so many more bytes.
bool IsSequence(std::string_view text) {
  const auto byte = [&text](size_t i) {
    return static_cast<size_t>(static_cast<uint8_t>(text[i]));
  };
  if (text.size() < 4 || text[0] != '\x30') return false;
  if (byte(1) < 0x80) return text.size() == 2 + byte(1);
  if (byte(1) == 0x81) return text.size() == 3 + byte(2);
  return byte(1) == 0x82 && text.size() == 4 + (byte(2) << 8 | byte(3));
}

// Another form than PEM; "": none that is known.
std::string OtherForm(const std::string& file, PemKind kind, const std::string& what) {
  const std::unique_ptr<BIO, int (*)(BIO*)> in(BIO_new_file(file.c_str(), "r"), BIO_free);
  std::string text(kMaxDerBytes + 1, '\0');
  const int size =
      in == nullptr ? -1 : BIO_read(in.get(), text.data(), static_cast<int>(text.size()));
  ERR_clear_error();
  if (size < 0) return "";
  text.resize(static_cast<size_t>(size));
  if (text.empty()) return "it is empty";
  if (text.starts_with("ssh-") || text.starts_with("ecdsa-")) {
    return absl::StrCat("it is a public key of OpenSSH: expected a PEM ", what);
  }
  if (!IsSequence(text)) return "";
  // Its version comes first, which is 3 (RFC 7292, 4).
  if (text.substr(4, 3) == std::string_view("\x02\x01\x03", 3)) {
    return absl::StrCat("it looks like PKCS#12: expected a PEM ", what,
                        ", as \"openssl pkcs12 -nodes\" writes it");
  }
  return absl::StrCat("it looks like DER: expected a PEM ", what, ", as \"openssl ",
                      kind == PemKind::kPrivateKey ? "pkey" : "x509", " -inform DER\" writes it");
}

}  // namespace

std::string PemTrouble(const std::string& file, PemKind kind) {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  const std::string why = reason == nullptr ? "it gives no reason" : reason;
  ERR_clear_error();
  const std::string what = kind == PemKind::kPrivateKey ? "private key" : "certificate";
  const std::unique_ptr<BIO, int (*)(BIO*)> in(BIO_new_file(file.c_str(), "r"), BIO_free);
  std::string other;
  bool is_there = false;
  while (in != nullptr) {
    const Block block = NextBlock(in.get(), kind);
    if (block.is_damaged) return absl::StrCat("the PEM ", what, " that it holds is damaged");
    if (block.title.empty()) break;
    if (!IsOf(kind, block.title)) {
      if (other.empty()) other = block.title;
      continue;
    }
    is_there = true;
    if (kind == PemKind::kCertificate) continue;  // one behind it may be what is damaged
    if (IsLocked(block)) {
      return "its private key has a password, for which nobody is asked: write it without one "
             "(openssl pkey)";
    }
    if (block.title == kOpenSsh) {
      return "it is an OpenSSH key: expected PKCS#8 or PKCS#1 in PEM, as openssl makes it";
    }
    break;  // no further one is looked at
  }
  ERR_clear_error();
  if (is_there) {
    return absl::StrCat("OpenSSL does not take the PEM ", what, " that it holds: ", why);
  }
  if (other.empty()) {
    if (std::string form = OtherForm(file, kind, what); !form.empty()) return form;
  }
  const std::string instead =
      other.empty() ? "" : absl::StrCat(", but \"", EscapeControl(other), "\"");
  return absl::StrCat("it holds no PEM ", what, instead);
}

}  // namespace ddprun::rendezvous
