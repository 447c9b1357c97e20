// Digits for tests of the trainer's parts, without files.
#ifndef DDPRUN_TESTS_EXAMPLES_TRAIN_DRAWN_SET_H_
#define DDPRUN_TESTS_EXAMPLES_TRAIN_DRAWN_SET_H_

#include <cstdint>

#include "examples/train/idx_data.h"

namespace ddprun::testing {

// The same for the same seed.
train::ImageSet DrawSet(uint64_t seed, int64_t count);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_EXAMPLES_TRAIN_DRAWN_SET_H_
