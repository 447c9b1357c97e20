#include "rendezvous/base/host_name.h"

#include <limits.h>
#include <unistd.h>

#include <array>

namespace ddprun {

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  const bool has_name = gethostname(name.data(), name.size()) == 0 && name[0] != '\0';
  return has_name ? name.data() : "localhost";
}

}  // namespace ddprun
