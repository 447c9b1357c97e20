#include "launcher/check/check_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

constexpr std::pair<const char*, double RankReport::*> kNumbers[] = {
    {"pass_ms", &RankReport::pass_ms},
    {"memory_gb_s", &RankReport::memory_gb_s},
    {"inside_gb_s", &RankReport::inside_gb_s},
    {"pair_gb_s", &RankReport::pair_gb_s},
};
constexpr std::pair<const char*, std::string RankReport::*> kTexts[] = {
    {"host", &RankReport::host},
    {"device", &RankReport::device},
    {"fault", &RankReport::fault},
    {"error", &RankReport::error},
};

// Who has not measured does not count.
void TakeLess(double found, double& least) {
  if (found > 0) least = least == 0 ? found : std::min(least, found);
}

std::string OfRank(int rank, bool is_by_node, const std::string& text) {
  return is_by_node ? absl::StrCat("rank ", rank, " ", text) : text;
}

// A node by its host, where that tells it from the others.
std::vector<std::string> NamesOf(const std::vector<RankReport>& here, const std::vector<int>& units,
                                 size_t count) {
  std::vector<std::string> hosts(count);
  for (size_t rank = 0; rank < here.size(); ++rank) {
    std::string& host = hosts[static_cast<size_t>(units[rank])];
    if (host.empty()) host = EscapeControl(here[rank].host);
  }
  std::map<std::string, int> times;
  for (const std::string& host : hosts) ++times[host];
  std::vector<std::string> names;
  for (size_t unit = 0; unit < count; ++unit) {
    const std::string& host = hosts[unit];
    if (!host.empty() && times[host] == 1) {
      names.push_back(host);
    } else {
      names.push_back(host.empty() ? absl::StrCat(unit) : absl::StrCat(unit, " (", host, ")"));
    }
  }
  return names;
}

// Who is slow at one time and fast at another is fast.
void AddBest(const std::vector<RankReport>& reports, const std::vector<int>& units,
             CheckFacts& facts) {
  facts.best.resize(reports.size());
  for (UnitFacts& unit : facts.units) unit.pass_ms = unit.memory_gb_s = 0;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    RankReport& best = facts.best[rank];
    TakeLess(reports[rank].pass_ms, best.pass_ms);  // fewer milliseconds are the better ones
    best.memory_gb_s = std::max(best.memory_gb_s, reports[rank].memory_gb_s);
    UnitFacts& unit = facts.units[static_cast<size_t>(units[rank])];
    unit.pass_ms = std::max(unit.pass_ms, best.pass_ms);
    TakeLess(best.memory_gb_s, unit.memory_gb_s);
  }
}

}  // namespace

std::string ReportText(const RankReport& report) {
  std::string text;
  if (report.node >= 0) absl::StrAppend(&text, "node ", report.node, "\n");
  for (const auto& [name, member] : kNumbers) {
    if (report.*member > 0) absl::StrAppend(&text, name, " ", report.*member, "\n");
  }
  for (const auto& [name, member] : kTexts) {
    if (!(report.*member).empty()) {
      absl::StrAppend(&text, name, " ", EscapeControl(report.*member), "\n");
    }
  }
  return text;
}

RankReport ParseReport(std::string_view text) {
  RankReport report;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    int node = 0;
    double number = 0;
    if (parts.first == "node" && absl::SimpleAtoi(parts.second, &node)) report.node = node;
    for (const auto& [name, member] : kNumbers) {
      if (parts.first == name && absl::SimpleAtod(parts.second, &number)) report.*member = number;
    }
    for (const auto& [name, member] : kTexts) {
      if (parts.first == name) report.*member = std::string(parts.second);
    }
  }
  return report;
}

std::vector<int> UnitsOfRanks(const std::vector<RankReport>& here, int nodes) {
  std::vector<int> units;
  const int ranks = static_cast<int>(here.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const int node = here[static_cast<size_t>(rank)].node;
    if (nodes == 1) {
      units.push_back(rank);
    } else {
      // Ranks are dealt out node after node.
      units.push_back(node >= 0 && node < nodes ? node : rank * nodes / ranks);
    }
  }
  return units;
}

CheckFacts FactsOf(const std::vector<RankReport>& here, const std::vector<RankReport>& alone,
                   int nodes, double tolerance) {
  CheckFacts facts{
      .is_by_node = nodes > 1, .ranks = static_cast<int>(here.size()), .tolerance = tolerance};
  const std::vector<int> units = UnitsOfRanks(here, nodes);
  facts.units.resize(nodes > 1 ? static_cast<size_t>(nodes) : here.size());
  const std::vector<std::string> names = NamesOf(here, units, facts.units.size());
  bool has_fault = false;
  for (size_t rank = 0; rank < alone.size(); ++rank) {
    const RankReport& report = alone[rank];
    UnitFacts& unit = facts.units[static_cast<size_t>(units[rank])];
    TakeLess(report.inside_gb_s, unit.inside_gb_s);
    if (unit.device.empty()) unit.device = report.device;
    if (!report.fault.empty() && unit.broken.empty()) {
      unit.broken = OfRank(static_cast<int>(rank), facts.is_by_node, report.fault);
    }
    has_fault = has_fault || !report.fault.empty();
  }
  AddBest(alone, units, facts);
  for (size_t unit = 0; unit < facts.units.size(); ++unit) {
    facts.units[unit].name = facts.is_by_node ? names[unit] : absl::StrCat(unit);
  }
  // The ranks of one node all-reduce together: beside a fault, what the others say is its doing.
  for (size_t rank = 0; rank < alone.size(); ++rank) {
    UnitFacts& unit = facts.units[static_cast<size_t>(units[rank])];
    if (alone[rank].error.empty() || !unit.broken.empty()) continue;
    if (!facts.is_by_node && has_fault) continue;
    unit.broken = OfRank(static_cast<int>(rank), facts.is_by_node, "says: " + alone[rank].error);
  }
  return facts;
}

void AddRound(const std::vector<UnitPair>& pairs, const std::vector<RankReport>& reports,
              const std::vector<int>& units_of_ranks, CheckFacts& facts) {
  const int number = static_cast<int>(facts.rounds.size()) + 1;
  std::vector<PairResult> round;
  for (const UnitPair& pair : pairs) {
    PairResult result{.pair = pair};
    bool is_whole = true;
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      const int unit = units_of_ranks[rank];
      if (unit != pair.a && unit != pair.b) continue;
      const RankReport& report = reports[rank];
      TakeLess(report.pair_gb_s, result.gb_per_s);
      is_whole = is_whole && report.fault.empty() && report.error.empty();
      if (result.failure.empty()) result.failure = report.error;
      std::string& broken = facts.units[static_cast<size_t>(unit)].broken;
      if (report.fault.empty() || !broken.empty()) continue;
      broken = absl::StrCat(OfRank(static_cast<int>(rank), facts.is_by_node, report.fault),
                            " in round ", number);
    }
    if (!is_whole) result.gb_per_s = 0;
    round.push_back(std::move(result));
  }
  AddBest(reports, units_of_ranks, facts);
  facts.rounds.push_back(std::move(round));
}

std::vector<int> WorkingUnits(const CheckFacts& facts) {
  std::vector<int> units;
  for (size_t unit = 0; unit < facts.units.size(); ++unit) {
    if (facts.units[unit].broken.empty()) units.push_back(static_cast<int>(unit));
  }
  return units;
}

}  // namespace ddprun::launcher
