// Why OpenSSL takes nothing from a PEM file, in words for who has named the file.
#ifndef DDPRUN_RENDEZVOUS_TLS_PEM_TROUBLE_H_
#define DDPRUN_RENDEZVOUS_TLS_PEM_TROUBLE_H_

#include <string>

namespace ddprun::rendezvous {

enum class PemKind { kCertificate, kPrivateKey };

// REQUIRES: OpenSSL has just taken no `kind` from the file, on this thread. "it holds no PEM
// certificate" and what it has instead, or that what it has is damaged, has a password, or is of
// another format; where it can be decoded, OpenSSL's reason. Leaves OpenSSL's errors empty.
std::string PemTrouble(const std::string& file, PemKind kind);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_TLS_PEM_TROUBLE_H_
