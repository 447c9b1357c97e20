// Images and labels in MNIST's IDX format.
#ifndef DDPRUN_EXAMPLES_TRAIN_IDX_DATA_H_
#define DDPRUN_EXAMPLES_TRAIN_IDX_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace train {

constexpr int kClasses = 10;

// Square grey images, row by row, one after the other.
struct ImageSet {
  int64_t count = 0;
  int size = 0;                    // height and width in pixels
  std::vector<uint8_t> pixels;     // count * size * size
  std::vector<uint8_t> labels;     // count, each below kClasses
  std::vector<std::string> files;  // that it was read from

  int pixels_per_image() const { return size * size; }
};

// Reads `<directory>/<name>-images-idx3-ubyte` and `<name>-labels-idx1-ubyte`, plain or with .gz,
// also as `<name>-images.idx3-ubyte`. `name` is "train" or "t10k". Errors are one line that starts
// with the file: NotFound, DataLoss for anything that is not a whole IDX file of square images.
absl::StatusOr<ImageSet> LoadImageSet(const std::string& directory, const std::string& name);

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_IDX_DATA_H_
