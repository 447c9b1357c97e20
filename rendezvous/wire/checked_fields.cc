#include "rendezvous/wire/checked_fields.h"

#include "rendezvous/base/plain_text.h"

namespace ddprun::rendezvous {

std::string CleanText(const std::string& text) {
  std::string clean = EscapeControl(text);
  if (clean.size() > kMaxCleanTextBytes) clean.resize(CharacterStart(clean, kMaxCleanTextBytes));
  return clean;
}

}  // namespace ddprun::rendezvous
