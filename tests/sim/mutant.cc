#include "tests/sim/mutant.h"

namespace ddprun::sim {
namespace {

int switched_on = 0;

}  // namespace

bool IsMutant(int number) { return number == switched_on; }

void SetMutant(int number) { switched_on = number; }

}  // namespace ddprun::sim
