#include "tools/reference_program/events.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/report/event_line.h"
#include "rendezvous/base/check.h"
#include "tools/reference_program/markdown.h"

namespace ddprun::reference {
namespace {

using namespace launcher;

struct Description {
  std::string_view event;
  const char* when;                            // Markdown
  std::map<std::string_view, const char*> of;  // what is said of a member, in brackets
};

const Description kDescriptions[] = {
    {"job_start", "ddprun has started", {{"workers", "of this node"}}},
    {"waiting",
     "The node waits for a place, or the reason has changed. A reason that comes back is written "
     "once a minute",
     {{"reason", "a sentence"}}},
    {"restart",
     "ddprun is about to start the workers again",
     {{"is_charged", "for a failure; else the nodes have changed"},
      {"reason", "why the round before ended"}}},
    {"round_start",
     "The node has its place in a round",
     {{"rendezvous_s", "since it asked for its place"},
      {"note", "why the round is smaller than the one before"}}},
    {"workers_started", "All workers of this node run", {{"start_s", "since `round_start`"}}},
    {"first_step",
     "The round's first step has ended on this node",
     {{"first_step_s", "since `round_start`"}}},
    {"failure",
     "A worker of this node has failed. If another node had the job's first failure, this event "
     "also has it",
     {{"error", "the exception in its error file"}}},
    {"hang", "Ranks hang", {}},
    {"straggler", "A rank is slow", {}},
    {"problem", "Another problem has begun", {}},
    {"problem_end", "A problem is over", {{"lasted_s", "from its beginning"}}},
    {"stop_asked",
     "A signal to ddprun, or `ddprun stop`, asks the job to stop",
     {{"how", "`at once`, `kill` or `after step`"}, {"why", "`SIGTERM`, `ddprun stop on node a`"}}},
    {"health",
     "A health check of this node has another result than the one before",
     {{"health", "`healthy`, `bad` or `unknown`"}, {"line", "the last one that it wrote"}}},
    {"round_end",
     "No worker of the round is left on this node",
     {{"stopped", "by ddprun; these three count workers of this node"}}},
    {"job_end",
     "The last line",
     {{"reason", "these four as in the [report file](report-file.md)"},
      {"effective_share", "of the job's time, spent in steps, 0 to 1"}}},
};

// A problem's kind decides how its event is called.
template <size_t kIndex>
void AddEvents(std::vector<JobEvent>& events) {
  if constexpr (std::is_same_v<std::variant_alternative_t<kIndex, JobEvent>, ProblemEvent>) {
    for (const char* kind : {"hang", "straggler", "disk"}) {
      events.emplace_back(ProblemEvent{{.kind = kind}});
    }
  } else {
    events.emplace_back(std::in_place_index<kIndex>);
  }
}

template <size_t... kIndex>
std::vector<JobEvent> AllEvents(std::index_sequence<kIndex...>) {
  std::vector<JobEvent> events;
  (AddEvents<kIndex>(events), ...);
  return events;
}

const Description& DescriptionOf(const std::string& event) {
  const auto found = std::find_if(std::begin(kDescriptions), std::end(kDescriptions),
                                  [&](const auto& row) { return row.event == event; });
  DDP_CHECK(found != std::end(kDescriptions));
  return *found;
}

std::string MembersOf(const nlohmann::ordered_json& line, const Description& description) {
  std::vector<std::string> members;
  std::set<std::string> seen;
  size_t index = 0;
  for (const auto& [name, value] : line.items()) {
    seen.insert(name);
    if (++index <= kHeadMembers) continue;
    const auto note = description.of.find(name);
    members.push_back(absl::StrCat(
        "`", name, "`", note == description.of.end() ? "" : absl::StrCat(" (", note->second, ")")));
  }
  for (const auto& [name, note] : description.of) DDP_CHECK(seen.contains(std::string(name)));
  return absl::StrJoin(members, ", ");
}

}  // namespace

std::vector<JobEvent> EveryEvent() {
  return AllEvents(std::make_index_sequence<std::variant_size_v<JobEvent>>());
}

std::string EventsText() {
  std::string text = Head({"event", "when", "members"});
  for (const JobEvent& event : EveryEvent()) {
    const auto line = nlohmann::ordered_json::parse(EventLine({}, event));
    const auto name = line.at("event").get<std::string>();
    const Description& description = DescriptionOf(name);
    text += Row({Code(name), description.when, MembersOf(line, description)});
  }
  return text;
}

}  // namespace ddprun::reference
