// What PyTorch's worker server, which runs in a program of others, answers.
#include "launcher/dump/worker_server.h"

#include <cstdint>
#include <string>

#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(fuzz::TextOf(data, size));
  // As it is read: until it is whole.
  for (const auto& pieces : fuzz::Divisions(bytes)) {
    std::string answer;
    for (const std::string_view piece : pieces) {
      if (IsWholeAnswer(answer)) break;
      answer += piece;
    }
    const auto body = ServerBody(answer, "/socket", "dump_traceback");
    if (!body.ok()) {
      const std::string message(body.status().message());
      Promise(message.starts_with("\"/socket\""), "an error names the socket", message);
      Promise(message.size() < 200, "an error quotes little of the answer", message);
      continue;
    }
    Promise(IsWholeAnswer(answer), "what is taken is whole");
    Promise(answer.ends_with(*body), "a body is the end of its answer");
    Promise(answer.find("\r\n\r\n") + 4 + body->size() == answer.size(),
            "a body begins behind the first empty line");
    Promise(IsWholeAnswer(answer + "x"), "what follows a whole answer takes nothing from it");
  }
  return 0;
}

}  // namespace ddprun::launcher
