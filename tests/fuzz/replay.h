// In place of libFuzzer's main: what was found once, and the seeds, with any compiler.
#ifndef DDPRUN_TESTS_FUZZ_REPLAY_H_
#define DDPRUN_TESTS_FUZZ_REPLAY_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun::testing {

using FuzzTarget = int (*)(const uint8_t* data, size_t size);

// Feeds `feed` with each seed of the corpus of `target`. A breach of a promise ends the process.
void Replay(const std::string& target, FuzzTarget feed);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FUZZ_REPLAY_H_
