// Addresses: of nodes, and of the Trainer's server as a controller tells it.
#include <cstdint>
#include <string>

#include "launcher/cli/environment.h"
#include "launcher/progress/trainer_endpoint.h"
#include "rendezvous/net/socket_address.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::TextOf(data, size));
  // getenv() gives a text without NUL.
  const std::string word = text.substr(0, text.find('\0'));
  if (const auto address = rendezvous::ParseIp(word, 29400)) {
    const std::string ip = rendezvous::IpText(*address);
    const auto again = rendezvous::ParseIp(ip, 29400);
    Promise(again && rendezvous::IpText(*again) == ip, "an address is read as it is written", ip);
    Promise(rendezvous::PortOf(*address) == 29400, "a port is kept");
  }
  Environment environment;
  environment.variables = {std::string(kTrainerUrlVar) + "=" + word,
                           std::string(kTrainerCaVar) + "=/ca",
                           std::string(kTrainerTokenVar) + "=/token"};
  if (const auto trainer = FindTrainer(environment)) {
    if (!trainer->ok()) {
      const std::string why(trainer->status().message());
      Promise(fuzz::IsPlain(why, false), "an error is one plain line", why);
    } else {
      const TrainerEndpoint& endpoint = **trainer;
      Promise(!endpoint.host.empty() && endpoint.port != 0, "an endpoint is a host and a port");
      // They stand in a request's head.
      const std::string head = endpoint.authority + endpoint.target;
      Promise(head.find_first_of(" \r\n\t") == std::string::npos, "a request's head is one", head);
    }
  }
  return 0;
}

}  // namespace ddprun::launcher
