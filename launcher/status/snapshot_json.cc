#include "launcher/status/snapshot_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/status/json_limits.h"
#include "launcher/status/phase_name.h"
#include "launcher/status/snapshot_fields.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(bool value) { return value; }
Json ToJson(int value) { return std::max(value, kLeastInt); }
Json ToJson(int64_t value) { return std::clamp(value, -kMaxWhole, kMaxWhole); }
Json ToJson(uint64_t value) { return std::min(value, static_cast<uint64_t>(kMaxWhole)); }
Json ToJson(const std::string& value) { return value; }
Json ToJson(ProgramPhase value) { return PhaseName(value); }

Json ToJson(double value) {
  if (!std::isfinite(value)) return 0.0;
  const double bounded = std::clamp(value, 0.0, kMaxNumber) + 0.0;  // no -0.0
  // Beyond, a double has no six decimals.
  return bounded < 1e9 ? std::round(bounded * 1e6) / 1e6 : bounded;
}

Json ToJson(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? ToJson(*value) : Json();
}

template <typename T>
Json ObjectOf(const T& from, bool is_sparse);

// Writes the members of `from` that differ from those of `usual`, or all where that is null.
template <typename T>
struct MemberWriter {
  const T& from;
  const T* usual;
  Json& to;

  template <typename Value>
  bool IsLeftOut(Value T::*member) const {
    return usual != nullptr && from.*member == usual->*member;
  }

  template <typename Value>
  void operator()(const char* name, Value T::*member) {
    if (!IsLeftOut(member)) to[name] = ItemOf(from.*member);
  }
  void Hex(const char* name, uint64_t T::*member) {
    if (!IsLeftOut(member)) to[name] = absl::StrCat(absl::Hex(from.*member, absl::kZeroPad16));
  }
  void Lines(const char* name, std::string T::*member) { (*this)(name, member); }
  template <typename Item>
  void List(const char* name, std::vector<Item> T::*member, size_t /*max*/) {
    if (IsLeftOut(member)) return;
    Json list = Json::array();
    for (const Item& item : from.*member) list.push_back(ItemOf(item));
    to[name] = std::move(list);
  }

  Json ItemOf(const std::optional<FaultView>& value) const {
    return value ? ItemOf(*value) : Json();
  }
  Json ItemOf(const std::optional<int64_t>& value) const { return value ? ToJson(*value) : Json(); }
  Json ItemOf(const std::optional<int>& value) const { return value ? ToJson(*value) : Json(); }
  template <typename Value>
  Json ItemOf(const Value& value) const {
    if constexpr (std::is_class_v<Value> && std::is_aggregate_v<Value>) {
      return ObjectOf(value, usual != nullptr);
    } else {
      return ToJson(value);
    }
  }
};

template <typename T>
void WriteMembers(const T& from, bool is_sparse, Json& to) {
  const T usual;
  MemberWriter<T> writer{from, is_sparse ? &usual : nullptr, to};
  VisitMembers<T>(writer);
}

template <typename T>
Json ObjectOf(const T& from, bool is_sparse) {
  Json object = Json::object();
  WriteMembers(from, is_sparse, object);
  return object;
}

