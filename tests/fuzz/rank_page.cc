// A worker's page of counters, in which any value may stand anywhere: two looks at it. The input is
// a list of words: two bytes that say which and how, eight that say what.
#include "launcher/status/rank_page.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/status/rank_counts.h"
#include "launcher/status/snapshot_json.h"
#include "tests/fuzz/promise.h"
#include "worker_runtime/counters_page.h"

namespace ddprun::launcher {
namespace {

using ddp::internal::kCounterWords;
using fuzz::Promise;

void Look(const RankHistory& history, TimePoint now) {
  NodeView node;
  RankView& rank = node.ranks.emplace_back();
  history.Fill(now, rank);
  for (const GroupView& group : rank.groups) {
    Promise(0 <= group.rank && group.rank < group.size, "a rank has a place in its group");
    Promise(group.done <= group.called, "nothing is done that was not called");
    Promise(fuzz::IsPlain(group.name, false), "a group's name is plain", group.name);
  }
  const double lived_s = std::chrono::duration<double>(now.time_since_epoch()).count();
  for (const auto& age : {std::optional(rank.phase_s), std::optional(rank.step_age_s),
                          rank.longest_step_s, rank.first_step_s, rank.backward_s}) {
    Promise(!age || (0 <= *age && *age <= lived_s), "no time is outside of the machine's");
  }
  const std::string told = RenderNodeJson(node);
  const auto heard = ParseNodeJson(told);
  Promise(heard.ok(), "other nodes take what it makes", heard.status().ToString() + told);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<RankPage> page = *RankPage::Make();
  std::vector<uint64_t> words(kCounterWords);
  fuzz::Input input(data, size);
  RankHistory history;
  history.Reset(TimePoint{std::chrono::seconds(10)});
  TimePoint now{std::chrono::seconds(1000)};
  for (int look = 0; look < 2; ++look) {
    while (!input.is_empty()) {
      const uint64_t which = input.Number(2);
      if (which >> 15 != 0 && look == 0) break;
      const uint64_t value = input.Number(8);
      // Many words are small numbers or moments near the present.
      const bool is_moment = (which >> 14 & 1) != 0;
      words[which % kCounterWords] =
          is_moment ? static_cast<uint64_t>(now.time_since_epoch().count()) - value % (1 << 30)
                    : value;
    }
    Promise(pwrite(page->fd(), words.data(), words.size() * sizeof(uint64_t), 0) > 0,
            "a page can be written");
    history.Look(now, page->Read());
    Look(history, now);
    now += std::chrono::seconds(1);
  }
  return 0;
}

}  // namespace ddprun::launcher
