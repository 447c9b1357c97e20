// What the greeting on a port is answered with, by whatever listens there.
#include "rendezvous/wire/hello.h"

#include <cstdint>
#include <string>

#include "tests/fuzz/promise.h"

namespace ddprun::rendezvous {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(fuzz::TextOf(data, size));
  // As they come, one by one: the reader stops at the first answer.
  HelloAnswer answer = HelloAnswer::kIncomplete;
  Hello hello;
  for (size_t end = 1; end <= size && answer == HelloAnswer::kIncomplete; ++end) {
    answer = ParseHelloReply(bytes.substr(0, end), hello);
  }
  Hello at_once;
  Promise(size == 0 || ParseHelloReply(bytes, at_once) == answer,
          "the answer depends on the bytes alone");
  if (answer != HelloAnswer::kHello) return 0;
  Promise(hello.run_id == at_once.run_id && hello.is_apart == at_once.is_apart &&
              hello.release == at_once.release,
          "the hello depends on the bytes alone");
  Hello again;
  Promise(ParseHelloReply(MakeHelloReply(hello), again) == HelloAnswer::kHello &&
              again.is_apart == hello.is_apart && again.release == hello.release &&
              Serves(again, hello.run_id),
          "a hello is understood as it was said");
  return 0;
}

}  // namespace ddprun::rendezvous
