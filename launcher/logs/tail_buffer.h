// The last bytes of a stream. [pure]
#ifndef DDPRUN_LAUNCHER_LOGS_TAIL_BUFFER_H_
#define DDPRUN_LAUNCHER_LOGS_TAIL_BUFFER_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun::launcher {

class TailBuffer {
 public:
  static constexpr size_t kMaxBytes = 64 * 1024;

  void Append(std::string_view bytes);
  // At most `max_lines` last lines, out of the last kMaxBytes; a line that was cut off at its
  // beginning is among them. An unfinished last line counts.
  std::string LastLines(size_t max_lines) const;

 private:
  std::string bytes_;  // up to 2 * kMaxBytes: moving them once per kMaxBytes is cheap
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_TAIL_BUFFER_H_
