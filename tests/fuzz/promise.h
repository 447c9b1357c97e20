// What the fuzz targets share: how a broken promise is told, and how bytes are taken apart.
#ifndef DDPRUN_TESTS_FUZZ_PROMISE_H_
#define DDPRUN_TESTS_FUZZ_PROMISE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::fuzz {

// Ends the process by abort() where a promise does not hold; `sentence` says what was promised,
// `seen` what was seen instead.
void Promise(bool holds, const char* sentence, std::string_view seen = {});

inline std::string_view TextOf(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// `bytes` divided in three ways: not at all, into single bytes, into uneven pieces.
std::vector<std::vector<std::string_view>> Divisions(std::string_view bytes);

// No control character but line feeds, where those are allowed, and tabs; valid UTF-8.
bool IsPlain(std::string_view text, bool allows_line_feeds);

// Takes numbers and texts from the front of the input; of an empty one they are 0 and empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(TextOf(data, size)) {}

  bool is_empty() const { return rest_.empty(); }
  uint64_t Number(size_t bytes);
  std::string_view Text(size_t bytes);

 private:
  std::string_view rest_;
};

}  // namespace ddprun::fuzz

#endif  // DDPRUN_TESTS_FUZZ_PROMISE_H_
