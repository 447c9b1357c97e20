#include "tests/rendezvous/tls/machine.h"

#include <doctest/doctest.h>

#include "tests/support/files.h"

namespace ddprun::rendezvous {

Machine::Machine(const testing::TempDir& dir, const std::string& name,
                 const testing::Certificate& own, const std::string& ca)
    : files{.cert = dir.File(name + ".cert"),
            .key = dir.File(name + ".key"),
            .ca = dir.File(name + ".ca")} {
  testing::WriteFile(files.cert, own.certificate);
  testing::WriteFile(files.key, own.key);
  testing::WriteFile(files.ca, ca);
}

std::shared_ptr<const TlsIdentity> Machine::Read() const {
  auto identity = TlsIdentity::OfPem(files);
  REQUIRE_MESSAGE(identity.ok(), identity.status().ToString());
  return *std::move(identity);
}

std::string Machine::Trouble() const {
  const auto identity = TlsIdentity::OfPem(files);
  CHECK(absl::IsInvalidArgument(identity.status()));
  return std::string(identity.status().message());
}

std::pair<std::unique_ptr<TlsStream>, std::unique_ptr<TlsStream>> Talk(
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
