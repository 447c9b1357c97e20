#include "worker_runtime/comm/survey.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

// A page's keys are some 10 KiB and its values 25 KiB: one write and one read of a socket.
constexpr int kPage = 512;

class Asking {
 public:
  Asking(Store& store, const std::function<std::string(int)>& key_of, Clock::time_point deadline)
      : store_(store), key_of_(key_of), deadline_(deadline) {}

  // Appends the values of [begin, end); false when the time is over or the store has failed.
  bool Ask(int begin, int end, bool is_known_to_lack) {
    const auto now = Clock::now();
    if (now >= deadline_) return false;
    std::vector<std::string> keys;
    for (int rank = begin; rank < end; ++rank) keys.push_back(key_of_(rank));
    if (!is_known_to_lack) {
      const absl::StatusOr<bool> has = store_.Check(keys);
      if (!has.ok()) return false;
      if (*has) {
        auto values =
            store_.MultiGet(keys, std::chrono::ceil<std::chrono::milliseconds>(deadline_ - now));
        if (!values.ok()) return false;
        for (std::string& value : *values) values_.emplace_back(std::move(value));
        return true;
      }
    }
    if (end - begin == 1) {
      values_.emplace_back(std::nullopt);
      return true;
    }
    const int middle = begin + (end - begin) / 2;
    if (!Ask(begin, middle, false)) return false;
    // What is not in the first half is in the second.
    const bool is_first_whole = std::all_of(values_.begin() + begin, values_.end(),
                                            [](const auto& value) { return value.has_value(); });
    return Ask(middle, end, is_first_whole);
  }

  std::vector<std::optional<std::string>> TakeValues() { return std::move(values_); }

 private:
  Store& store_;
  const std::function<std::string(int)>& key_of_;
  const Clock::time_point deadline_;
  std::vector<std::optional<std::string>> values_;
};

}  // namespace

std::string NameExtent(const Survey& survey) {
  if (survey.is_whole()) return "";
  return absl::StrCat(" (of the ", survey.asked, " ranks that could be asked, of ",
                      survey.world_size, ")");
}

std::vector<std::optional<std::string>> AskRanks(Store& store, int world_size,
                                                 const std::function<std::string(int)>& key_of,
                                                 Clock::time_point deadline) {
  Asking asking(store, key_of, deadline);
  for (int begin = 0; begin < world_size; begin += kPage) {
    if (!asking.Ask(begin, std::min(begin + kPage, world_size), false)) break;
  }
  return asking.TakeValues();
}

}  // namespace ddp::internal
