#include "rendezvous/tls/identity.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {
namespace {

// The same for all jobs: it is sent in the clear.
constexpr std::string_view kPskName = "ddprun/1";
const auto* const kPskNameBytes = reinterpret_cast<const unsigned char*>(kPskName.data());
constexpr std::string_view kKeyLabel = "ddprun/1 agents";
// TLS_AES_128_GCM_SHA256 (RFC 8446, B.4), whose hash the key is for.
constexpr unsigned char kCipher[] = {0x13, 0x01};

// OpenSSL's last word on this thread.
std::string LastError() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? "OpenSSL gives no reason" : reason;
}

// HKDF with SHA-256 (RFC 5869), without salt: a token is as random as a key.
bool DeriveKey(std::string_view token, std::array<uint8_t, 32>& key) {
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> hkdf(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), EVP_PKEY_CTX_free);
  const auto* bytes = reinterpret_cast<const unsigned char*>(token.data());
  const auto* label = reinterpret_cast<const unsigned char*>(kKeyLabel.data());
  size_t size = key.size();
  return hkdf != nullptr && EVP_PKEY_derive_init(hkdf.get()) > 0 &&
         EVP_PKEY_CTX_set_hkdf_md(hkdf.get(), EVP_sha256()) > 0 &&
         EVP_PKEY_CTX_set1_hkdf_key(hkdf.get(), bytes, static_cast<int>(token.size())) > 0 &&
         EVP_PKEY_CTX_add1_hkdf_info(hkdf.get(), label, static_cast<int>(kKeyLabel.size())) > 0 &&
         EVP_PKEY_derive(hkdf.get(), key.data(), &size) > 0 && size == key.size();
}

// A key with a password is refused, and nobody is asked for it on the terminal.
int RefusePassword(char*, int, int, void*) { return -1; }

std::string DateText(const ASN1_TIME* date) {
  tm parts{};
  if (ASN1_TIME_to_tm(date, &parts) != 1) return "an unknown date";
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

absl::Status BadFile(const std::string& file, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(EscapeControl(file), ": ", why));
}

absl::Status CheckReadable(const std::string& file) {
  struct stat found;
  if (stat(file.c_str(), &found) != 0) return BadFile(file, std::strerror(errno));
  if (!S_ISREG(found.st_mode)) return BadFile(file, "it is no regular file");
  return absl::OkStatus();
}

