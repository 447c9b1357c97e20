// What a stranger sends to a port of a job that has a token.
#include "rendezvous/tls/stream.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/tls/identity.h"
#include "tests/fuzz/promise.h"

namespace ddprun::rendezvous {
namespace {

using fuzz::Promise;

struct Outcome {
  bool goes_on = true;
  std::string plain;
  std::string answer;  // without the random parts: how long it is
};

// `pieces` has the sizes in which the bytes come; empty: at once.
Outcome Hear(TlsStream& stream, std::string_view bytes, fuzz::Input pieces) {
  Outcome outcome;
  while (!bytes.empty() && outcome.goes_on) {
    const size_t piece = pieces.is_empty() ? bytes.size() : 1 + pieces.Number(1);
    outcome.goes_on = stream.Receive(bytes.substr(0, piece), outcome.plain);
    outcome.answer += stream.TakeOutgoing();
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const TlsIdentity> identity =
      *TlsIdentity::OfToken("the job's token");
  const std::string_view bytes = fuzz::TextOf(data, size);
  for (const auto role : {TlsStream::Role::kServer, TlsStream::Role::kClient}) {
    TlsStream at_once(identity, role), in_pieces(identity, role);
    at_once.TakeOutgoing();
    in_pieces.TakeOutgoing();
    const Outcome one = Hear(at_once, bytes, fuzz::Input(nullptr, 0));
    const Outcome other = Hear(in_pieces, bytes, fuzz::Input(data, size));
    Promise(!at_once.is_ready() && !in_pieces.is_ready(), "nobody gets in without the token");
    Promise(one.plain.empty() && other.plain.empty(), "nothing is heard of a stranger");
    Promise(one.answer.size() <= bytes.size() + 4096,
            "a stranger is told no more than it has said");
    Promise(at_once.trouble() == in_pieces.trouble() || one.goes_on || other.goes_on,
            "the verdict does not depend on how the bytes come");
  }
  return 0;
}

}  // namespace ddprun::rendezvous
