// What stands in etcd at a job's leader's key, by whoever wrote it.
#include "rendezvous/etcd/leader_key.h"

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/base/plain_text.h"
#include "tests/fuzz/promise.h"

namespace ddprun::rendezvous {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string value(fuzz::TextOf(data, size));
  const std::optional<Leader> leader = DecodeLeader(value);
  if (!leader) return 0;
  Promise(EncodeLeader(*leader) == value, "a leader is read as it was written, or not at all");
  Promise(leader->port != 0 && !leader->address.empty(), "a leader has a place");
  Promise(EscapeControl(leader->host) == leader->host, "its host is fit for a terminal");
  return 0;
}

}  // namespace ddprun::rendezvous
