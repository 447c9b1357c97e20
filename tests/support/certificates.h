// Certificates that tests make for themselves: an authority, and servers for which it vouches.
#ifndef DDPRUN_TESTS_SUPPORT_CERTIFICATES_H_
#define DDPRUN_TESTS_SUPPORT_CERTIFICATES_H_

#include <string>

namespace ddprun::testing {

struct Certificate {
  std::string certificate;  // PEM
  std::string key;          // PEM
};

// One that vouches for others.
Certificate MakeAuthority();
// A server's, for `names` ("IP:127.0.0.1", "DNS:localhost"), valid between these seconds from now.
Certificate MakeServerCertificate(const Certificate& authority, const std::string& names,
                                  long from_s = -3600, long until_s = 3600);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_CERTIFICATES_H_
