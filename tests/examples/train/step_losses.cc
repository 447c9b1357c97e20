#include "tests/examples/train/step_losses.h"

#include <cstdlib>
#include <fstream>

namespace ddprun::testing {

std::vector<double> StepLosses(const std::string& path) {
  std::ifstream file(path);
  std::vector<double> losses;
  for (std::string line; std::getline(file, line);) {
    losses.push_back(std::strtod(line.c_str() + line.rfind(' '), nullptr));
  }
  return losses;
}

}  // namespace ddprun::testing
