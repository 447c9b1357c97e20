#include "launcher/status/torch_flights.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxGroups = 16;  // as of a counters page
constexpr int kMaxDepth = 4;       // the document, its entries, one of them, the group's names

// The bulk of the answer, which nothing here needs, is not kept.
bool Keeps(int depth, Json::parse_event_t event, const Json& value) {
  if (depth > kMaxDepth) return false;
  if (event != Json::parse_event_t::key) return true;
  static constexpr absl::string_view kBulk[] = {"input_sizes",   "input_dtypes", "output_sizes",
                                                "output_dtypes", "frames",       "thread_id",
                                                "thread_name",   "timeout_ms",   "nccl_comm_state"};
  const absl::string_view name = value.get_ref<const std::string&>();
  return std::find(std::begin(kBulk), std::end(kBulk), name) == std::end(kBulk);
}

// A number, or one as a text. None: neither, or below 0.
std::optional<int64_t> Whole(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  int64_t number = -1;
  if (found->is_number_integer()) {
    number = found->get<int64_t>();
  } else if (!found->is_string() ||
             !absl::SimpleAtoi(found->get_ref<const std::string&>(), &number)) {
    return std::nullopt;
  }
  return number < 0 ? std::nullopt : std::optional(number);
}

std::string Words(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// "[0, 1, 5]". Empty: it is none.
std::vector<int> RanksIn(absl::string_view text) {
  std::vector<int> ranks;
  if (!absl::ConsumePrefix(&text, "[") || !absl::ConsumeSuffix(&text, "]")) return ranks;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    if (int rank = -1; absl::SimpleAtoi(part, &rank) && rank >= 0) ranks.push_back(rank);
  }
  return ranks;
}

// FNV-1a (Fowler, Noll and Vo): the same on all machines.
uint64_t KeyOf(absl::string_view text) {
  uint64_t key = 0xcbf29ce484222325;
  for (const char c : text) key = (key ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return std::max<uint64_t>(key, 1);
}

// Of one group, from the recorder's entries. Times are those of the system's clock, in ns.
struct Entries {
  std::string name, description, backend, op;
  int64_t last = -1;  // number of the newest collective
  int64_t newest_ns = 0;
  int64_t oldest_open_ns = std::numeric_limits<int64_t>::max();
};

void Add(const Json& entry, int64_t done, Entries& entries) {
  const std::optional<int64_t> number = Whole(entry, "collective_seq_id");
  const std::optional<int64_t> created_ns = Whole(entry, "time_created_ns");
  const auto message = entry.find("is_p2p");
  const bool is_message = message != entry.end() && *message == true;
  if (!number || !created_ns || is_message) return;
  const auto completed_ns = Whole(entry, "time_discovered_completed_ns").value_or(0);
  entries.newest_ns = std::max({entries.newest_ns, *created_ns, completed_ns});
  if (*number > done) entries.oldest_open_ns = std::min(entries.oldest_open_ns, *created_ns);
  if (*number < entries.last) return;
  entries.last = *number;
  // "nccl:all_reduce"
  const std::string what = Words(entry, "profiling_name");
  const size_t op_at = what.find(':') + 1;  // 0: no backend before it
  entries.backend = what.substr(0, op_at - (op_at > 0 ? 1 : 0));
  entries.op = absl::StrReplaceAll(what.substr(op_at), {{"_", "-"}});
  const auto group = entry.find("process_group");
  if (group == entry.end() || !group->is_array() || group->size() != 2) return;
  if ((*group)[0].is_string()) entries.name = (*group)[0].get<std::string>();
  if ((*group)[1].is_string()) entries.description = (*group)[1].get<std::string>();
}

double Age(int64_t unix_now_ns, int64_t at_ns) {
  return static_cast<double>(std::max<int64_t>(unix_now_ns - at_ns, 0)) / 1e9;
}

// The ranks of a group in its order; empty: it is not known.
std::vector<int> RanksOf(const Json& config, const Entries& entries, int world_size) {
  if (const auto found = config.find(entries.name); found != config.end() && found->is_object()) {
    std::vector<int> ranks = RanksIn(Words(*found, "ranks"));
    if (!ranks.empty()) return ranks;
  }
  std::vector<int> ranks;
  if (entries.description != "default_pg") return ranks;
  for (int i = 0; i < world_size; ++i) ranks.push_back(i);
  return ranks;
}

}  // namespace

std::vector<GroupView> GroupsOfFlights(const std::string& json, int rank, int world_size,
                                       int64_t unix_now_ns) {
  const Json all = Json::parse(json, Keeps, /*allow_exceptions=*/false);
  std::vector<GroupView> groups;
  if (!all.is_object()) return groups;
  const Json none = Json::object();
  const auto part = [&](const char* name) -> const Json& {
    const auto found = all.find(name);
    return found == all.end() ? none : *found;
  };
  std::map<int64_t, Entries> entries;
  std::map<int64_t, std::pair<int64_t, int64_t>> status;  // called and done
  for (const auto& [id, of_group] : part("pg_status").items()) {
    int64_t number = -1;
    if (!absl::SimpleAtoi(id, &number) || !of_group.is_object()) continue;
    const int64_t called = Whole(of_group, "last_enqueued_collective").value_or(0);
    const int64_t done = Whole(of_group, "last_completed_collective").value_or(0);
    status[number] = {called, std::min(called, done)};
  }
  for (const Json& entry : part("entries")) {
    if (!entry.is_object()) continue;
    const auto id = Whole(entry, "pg_id");
    if (!id || !status.contains(*id)) continue;
    if (entries.size() == kMaxGroups && !entries.contains(*id)) continue;
    Add(entry, status[*id].second, entries[*id]);
  }
  for (const auto& [id, of_group] : entries) {
    const auto [called, done] = status[id];
    const std::vector<int> ranks = RanksOf(part("pg_config"), of_group, world_size);
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    if (ranks.size() < 2 || place == ranks.end() || of_group.last != called) continue;
    GroupView view{.size = static_cast<int>(ranks.size())};
    // One group of PyTorch's may have two backends, each with operations of its own.
    view.key = KeyOf(absl::StrCat(of_group.name, "/", of_group.description, "/", of_group.backend,
                                  "/", view.size));
    view.name = EscapeControl(of_group.description.empty() ? of_group.name : of_group.description);
    if (!of_group.backend.empty()) {
      absl::StrAppend(&view.name, " (", EscapeControl(of_group.backend), ")");
    }
    view.rank = static_cast<int>(place - ranks.begin());
    view.called = static_cast<uint64_t>(called);
    view.done = static_cast<uint64_t>(done);
    view.op = EscapeControl(of_group.op);
    if (called > done) view.waiting_s = Age(unix_now_ns, of_group.oldest_open_ns);
    view.quiet_s = Age(unix_now_ns, of_group.newest_ns);
    groups.push_back(std::move(view));
  }
  return groups;
}

}  // namespace ddprun::launcher
