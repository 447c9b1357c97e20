// Histories of nodes that come, break, fail, lie and stall as the bytes say, then calm.
#include <cstdint>
#include <string>

#include "tests/fuzz/promise.h"
#include "tests/sim/random_agents.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ddprun::fuzz::Promise;
  ddprun::fuzz::Input input(data, size);
  ddprun::rendezvous::testing::RandomAgents agents([&] { return input.Number(2); },
                                                   /*is_loud=*/false);
  const auto look = [&] {
    const auto& broken = agents.job().broken();
    Promise(broken.empty(), "no history breaks an invariant", broken.empty() ? "" : broken[0]);
  };
  for (int i = 0; i < 300 && !input.is_empty(); ++i) {
    agents.Misbehave(1);
    look();
  }
  const bool has_ended = agents.Settle();
  look();
  Promise(has_ended, "calm brings every job to its end", agents.Describe());
  return 0;
}