template <typename T>
std::string DocumentOf(const T& from, bool is_sparse, int indent) {
  Json document = {{"version", kSchemaVersion}};
  WriteMembers(from, is_sparse, document);
  return document.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// What RenderNodeJson takes away, step by step.

void Cut(std::string& text, size_t max) { text.resize(CharacterStart(text, max)); }

void CutTexts(NodeView& node, size_t max) {
  for (std::string* text : {&node.id, &node.host, &node.state, &node.waiting_for}) Cut(*text, max);
  for (RankView& rank : node.ranks) {
    for (std::string* text : {&rank.state, &rank.end, &rank.wait, &rank.last_line}) Cut(*text, max);
    for (GroupView& group : rank.groups) {
      Cut(group.name, max);
      Cut(group.op, max);
    }
  }
  for (GpuView& gpu : node.gpus) {
    Cut(gpu.name, max);
    Cut(gpu.throttle, max);
  }
  for (Problem& problem : node.problems) {
    for (std::string* text : {&problem.kind, &problem.text, &problem.node}) Cut(*text, max);
  }
}

// So long that the reader takes them.
void KeepWithinLimits(NodeView& node) {
  const auto keep = [](auto& list, size_t max) { list.resize(std::min(list.size(), max)); };
  CutTexts(node, kMaxTextBytes);
  keep(node.ranks, kMaxRanksOfNode);
  keep(node.gpus, kMaxGpusOfNode);
  keep(node.problems, kMaxOtherItems);
  for (RankView& rank : node.ranks) {
    keep(rank.buckets, kMaxBucketsOfRank);
    keep(rank.groups, kMaxGroupsOfRank);
  }
  for (GpuView& gpu : node.gpus) keep(gpu.xids, kMaxOtherItems);
  for (Problem& problem : node.problems) keep(problem.ranks, kMaxRanksOfJob);
}

void DropBuckets(NodeView& node) {
  for (RankView& rank : node.ranks) {
    rank.backward_s.reset();
    rank.buckets.clear();
  }
}

void DropLastLines(NodeView& node) {
  for (RankView& rank : node.ranks) {
    rank.last_line.clear();
    rank.last_line_age_s.reset();
  }
}

void KeepBusiestGroups(NodeView& node) {
  constexpr size_t kBusiest = 4;
  for (RankView& rank : node.ranks) {
    std::stable_sort(rank.groups.begin(), rank.groups.end(),
                     [](const GroupView& a, const GroupView& b) {
                       // One that hangs is what the status is asked for.
                       return std::pair(a.waiting_s, a.called) > std::pair(b.waiting_s, b.called);
                     });
    rank.groups.resize(std::min(rank.groups.size(), kBusiest));
  }
}

void DropRareMembers(NodeView& node) {
  for (RankView& rank : node.ranks) {
    rank.wait.clear();
    rank.up_s = rank.idle_s = rank.longest_step_s = rank.exposed_share = rank.first_step_s = {};
    rank.core_wait_share.reset();
    rank.gpu_memory.reset();
    for (GroupView& group : rank.groups) group.quiet_s = 0;
  }
}

void ShortenTexts(NodeView& node) {
  CutTexts(node, 64);
  const auto keep = [](auto& list, size_t max) { list.resize(std::min(list.size(), max)); };
  keep(node.gpus, 16);
  keep(node.problems, 16);
  for (GpuView& gpu : node.gpus) keep(gpu.xids, 16);
  for (Problem& problem : node.problems) keep(problem.ranks, 16);
}

void DropGroups(NodeView& node) {
  for (RankView& rank : node.ranks) rank.groups.clear();
}

// What the JSON takes at least, soon told: lest megabytes are written to see that they do not fit.
size_t LeastBytes(const NodeView& node) {
  constexpr size_t kItem = 3;  // "{},"
  size_t bytes = 0;
  for (const RankView& rank : node.ranks) {
    bytes += kItem + rank.state.size() + rank.end.size() + rank.wait.size() + rank.last_line.size();
    for (const GroupView& group : rank.groups) bytes += kItem + group.name.size();
  }
  for (const Problem& problem : node.problems) bytes += kItem + problem.text.size();
  return bytes;
}

}  // namespace

std::string RenderJson(const JobView& job, JsonForm form) {
  return DocumentOf(job, /*is_sparse=*/false, form == JsonForm::kIndented ? 2 : -1);
}

std::string RenderListJson(const std::vector<ListedJob>& jobs) {
  Json list = Json::array();
  for (const auto& [job, socket] : jobs) {
    list.push_back({{"run_id", job->run_id},
                    {"program", job->program},
                    {"state", job->state},
                    {"is_healthy", job->is_healthy},
                    {"sentence", job->sentence},
                    {"socket", socket}});
  }
  return list.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string RenderNodeJson(const NodeView& node) {
  constexpr void (*kSteps[])(NodeView&) = {DropBuckets,     DropLastLines, KeepBusiestGroups,
                                           DropRareMembers, ShortenTexts,  DropGroups};
  NodeView kept = node;
  KeepWithinLimits(kept);
  for (size_t step = 0;; ++step) {
    if (LeastBytes(kept) <= kMaxNodeJsonBytes) {
      std::string text = DocumentOf(kept, /*is_sparse=*/true, -1);
      if (text.size() <= kMaxNodeJsonBytes) return text;
    }
    if (step < std::size(kSteps)) {
      kSteps[step](kept);
    } else {
      kept.ranks.resize(kept.ranks.size() * 7 / 8);  // without ranks it fits
    }
  }
}

}  // namespace ddprun::launcher
