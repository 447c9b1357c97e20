#include "launcher/doctor/nccl_build.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"

namespace ddprun::launcher {
namespace {

constexpr std::string_view kBegin = "NCCL version ";
constexpr std::string_view kCuda = "+cuda";
constexpr size_t kLongestLine = 64;
constexpr size_t kPiece = 1 << 20, kMaxBytes = 64 * kPiece;

// Up to three digits, taken off the front; -1: there is none.
int TakeNumber(std::string_view& text) {
  int number = -1;
  for (int i = 0; i < 3 && !text.empty() && absl::ascii_isdigit(text[0]); ++i) {
    number = std::max(number, 0) * 10 + (text[0] - '0');
    text.remove_prefix(1);
  }
  return number;
}

// Of what follows kBegin.
int CudaOf(std::string_view line) {
  line = line.substr(0, line.find_first_of(std::string_view("\0 \n", 3)));
  const size_t at = line.find(kCuda);
  if (at == std::string_view::npos) return 0;
  line.remove_prefix(at + kCuda.size());
  const int major = TakeNumber(line);
  if (major < 1 || line.empty() || line[0] != '.') return 0;
  line.remove_prefix(1);
  const int minor = TakeNumber(line);
  return minor < 0 ? 0 : major * 1000 + minor * 10;
}

}  // namespace

int CudaInNcclBytes(std::string_view bytes) {
  for (size_t at = bytes.find(kBegin); at != std::string_view::npos;
       at = bytes.find(kBegin, at + 1)) {
    const int version = CudaOf(bytes.substr(at + kBegin.size(), kLongestLine));
    if (version != 0) return version;
  }
  return 0;
}

int CudaOfNcclFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // Each piece begins with the end of the one before, in which the line may have begun.
  constexpr size_t kKept = kBegin.size() + kLongestLine;
  std::vector<char> buffer(kKept + kPiece);
  size_t kept = 0;
  for (size_t read = 0; read < kMaxBytes && file; read += kPiece) {
    file.read(buffer.data() + kept, static_cast<std::streamsize>(kPiece));
    const size_t held = kept + static_cast<size_t>(file.gcount());
    const int version = CudaInNcclBytes({buffer.data(), held});
    if (version != 0) return version;
    kept = std::min(held, kKept);
    std::copy(buffer.data() + (held - kept), buffer.data() + held, buffer.data());
  }
  return 0;
}

}  // namespace ddprun::launcher
