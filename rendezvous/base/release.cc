#include "rendezvous/base/release.h"

#include "absl/strings/str_cat.h"

namespace ddprun {

std::string ReleaseText(const Release& release) {
  return absl::StrCat(
      release.version.empty() ? "a ddprun of no known version" : "ddprun " + release.version,
      " (protocol ", release.protocol, ")");
}

}  // namespace ddprun