absl::Status CheckDates(const std::string& file, const X509* certificate) {
  const ASN1_TIME* from = X509_get0_notBefore(certificate);
  const ASN1_TIME* until = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(from) > 0) {
    return BadFile(file, absl::StrCat("the certificate is not valid before ", DateText(from),
                                      "; is this machine's clock right?"));
  }
  if (X509_cmp_current_time(until) < 0) {
    return BadFile(file, absl::StrCat("the certificate was valid until ", DateText(until),
                                      "; make a new one"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsIdentity>> TlsIdentity::OfToken(std::string_view token) {
  std::shared_ptr<TlsIdentity> identity(new TlsIdentity);
  identity->is_token_ = true;
  if (!DeriveKey(token, identity->key_)) {
    return absl::InternalError(absl::StrCat("derive a key from the token: ", LastError()));
  }
  if (absl::Status status = identity->Init(); !status.ok()) return status;
  SSL_CTX_set_psk_find_session_callback(identity->context_, OnServerPsk);
  SSL_CTX_set_psk_use_session_callback(identity->context_, OnClientPsk);
  return identity;
}

absl::StatusOr<std::shared_ptr<const TlsIdentity>> TlsIdentity::OfPem(const PemFiles& files) {
  std::shared_ptr<TlsIdentity> identity(new TlsIdentity);
  if (absl::Status status = identity->Init(); !status.ok()) return status;
  if (absl::Status status = identity->ReadPem(files); !status.ok()) return status;
  return identity;
}

TlsIdentity::~TlsIdentity() {
  SSL_CTX_free(context_);
  OPENSSL_cleanse(key_.data(), key_.size());
}

absl::Status TlsIdentity::Init() {
  context_ = SSL_CTX_new(TLS_method());
  const bool is_set = context_ != nullptr &&
                      SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) == 1 &&
                      SSL_CTX_set_max_proto_version(context_, TLS1_3_VERSION) == 1 &&
                      SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256") == 1 &&
                      SSL_CTX_set1_groups_list(context_, "X25519:P-256") == 1 &&
                      SSL_CTX_set_num_tickets(context_, 0) == 1 &&
                      SSL_CTX_set_session_id_context(context_, kPskNameBytes, kPskName.size()) == 1;
  if (!is_set) return absl::InternalError(absl::StrCat("set up TLS 1.3: ", LastError()));
  SSL_CTX_set_app_data(context_, this);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context_, SSL_MODE_RELEASE_BUFFERS);  // 34 KiB for each idle connection
  // With a token there is no authority: whoever shows a certificate instead is refused.
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_default_passwd_cb(context_, RefusePassword);
  return absl::OkStatus();
}

absl::Status TlsIdentity::ReadPem(const PemFiles& files) {
  for (const std::string& file : {files.cert, files.key, files.ca}) {
    if (absl::Status status = CheckReadable(file); !status.ok()) return status;
  }
  if (SSL_CTX_use_certificate_chain_file(context_, files.cert.c_str()) != 1) {
    return BadFile(files.cert,
                   absl::StrCat("no certificate in PEM form can be read: ", LastError()));
  }
  if (absl::Status status = CheckDates(files.cert, SSL_CTX_get0_certificate(context_));
      !status.ok()) {
    return status;
  }
  // The first compares keys of the certificate's type alone.
  if (SSL_CTX_use_PrivateKey_file(context_, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context_) != 1) {
    const int reason = ERR_GET_REASON(ERR_peek_last_error());
    const bool is_anothers = reason == X509_R_KEY_VALUES_MISMATCH ||
                             reason == X509_R_KEY_TYPE_MISMATCH ||
                             reason == SSL_R_NO_PRIVATE_KEY_ASSIGNED;
    const std::string why = LastError();
    return BadFile(
        files.key,
        is_anothers ? absl::StrCat("it is not the key of the certificate in ", files.cert)
                    : absl::StrCat("no key in PEM form, without a password, can be read: ", why));
  }
  if (SSL_CTX_load_verify_file(context_, files.ca.c_str()) != 1) {
    return BadFile(files.ca, absl::StrCat("no certificate in PEM form can be read: ", LastError()));
  }
  // One certificate serves for both ends of a connection.
  SSL_CTX_set_purpose(context_, X509_PURPOSE_ANY);
  return absl::OkStatus();
}

SSL_SESSION* TlsIdentity::NewSession(SSL* ssl) const {
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
  const bool is_set = session != nullptr && cipher != nullptr &&
                      SSL_SESSION_set1_master_key(session, key_.data(), key_.size()) == 1 &&
                      SSL_SESSION_set1_id_context(session, kPskNameBytes, kPskName.size()) == 1 &&
                      SSL_SESSION_set_cipher(session, cipher) == 1 &&
                      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (is_set) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int TlsIdentity::OnServerPsk(SSL* ssl, const unsigned char* name, size_t size,
                             SSL_SESSION** session) {
  *session = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(name), size) != kPskName) return 1;
  const auto* self = static_cast<TlsIdentity*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  *session = self->NewSession(ssl);
  return *session != nullptr;
}

int TlsIdentity::OnClientPsk(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* size,
                             SSL_SESSION** session) {
  const auto* self = static_cast<TlsIdentity*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  *session = self->NewSession(ssl);
  *name = kPskNameBytes;
  *size = kPskName.size();
  return *session != nullptr;
}

}  // namespace ddprun::rendezvous
