// Certificates, their keys and authorities from PEM files, or why OpenSSL does not take them.
//
// Each error is InvalidArgument and begins with the file: "ca.pem: it holds no PEM certificate".
#ifndef DDPRUN_RENDEZVOUS_TLS_PEM_FILES_H_
#define DDPRUN_RENDEZVOUS_TLS_PEM_FILES_H_

#include <openssl/ssl.h>

#include <string>

#include "absl/status/status.h"

namespace ddprun::rendezvous {

// What `context` shows to its peers: the certificate and those that lead to its authority, and its
// key. A certificate whose dates are past or to come is refused.
absl::Status UseCertificate(SSL_CTX* context, const std::string& cert, const std::string& key);
// Whether what `context` shows, of the file `cert`, is valid now.
absl::Status CheckDates(const SSL_CTX* context, const std::string& cert);
// By whom certificates of peers have to be signed.
absl::Status UseAuthorities(SSL_CTX* context, const std::string& ca);

// The same of files that somebody else gives to a TLS of its own. An empty name is no file.
// REQUIRES: `cert` and `key` are both empty, or neither.
absl::Status CheckPemFiles(const std::string& cert, const std::string& key, const std::string& ca);

// "2026-11-29 21:14:09 UTC".
std::string DateText(const ASN1_TIME* date);

// That error.
absl::Status BadFile(const std::string& file, const std::string& why);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_TLS_PEM_FILES_H_
