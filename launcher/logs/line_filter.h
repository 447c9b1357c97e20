// Which lines hold one of some texts. [pure]
#ifndef DDPRUN_LAUNCHER_LOGS_LINE_FILTER_H_
#define DDPRUN_LAUNCHER_LOGS_LINE_FILTER_H_

#include <string>
#include <string_view>
#include <vector>

namespace ddprun::launcher {

class LineFilter {
 public:
  // Without texts no line matches. An empty one is in every line.
  explicit LineFilter(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // Whether one of the texts is in `line`, byte for byte.
  bool Matches(std::string_view line) const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LINE_FILTER_H_
