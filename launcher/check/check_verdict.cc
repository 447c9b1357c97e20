#include "launcher/check/check_verdict.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxNamed = 3;  // in the sentence; the table has all

bool IsBroken(const CheckFacts& facts, int unit) {
  return !facts.units[static_cast<size_t>(unit)].broken.empty();
}

// What a unit's pairs say of it. Those with a broken one say nothing.
struct PairsOfUnit {
  std::optional<double> best{};
  std::vector<const PairResult*> failed{};
};

std::vector<PairsOfUnit> CollectPairs(const CheckFacts& facts) {
  std::vector<PairsOfUnit> found(facts.units.size());
  for (const auto& round : facts.rounds) {
    for (const PairResult& result : round) {
      if (IsBroken(facts, result.pair.a) || IsBroken(facts, result.pair.b)) continue;
      for (const int unit : {result.pair.a, result.pair.b}) {
        PairsOfUnit& mine = found[static_cast<size_t>(unit)];
        mine.best = std::max(mine.best.value_or(0), result.gb_per_s);
        if (result.gb_per_s == 0) mine.failed.push_back(&result);
      }
    }
  }
  return found;
}

std::string Partners(const CheckFacts& facts, int unit, const PairsOfUnit& pairs) {
  return absl::StrJoin(pairs.failed, " nor ", [&](std::string* out, const PairResult* result) {
    const int other = result->pair.a == unit ? result->pair.b : result->pair.a;
    absl::StrAppend(out, facts.units[static_cast<size_t>(other)].name);
  });
}

// Calls those that are slower than the median by more than the tolerance. `value` is what they are
// compared by, the more the faster; 0: not known.
void FindSlow(const CheckFacts& facts, const std::function<double(size_t)>& value, const char* what,
              std::vector<UnitVerdict>& verdicts) {
  std::vector<double> known;
  for (size_t unit = 0; unit < facts.units.size(); ++unit) {
    if (value(unit) > 0) known.push_back(value(unit));
  }
  if (known.size() < 2) return;
  std::sort(known.begin(), known.end());
  const double median = known[known.size() / 2];
  for (size_t unit = 0; unit < facts.units.size(); ++unit) {
    UnitVerdict& verdict = verdicts[unit];
    if (value(unit) <= 0 || verdict.state == UnitState::kBroken) continue;
    const double times = median / value(unit);
    if (times <= facts.tolerance) continue;
    verdict.state = UnitState::kSlow;
    verdict.times = std::max(verdict.times, times);
    absl::StrAppend(&verdict.why, verdict.why.empty() ? "" : ", ", what,
                    absl::StrFormat(" %.1f times slower than the median", times));
  }
}

std::string Counted(size_t count, const char* noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string Sentence(const CheckFacts& facts, std::vector<std::string> findings) {
  std::string text = absl::StrCat(
      "check: ", facts.is_by_node ? absl::StrCat(Counted(facts.units.size(), "node"), ", ") : "",
      Counted(static_cast<size_t>(facts.ranks), "rank"), ": ");
  if (findings.empty()) {
    const bool is_alone = facts.units.size() < 2;
    return text + (is_alone ? "it works, and has no other to be compared with" : "all are well");
  }
  const size_t more = findings.size() - std::min(findings.size(), kMaxNamed);
  findings.resize(findings.size() - more);
  absl::StrAppend(&text, absl::StrJoin(findings, "; "));
  if (more > 0) absl::StrAppend(&text, "; and ", more, " more");
  return text;
}

}  // namespace

const char* StateWord(UnitState state) {
  switch (state) {
    case UnitState::kWell:
      return "ok";
    case UnitState::kSlow:
      return "slow";
    case UnitState::kBroken:
      return "broken";
  }
  return "";
}

std::vector<UnitPair> PairsAfter(const CheckFacts& facts) {
  const std::vector<int> units = WorkingUnits(facts);
  std::vector<UnitPair> pairs = NextPairs(units, facts.rounds);
  if (!pairs.empty()) return pairs;
  const std::vector<UnitVerdict> verdicts = JudgeCheck(facts).units;
  const bool is_any_slow = std::any_of(verdicts.begin(), verdicts.end(), [](const auto& verdict) {
    return verdict.state == UnitState::kSlow;
  });
  if (is_any_slow) pairs = NextPairs(units, facts.rounds, kRoundsAgain);
  return pairs;
}

CheckVerdict JudgeCheck(const CheckFacts& facts) {
  const std::vector<PairsOfUnit> pairs = CollectPairs(facts);
  std::vector<UnitVerdict> verdicts;
  for (int unit = 0; unit < static_cast<int>(facts.units.size()); ++unit) {
    UnitVerdict verdict{.unit = unit, .why = facts.units[static_cast<size_t>(unit)].broken};
    const PairsOfUnit& mine = pairs[static_cast<size_t>(unit)];
    if (verdict.why.empty() && mine.best == 0.0) {
      verdict.why = absl::StrCat("cannot all-reduce with ", Partners(facts, unit, mine), ": ",
                                 mine.failed.back()->failure);
    }
    if (!verdict.why.empty()) verdict.state = UnitState::kBroken;
    verdicts.push_back(std::move(verdict));
  }
  const auto of = [&](double UnitFacts::*member) {
    return [&facts, member](size_t unit) { return facts.units[unit].*member; };
  };
  FindSlow(
      facts,
      [&](size_t unit) {
        const double ms = facts.units[unit].pass_ms;
        return ms > 0 ? 1 / ms : 0;
      },
      "computes", verdicts);
  FindSlow(facts, of(&UnitFacts::memory_gb_s), "copies memory", verdicts);
  // The ranks of one node all-reduce together: that is no one's own.
  if (facts.is_by_node) {
    FindSlow(facts, of(&UnitFacts::inside_gb_s), "all-reduces within itself", verdicts);
  }
  FindSlow(
      facts, [&](size_t unit) { return pairs[unit].best.value_or(0); }, "all-reduces with others",
      verdicts);
  std::vector<UnitVerdict> ordered = verdicts;
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.state != b.state ? a.state > b.state : a.times > b.times;
  });
  const std::string noun = facts.is_by_node ? "node " : "rank ";
  std::vector<std::string> findings;
  for (const UnitVerdict& verdict : ordered) {
    if (verdict.state == UnitState::kWell) continue;
    findings.push_back(absl::StrCat(noun, facts.units[static_cast<size_t>(verdict.unit)].name,
                                    " is ", StateWord(verdict.state), ": ", verdict.why));
  }
  for (const auto& round : facts.rounds) {
    for (const PairResult& result : round) {
      const auto state = [&](int unit) { return verdicts[static_cast<size_t>(unit)].state; };
      const auto [a, b] = result.pair;
      if (result.gb_per_s > 0 || state(a) == UnitState::kBroken || state(b) == UnitState::kBroken) {
        continue;
      }
      findings.push_back(
          absl::StrCat(noun, facts.units[static_cast<size_t>(a)].name, " and ", noun,
                       facts.units[static_cast<size_t>(b)].name,
                       " are well, but cannot all-reduce with each other: ", result.failure));
    }
  }
  const bool is_well = findings.empty();
  return {.units = std::move(ordered),
          .is_well = is_well,
          .sentence = Sentence(facts, std::move(findings))};
}

}  // namespace ddprun::launcher
