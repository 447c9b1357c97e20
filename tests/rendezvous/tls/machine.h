// What tests of certificates share: the files of one machine of a job, and a talk between two.
#ifndef DDPRUN_TESTS_RENDEZVOUS_TLS_MACHINE_H_
#define DDPRUN_TESTS_RENDEZVOUS_TLS_MACHINE_H_

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

#include "rendezvous/tls/identity.h"
#include "rendezvous/tls/stream.h"
#include "tests/support/certificates.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {

// Files of one machine of a job.
struct Machine {
  Machine(const testing::TempDir& dir, const std::string& name, const testing::Certificate& own,
          const std::string& ca)
      : files{.cert = dir.File(name + ".cert"),
              .key = dir.File(name + ".key"),
              .ca = dir.File(name + ".ca")} {
    testing::WriteFile(files.cert, own.certificate);
    testing::WriteFile(files.key, own.key);
    testing::WriteFile(files.ca, ca);
  }
  std::shared_ptr<const TlsIdentity> Read() const {
    auto identity = TlsIdentity::OfPem(files);
    REQUIRE_MESSAGE(identity.ok(), identity.status().ToString());
    return *std::move(identity);
  }
  std::string Trouble() const {
    const auto identity = TlsIdentity::OfPem(files);
    CHECK(absl::IsInvalidArgument(identity.status()));
    return std::string(identity.status().message());
  }
  TlsIdentity::PemFiles files;
};

// Both ends, as far as they get.
inline std::pair<std::unique_ptr<TlsStream>, std::unique_ptr<TlsStream>> Talk(
    std::shared_ptr<const TlsIdentity> client, std::shared_ptr<const TlsIdentity> server) {
  auto up = std::make_unique<TlsStream>(std::move(client), TlsStream::Role::kClient);
  auto down = std::make_unique<TlsStream>(std::move(server), TlsStream::Role::kServer);
  std::string ignored;
  for (int i = 0; i < 4; ++i) {
    if (const std::string bytes = up->TakeOutgoing(); !bytes.empty()) down->Receive(bytes, ignored);
    if (const std::string bytes = down->TakeOutgoing(); !bytes.empty()) up->Receive(bytes, ignored);
  }
  return {std::move(up), std::move(down)};
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_TLS_MACHINE_H_
