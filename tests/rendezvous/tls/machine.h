// A machine of a job by its own certificates, and two that speak to each other.
#ifndef DDPRUN_TESTS_RENDEZVOUS_TLS_MACHINE_H_
#define DDPRUN_TESTS_RENDEZVOUS_TLS_MACHINE_H_

#include <memory>
#include <string>
#include <utility>

#include "rendezvous/tls/identity.h"
#include "rendezvous/tls/stream.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {

// Writes its files into the folder as NAME.cert, NAME.key and NAME.ca.
struct Machine {
  Machine(const testing::TempDir& dir, const std::string& name, const testing::Certificate& own,
          const std::string& ca);
  // REQUIRES: the files are good, or the test ends.
  std::shared_ptr<const TlsIdentity> Read() const;
  // Why they are not, which is checked.
  std::string Trouble() const;
  TlsIdentity::PemFiles files;
};

// Both ends, client and server, as far as they get.
std::pair<std::unique_ptr<TlsStream>, std::unique_ptr<TlsStream>> Talk(
    std::shared_ptr<const TlsIdentity> client, std::shared_ptr<const TlsIdentity> server);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_TLS_MACHINE_H_
