// Certificates that tests make for themselves: an authority, and servers for which it vouches.
#ifndef DDPRUN_TESTS_SUPPORT_CERTIFICATES_H_
#define DDPRUN_TESTS_SUPPORT_CERTIFICATES_H_

#include <string>

namespace ddprun::testing {

struct Certificate {
  std::string certificate;  // PEM
  std::string key;          // PEM
};

// One that vouches for others, valid between these seconds from now.
Certificate MakeAuthority(long from_s = -3600, long until_s = 3600);
// One that vouches for others, for whom `authority` vouches.
Certificate MakeAuthorityBelow(const Certificate& authority);
// A server's, for `names` ("IP:127.0.0.1", "DNS:localhost"), valid between these seconds from now.
Certificate MakeServerCertificate(const Certificate& authority, const std::string& names,
                                  long from_s = -3600, long until_s = 3600);
// The same key, which nobody reads without the password.
std::string WithPassword(const std::string& key, const std::string& password);
// One whose key is of RSA.
Certificate MakeRsaCertificate(const Certificate& authority, int bits);
// One that `authority` has signed with SHA-1, as nobody should any more.
Certificate MakeSha1Certificate(const Certificate& authority);
// A list of the certificates that `authority` has revoked, which are none, in PEM.
std::string MakeRevocationList(const Certificate& authority);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_CERTIFICATES_H_
