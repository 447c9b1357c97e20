// Others' words, made fit for a terminal.
#include "rendezvous/base/plain_text.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "rendezvous/wire/checked_fields.h"
#include "tests/fuzz/promise.h"

namespace ddprun {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::TextOf(data, size));
  for (const std::string& plain : {EscapeControl(text), ReplaceControl(text)}) {
    Promise(EscapeControl(plain) == plain, "what was escaped once stays as it is", plain);
    const auto is_control = [](char c) { return (0 <= c && c < ' ' && c != '\t') || c == 0x7f; };
    Promise(std::none_of(plain.begin(), plain.end(), is_control), "no control character is left");
    for (size_t at = 0; at <= plain.size() && size <= 256; ++at) {
      const size_t start = CharacterStart(plain, at);
      Promise(start <= at && at - start < 4, "a text is cut where it was to be, or just before");
      const std::string head = plain.substr(0, start);
      Promise(EscapeControl(head) == head, "no character is parted", head);
    }
  }
  const std::string clean = rendezvous::CleanText(text);
  Promise(clean.size() <= rendezvous::kMaxTextBytes, "a clean text is bounded");
  Promise(rendezvous::CleanText(clean) == clean, "a clean text stays as it is", clean);
  return 0;
}

}  // namespace ddprun
