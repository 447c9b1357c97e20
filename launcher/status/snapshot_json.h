// A snapshot as JSON and back: what `ddprun status --json` prints and what the nodes of a job tell
// each other. Any thread may call; nothing throws. docs/guides/observe.md has the schema.
#ifndef DDPRUN_LAUNCHER_STATUS_SNAPSHOT_JSON_H_
#define DDPRUN_LAUNCHER_STATUS_SNAPSHOT_JSON_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

// Of what RenderNodeJson gives and ParseNodeJson takes.
inline constexpr size_t kMaxNodeJsonBytes = 64 * 1024;
// Of what ParseJobJson takes: 1 KiB for each of 65,536 ranks.
inline constexpr size_t kMaxJobJsonBytes = 64 * 1024 * 1024;

enum class JsonForm { kOneLine, kIndented };

// All members, also the empty ones; no line feed at its end. Numbers have six decimals at most.
std::string RenderJson(const JobView& job, JsonForm form = JsonForm::kOneLine);

// What `ddprun list --json` prints: a part of each job's snapshot, and the agent's socket.
struct ListedJob {
  const JobView* job;
  std::string socket;
};
std::string RenderListJson(const std::vector<ListedJob>& jobs);

// One line without the members that have their default value, of at most kMaxNodeJsonBytes. Where
// that is too little, there go, until it suffices: the ranks' buckets, their last lines, their
// groups beyond four (those under way are kept, then those that did most), members that few ask
// for, the ends of texts, all groups, and the ranks with the highest local ranks. ParseNodeJson
// takes it always.
std::string RenderNodeJson(const NodeView& node);

// The text comes from another node or a stranger. Members that are missing have their default
// value, unknown ones are passed over; texts are made plain (EscapeControl) and cut. The error
// says which member is wrong and how (InvalidArgument), or what there is too much of
// (ResourceExhausted).
absl::StatusOr<NodeView> ParseNodeJson(std::string_view text);
absl::StatusOr<JobView> ParseJobJson(std::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_SNAPSHOT_JSON_H_
