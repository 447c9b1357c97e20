#include "examples/train/idx_data.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace train {
namespace {

using ddprun::testing::ReadFile;
using ddprun::testing::TempDir;
using ddprun::testing::WriteFile;

std::string Words(const std::vector<uint32_t>& words) {
  std::string out;
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(word >> shift);
  }
  return out;
}

// Three images of 2 x 2 with the labels 0, 5, 9.
const std::string kImages = Words({0x803, 3, 2, 2}) + "abcdefghijkl";
const std::string kLabels = Words({0x801, 3}) + std::string("\0\5\11", 3);

std::string Gzip(const std::string& bytes) {
  TempDir dir;
  const std::string path = dir.File("x.gz");
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return ReadFile(path);
}

void CheckIsTheSet(const absl::StatusOr<ImageSet>& set) {
  REQUIRE_MESSAGE(set.ok(), std::string(set.status().message()));
  CHECK(set->count == 3);
  CHECK(set->size == 2);
  CHECK(std::string(set->pixels.begin(), set->pixels.end()) == "abcdefghijkl");
  CHECK(set->labels == std::vector<uint8_t>{0, 5, 9});
}

TEST_CASE("idx: reads MNIST's names, plain and gzip, with a dash or a dot") {
  for (const bool is_gzip : {false, true}) {
    for (const std::string separator : {"-", "."}) {
      TempDir dir;
      const std::string suffix = is_gzip ? ".gz" : "";
      WriteFile(dir.File("t10k-images" + separator + "idx3-ubyte" + suffix),
                is_gzip ? Gzip(kImages) : kImages);
      WriteFile(dir.File("t10k-labels" + separator + "idx1-ubyte" + suffix),
                is_gzip ? Gzip(kLabels) : kLabels);
      CheckIsTheSet(LoadImageSet(dir.path().string(), "t10k"));
    }
  }
}

TEST_CASE("idx: a set larger than one read is whole") {
  TempDir dir;
  const uint32_t count = 40'000;
  WriteFile(dir.File("train-images-idx3-ubyte"),
            Words({0x803, count, 8, 8}) + std::string(size_t{count} * 64, 'x'));
  WriteFile(dir.File("train-labels-idx1-ubyte"), Words({0x801, count}) + std::string(count, '\7'));
  const absl::StatusOr<ImageSet> set = LoadImageSet(dir.path().string(), "train");
  REQUIRE(set.ok());
  CHECK(set->pixels.size() == size_t{count} * 64);
  CHECK(set->labels.back() == 7);
}

TEST_CASE("idx: every damaged file is refused in one line that names the file and the fault") {
  const struct {
    const char* what;
    std::string images, labels;
    const char* file;
    const char* says;
  } rows[] = {
      {"empty images", "", kLabels, "images-idx3", "truncated: 0 bytes are no IDX header"},
      {"half a header", kImages.substr(0, 9), kLabels, "images-idx3", "truncated: 9 bytes"},
      {"wrong images magic", kLabels + kLabels, kLabels, "images-idx3",
       "wrong magic number 0x00000801, 0x00000803 is expected"},
      {"text", "<html>not found</html>", kLabels, "images-idx3", "wrong magic number 0x3c68746d"},
      {"truncated images", kImages.substr(0, 20), kLabels, "images-idx3",
       "truncated: it holds 4 of 12 bytes"},
      {"longer images", kImages + "x", kLabels, "images-idx3", "longer than its header says"},
      {"no images", Words({0x803, 0, 2, 2}), kLabels, "images-idx3", "says 0 entries"},
      {"too many images", Words({0x803, 0xffffffff, 2, 2}), kLabels, "images-idx3",
       "says 4294967295 entries"},
      {"not square", Words({0x803, 3, 1, 4}) + "abcdefghijkl", kLabels, "images-idx3",
       "its images are 1 x 4"},
      {"no size", Words({0x803, 3, 0, 0}), kLabels, "images-idx3", "its images are 0 x 0"},
      {"huge size", Words({0x803, 3, 70000, 70000}), kLabels, "images-idx3", "70000 x 70000"},
      {"a header that promises 1.6 TB", Words({0x803, 100'000'000, 128, 128}) + "x", kLabels,
       "images-idx3", "truncated: it holds 1 of 1638400000000 bytes"},
      {"gzip cut short", Gzip(kImages).substr(0, 25), kLabels, "images-idx3", "truncated"},
      {"wrong labels magic", kImages, kImages, "labels-idx1", "wrong magic number 0x00000803"},
      {"fewer labels", kImages, Words({0x801, 2}) + "ab", "labels-idx1", "2 labels for 3 images"},
      {"truncated labels", kImages, kLabels.substr(0, 10), "labels-idx1",
       "truncated: it holds 2 of 3 bytes"},
      {"a label of 10", kImages, Words({0x801, 3}) + std::string("\0\12\1", 3), "labels-idx1",
       "label 10; 0 to 9 are accepted"},
  };
  for (const auto& row : rows) {
    INFO(row.what);
    TempDir dir;
    WriteFile(dir.File("train-images-idx3-ubyte"), row.images);
    WriteFile(dir.File("train-labels-idx1-ubyte"), row.labels);
    const absl::Status status = LoadImageSet(dir.path().string(), "train").status();
    const std::string message(status.message());
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    INFO(message);
    CHECK(message.find("\"" + dir.File(std::string("train-") + row.file + "-ubyte\": ")) == 0);
    CHECK(message == Contains(row.says));
    CHECK(message != Contains("\n"));
  }
}

TEST_CASE("idx: every prefix of a gzip file is refused") {
  const std::string whole = Gzip(kImages);
  for (size_t length = 0; length < whole.size(); ++length) {
    TempDir dir;
    WriteFile(dir.File("train-images-idx3-ubyte.gz"), whole.substr(0, length));
    WriteFile(dir.File("train-labels-idx1-ubyte"), kLabels);
    INFO(length);
    CHECK(LoadImageSet(dir.path().string(), "train").status().code() ==
          absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("idx: a missing file is named") {
  TempDir dir;
  const absl::Status status = LoadImageSet(dir.path().string(), "train").status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(std::string(status.message())
            .find("\"" + dir.File("train-images-idx3-ubyte") + "\": no such file") == 0);
}

}  // namespace
}  // namespace train
