#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "rendezvous/base/check.h"

namespace ddprun::testing {
namespace {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using X509Owner = std::unique_ptr<X509, Deleter<X509_free>>;
using Memory = std::unique_ptr<BIO, Deleter<BIO_free>>;

std::string TextIn(const Memory& memory) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

Memory Over(const std::string& text) {
  return Memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

void Extend(X509* certificate, int what, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str());
  DDP_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// `issuer` null: signed by itself.
Certificate Make(const std::string& name, const Certificate* issuer, int extension,
                 const std::string& value, long from_s, long until_s,
                 const Key& key = Key(EVP_EC_gen("P-256")), const EVP_MD* hash = EVP_sha256()) {
  const X509Owner certificate(X509_new());
  X509* const raw = certificate.get();
  X509_set_version(raw, 2);
  static long serial = 0;
  ASN1_INTEGER_set(X509_get_serialNumber(raw), ++serial);
  const std::string common_name = name + " " + std::to_string(serial);  // nobody else's
  X509_gmtime_adj(X509_getm_notBefore(raw), from_s);
  X509_gmtime_adj(X509_getm_notAfter(raw), until_s);
  X509_set_pubkey(raw, key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(raw), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  Extend(raw, extension, value);
  Key issuer_key;
  if (issuer != nullptr) {
    const X509Owner by(
        PEM_read_bio_X509(Over(issuer->certificate).get(), nullptr, nullptr, nullptr));
    issuer_key.reset(PEM_read_bio_PrivateKey(Over(issuer->key).get(), nullptr, nullptr, nullptr));
    X509_set_issuer_name(raw, X509_get_subject_name(by.get()));
  } else {
    X509_set_issuer_name(raw, X509_get_subject_name(raw));
  }
  EVP_PKEY* const signer = issuer != nullptr ? issuer_key.get() : key.get();
  DDP_CHECK(X509_sign(raw, signer, hash) > 0);
  const Memory certificate_text(BIO_new(BIO_s_mem())), key_text(BIO_new(BIO_s_mem()));
  DDP_CHECK(PEM_write_bio_X509(certificate_text.get(), raw) == 1);
  DDP_CHECK(PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                     nullptr) == 1);
  return {TextIn(certificate_text), TextIn(key_text)};
}

}  // namespace

Certificate MakeAuthority(long from_s, long until_s) {
  return Make("an authority", nullptr, NID_basic_constraints, "critical,CA:TRUE", from_s, until_s);
}

Certificate MakeAuthorityBelow(const Certificate& authority) {
  return Make("an authority", &authority, NID_basic_constraints, "critical,CA:TRUE", -3600, 3600);
}

Certificate MakeServerCertificate(const Certificate& authority, const std::string& names,
                                  long from_s, long until_s) {
  return Make("a server", &authority, NID_subject_alt_name, names, from_s, until_s);
}

std::string WithPassword(const std::string& key, const std::string& password) {
  const Key plain(PEM_read_bio_PrivateKey(Over(key).get(), nullptr, nullptr, nullptr));
  const Memory text(BIO_new(BIO_s_mem()));
  DDP_CHECK(PEM_write_bio_PKCS8PrivateKey(text.get(), plain.get(), EVP_aes_256_cbc(),
                                          password.data(), static_cast<int>(password.size()),
                                          nullptr, nullptr) == 1);
  return TextIn(text);
}

Certificate MakeRsaCertificate(const Certificate& authority, int bits) {
  return Make("a server", &authority, NID_subject_alt_name, "DNS:localhost", -3600, 3600,
              Key(EVP_RSA_gen(static_cast<unsigned>(bits))));
}

Certificate MakeSha1Certificate(const Certificate& authority) {
  return Make("a server", &authority, NID_subject_alt_name, "DNS:localhost", -3600, 3600,
              Key(EVP_EC_gen("P-256")), EVP_sha1());
}

std::string MakeRevocationList(const Certificate& authority) {
  const std::unique_ptr<X509, void (*)(X509*)> issuer(
      PEM_read_bio_X509(Over(authority.certificate).get(), nullptr, nullptr, nullptr), X509_free);
  const Key key(PEM_read_bio_PrivateKey(Over(authority.key).get(), nullptr, nullptr, nullptr));
  const std::unique_ptr<X509_CRL, void (*)(X509_CRL*)> list(X509_CRL_new(), X509_CRL_free);
  const std::unique_ptr<ASN1_TIME, void (*)(ASN1_TIME*)> now(X509_gmtime_adj(nullptr, 0),
                                                             ASN1_TIME_free);
  const Memory text(BIO_new(BIO_s_mem()));
  DDP_CHECK(issuer != nullptr &&
            X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(issuer.get())) == 1 &&
            X509_CRL_set1_lastUpdate(list.get(), now.get()) == 1 &&
            X509_CRL_sign(list.get(), key.get(), EVP_sha256()) > 0 &&
            PEM_write_bio_X509_CRL(text.get(), list.get()) == 1);
  return TextIn(text);
}

}  // namespace ddprun::testing
