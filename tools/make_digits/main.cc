// make_digits DIR [--seed N] [--train N] [--test N]: a data set in MNIST's format.
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "tools/make_digits/digits.h"

namespace {

constexpr char kUsage[] = "usage: make_digits DIR [--seed N] [--train N] [--test N]";
constexpr int kMaxImages = 10'000'000;

struct Options {
  std::string directory;
  uint64_t seed = 1;
  int train = 10'000;
  int test = 2'000;
};

bool Fail(const std::string& message) {
  std::fprintf(stderr, "make_digits: %s\n", message.c_str());
  return false;
}

template <typename T>
bool ParseNumber(std::string_view name, std::string_view text, T low, T high, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error == std::errc() && end == text.data() + text.size() && *value >= low && *value <= high) {
    return true;
  }
  return Fail(std::string(name) + " '" + std::string(text) + "': a number from " +
              std::to_string(low) + " to " + std::to_string(high) + " is accepted");
}

bool SetOption(std::string_view name, std::string_view value, Options* options) {
  if (name == "--seed") return ParseNumber<uint64_t>(name, value, 0, UINT64_MAX, &options->seed);
  if (name == "--train") return ParseNumber(name, value, 1, kMaxImages, &options->train);
  if (name == "--test") return ParseNumber(name, value, 1, kMaxImages, &options->test);
  return Fail("unknown option '" + std::string(name) + "'; " + kUsage);
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("--")) {
      if (!options->directory.empty()) {
        return Fail("a second directory '" + std::string(argument) + "'; " + kUsage);
      }
      options->directory = argument;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    std::string_view value;
    if (equals != argument.npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < argc) {
      value = argv[++i];
    }
    if (!SetOption(name, value, options)) return false;
  }
  return !options->directory.empty() || Fail(kUsage);
}

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// Under its name only when it is whole.
bool WriteFile(const std::string& path, const std::string& bytes) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "wbe");
  bool is_written = file != nullptr;
  if (is_written) {
    is_written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    is_written = std::fclose(file) == 0 && is_written;
  }
  if (is_written && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  return Fail("write \"" + path + "\": " + std::strerror(errno));
}

bool WriteSet(const std::string& directory, const std::string& name, uint64_t seed, int count) {
  using ddprun::tools::Image;
  using ddprun::tools::kImageSize;
  ddprun::tools::DigitArtist artist(seed);
  std::string images = BigEndian(0x803) + BigEndian(static_cast<uint32_t>(count)) +
                       BigEndian(kImageSize) + BigEndian(kImageSize);
  std::string labels = BigEndian(0x801) + BigEndian(static_cast<uint32_t>(count));
  for (int i = 0; i < count; ++i) {
    const int digit = artist.Pick(10);
    const Image image = artist.Draw(digit);
    images.append(reinterpret_cast<const char*>(image.data()), image.size());
    labels.push_back(static_cast<char>(digit));
  }
  return WriteFile(directory + "/" + name + "-images-idx3-ubyte", images) &&
         WriteFile(directory + "/" + name + "-labels-idx1-ubyte", labels);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::printf("%s\nDraws digits and writes them in MNIST's format.\n", kUsage);
    return 0;
  }
  Options options;
  if (!Parse(argc, argv, &options)) return 2;
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) {
    Fail("make the directory \"" + options.directory + "\": " + error.message());
    return 120;
  }
  // Two seeds far apart: no test image is drawn from the numbers of a training image.
  const bool is_written =
      WriteSet(options.directory, "train", options.seed, options.train) &&
      WriteSet(options.directory, "t10k", options.seed ^ 0x9e3779b97f4a7c15u, options.test);
  return is_written ? 0 : 120;
}
