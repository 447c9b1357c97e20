#include "rendezvous/tls/pem_files.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/tls/pem_trouble.h"

namespace ddprun::rendezvous {
namespace {

// A key with a password is refused, and nobody is asked for it on the terminal.
int RefusePassword(char*, int, int, void*) { return -1; }

absl::Status CheckReadable(const std::string& file) {
  struct stat found;
  if (stat(file.c_str(), &found) != 0) return BadFile(file, std::strerror(errno));
  if (!S_ISREG(found.st_mode)) return BadFile(file, "it is no regular file");
  const UniqueFd readable(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return readable.is_open() ? absl::OkStatus() : BadFile(file, std::strerror(errno));
}

// Of a file of certificates of which one is refused for its key.
std::string ShortKeyText(const std::string& file) {
  const std::unique_ptr<BIO, int (*)(BIO*)> in(BIO_new_file(file.c_str(), "r"), BIO_free);
  int shortest = 0;
  while (in != nullptr) {
    const std::unique_ptr<X509, void (*)(X509*)> one(
        PEM_read_bio_X509(in.get(), nullptr, RefusePassword, nullptr), X509_free);
    if (one == nullptr) break;
    const EVP_PKEY* key = X509_get0_pubkey(one.get());
    if (key == nullptr || EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA) continue;
    const int bits = EVP_PKEY_get_bits(key);
    if (shortest == 0 || bits < shortest) shortest = bits;
  }
  ERR_clear_error();  // the file's end is one
  constexpr char kNeeded[] = "2048 or more are needed for RSA, 224 for elliptic curves";
  return shortest == 0
             ? absl::StrCat("a certificate's key is too short: ", kNeeded, " bits")
             : absl::StrCat("the RSA key of a certificate has ", shortest, " bits: ", kNeeded);
}

}  // namespace

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

absl::Status CheckDates(const SSL_CTX* context, const std::string& cert) {
  const X509* certificate = SSL_CTX_get0_certificate(context);
  const ASN1_TIME* from = X509_get0_notBefore(certificate);
  const ASN1_TIME* until = X509_get0_notAfter(certificate);
  if (X509_cmp_current_time(from) > 0) {
    return BadFile(cert, absl::StrCat("the certificate is not valid before ", DateText(from),
                                      "; is this machine's clock right?"));
  }
  if (X509_cmp_current_time(until) < 0) {
    return BadFile(cert, absl::StrCat("the certificate was valid until ", DateText(until),
                                      "; make a new one, or set this machine's clock right"));
  }
  return absl::OkStatus();
}

absl::Status UseCertificate(SSL_CTX* context, const std::string& cert, const std::string& key) {
  for (const std::string& file : {cert, key}) {
    if (absl::Status status = CheckReadable(file); !status.ok()) return status;
  }
  SSL_CTX_set_default_passwd_cb(context, RefusePassword);
  if (SSL_CTX_use_certificate_chain_file(context, cert.c_str()) != 1) {
    const int reason = ERR_GET_REASON(ERR_peek_last_error());
    if (reason == SSL_R_EE_KEY_TOO_SMALL || reason == SSL_R_CA_KEY_TOO_SMALL) {
      return BadFile(cert, ShortKeyText(cert));
    }
    if (reason == SSL_R_CA_MD_TOO_WEAK) {  // OpenSSL's word for the machine's own, too
      ERR_clear_error();
      return BadFile(cert,
                     "a certificate in it is signed with a hash that is too weak, as SHA-1 and MD5 "
                     "are: have it signed with SHA-256");
    }
    return BadFile(cert, PemTrouble(cert, PemKind::kCertificate));
  }
  if (absl::Status status = CheckDates(context, cert); !status.ok()) return status;
  // The first compares keys of the certificate's type alone.
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    const int reason = ERR_GET_REASON(ERR_peek_last_error());
    const bool is_anothers = reason == X509_R_KEY_VALUES_MISMATCH ||
                             reason == X509_R_KEY_TYPE_MISMATCH ||
                             reason == SSL_R_NO_PRIVATE_KEY_ASSIGNED;
    if (!is_anothers) return BadFile(key, PemTrouble(key, PemKind::kPrivateKey));
    ERR_clear_error();
    return BadFile(key,
                   absl::StrCat("it is not the key of the certificate in ", EscapeControl(cert)));
  }
  return absl::OkStatus();
}

absl::Status UseAuthorities(SSL_CTX* context, const std::string& ca) {
  if (absl::Status status = CheckReadable(ca); !status.ok()) return status;
  if (SSL_CTX_load_verify_file(context, ca.c_str()) != 1) {
    return BadFile(ca, PemTrouble(ca, PemKind::kCertificate));
  }
  // OpenSSL takes lists of revoked certificates, too, and does not look into them.
  bool has_authority = false, has_list = false;
  const STACK_OF(X509_OBJECT)* held = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context));
  for (int i = 0; i < sk_X509_OBJECT_num(held); ++i) {
    const int type = X509_OBJECT_get_type(sk_X509_OBJECT_value(held, i));
    has_authority |= type == X509_LU_X509;
    has_list |= type == X509_LU_CRL;
  }
  if (!has_authority) return BadFile(ca, PemTrouble(ca, PemKind::kCertificate));
  if (!has_list) return absl::OkStatus();
  return BadFile(ca,
                 "it holds a list of revoked certificates, and such lists are not obeyed here: "
                 "take it out, and name an authority that signs for this job's nodes alone");
}

absl::Status CheckPemFiles(const std::string& cert, const std::string& key, const std::string& ca) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()),
                                                             SSL_CTX_free);
  if (context == nullptr) {
    ERR_clear_error();
    return BadFile(ca.empty() ? cert : ca, "OpenSSL could not set up TLS to judge it by");
  }
  absl::Status status;
  if (!ca.empty()) status = UseAuthorities(context.get(), ca);
  if (status.ok() && !cert.empty()) status = UseCertificate(context.get(), cert, key);
  return status;
}

}  // namespace ddprun::rendezvous
