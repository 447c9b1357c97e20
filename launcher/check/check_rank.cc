#include "launcher/check/check_rank.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ddp/store.h"
#include "launcher/check/check_child.h"
#include "launcher/check/check_json.h"
#include "launcher/check/check_stage.h"
#include "launcher/check/check_text.h"
#include "launcher/check/check_verdict.h"
#include "launcher/process/exit_status.h"
#include "launcher/report/last_words.h"
#include "launcher/report/whole_file.h"
#include "rendezvous/base/steady_clock.h"
#include "worker_runtime/counters_page.h"
#include "worker_runtime/env_contract.h"

namespace ddprun::launcher {
namespace {

using ddp::internal::WorkerEnv;
using std::chrono::milliseconds;

// What is between ranks beside their stages: they start at different times.
constexpr milliseconds kMargin{3000};
// How much later than the one before it the next unit takes the lead.
constexpr milliseconds kLeadDelay{2000};
constexpr int kMaxLeaders = 3;

// Without what ties it to the agent: the note of a peer that left, the page of counters.
std::vector<std::string> StageEnvironment() {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string variable = *at;
    const std::string name = variable.substr(0, variable.find('='));
    if (name != ddp::internal::kErrorFileVar && name != ddp::internal::kCountersVar) {
      variables.push_back(variable);
    }
  }
  return variables;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

class CheckRank {
 public:
  CheckRank(WorkerEnv env, std::unique_ptr<ddp::Store> store, double tolerance, bool is_json)
      : env_(std::move(env)),
        store_(std::move(store)),
        keys_("ddprun_check", *store_),
        limits_(LimitsOfStage()),
        tolerance_(tolerance),
        is_json_(is_json) {}

  absl::StatusOr<int> Run() {
    absl::Status status = Tell("here", {.node = env_.group_rank, .host = HostName()});
    if (status.ok()) status = Tell("alone", RunStage({kAloneStage}));
    for (int round = 1; status.ok(); ++round) {
      const absl::StatusOr<std::string> plan = AwaitPlan(round);
      if (!plan.ok()) return plan.status();
      if (*plan == kEnd) return exit_code_;
      status = TakePart(round, *plan);
    }
    return status;
  }

 private:
  static constexpr char kEnd[] = "end";

  std::string Key(const std::string& stage, int rank) const {
    return absl::StrCat(stage, "/", rank);
  }

  absl::Status Tell(const std::string& stage, const RankReport& report) {
    return keys_.Set(Key(stage, env_.rank), ReportText(report));
  }

  RankReport RunStage(std::vector<std::string> words) {
    words.insert(words.begin(), {"/proc/self/exe", kCheckRankArgument});
    const ChildEnd end = RunChild({.argv = std::move(words),
                                   .environment = StageEnvironment(),
                                   .limit = limits_.stage,
                                   .end_signal = SIGKILL});
    RankReport report = ParseReport(end.text);
    report.fault = end.fault;
    if (end.exit_code > 0 && report.error.empty() && report.fault.empty()) {
      report.fault = absl::StrCat("ended with exit code ", end.exit_code);
    }
    return report;
  }

  // The reports of the ranks that are wanted, by rank; waits for them until the deadline.
  template <typename IsWanted>
  absl::StatusOr<std::vector<RankReport>> Collect(const std::string& stage, TimePoint deadline,
                                                  IsWanted is_wanted) {
    std::vector<RankReport> reports(static_cast<size_t>(env_.world_size));
    for (int rank = 0; rank < env_.world_size; ++rank) {
      if (!is_wanted(rank)) continue;
      RankReport& report = reports[static_cast<size_t>(rank)];
      const std::string key = Key(stage, rank);
      const auto left = std::chrono::ceil<milliseconds>(deadline - SteadyNow());
      if (left > milliseconds(0)) {
        const absl::Status status = keys_.Wait({key}, left);
        if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
      }
      const absl::StatusOr<bool> is_there = keys_.Check({key});
      if (!is_there.ok()) return is_there.status();
      if (!*is_there) {
        report.fault = "gave no sign of life";
        continue;
      }
      const absl::StatusOr<std::string> text = keys_.Get(key, limits_.group);
      if (!text.ok()) return text.status();
      report = ParseReport(*text);
    }
    return reports;
  }

  // What the leader says: the pairs of the round, or kEnd.
  absl::StatusOr<std::string> AwaitPlan(int round) {
    const std::string key = absl::StrCat("plan/", round);
    const bool leads_in_unit = env_.group_world_size == 1 || env_.local_rank == 0;
    const int unit = env_.group_world_size == 1 ? env_.rank : env_.group_rank;
    const TimePoint begin = SteadyNow();
    const milliseconds patience = std::chrono::duration_cast<milliseconds>(limits_.stage) + kMargin;
    if (unit > 0 || !leads_in_unit) {
      const int turn = leads_in_unit ? std::min(unit, kMaxLeaders) : kMaxLeaders;
      const absl::StatusOr<std::string> plan =
          keys_.Get(key, patience + turn * kLeadDelay + kMargin);
      if (plan.ok() || !absl::IsDeadlineExceeded(plan.status())) return plan;
      if (!leads_in_unit || unit >= kMaxLeaders) {
        return absl::DeadlineExceededError("no word from the ranks that lead the check");
      }
    }
    const absl::Status status = Lead(round, begin + patience);
    if (!status.ok()) return status;
    const absl::StatusOr<std::string> plan = keys_.CompareSet(key, "", plan_);
    if (plan.ok() && *plan == kEnd) return Judge();
    return plan;
  }

  // Collects what is missing up to the round and decides what it does.
  absl::Status Lead(int round, TimePoint deadline) {
    if (!facts_) {
      const auto all = [](int) { return true; };
      const auto alone = Collect("alone", deadline, all);
      if (!alone.ok()) return alone.status();
      const auto here = Collect("here", SteadyNow(), all);
      if (!here.ok()) return here.status();
      facts_ = FactsOf(*here, *alone, env_.group_world_size, tolerance_);
      // All ranks pair by what the first leader says.
      const absl::StatusOr<std::string> units = keys_.CompareSet(
          "units", "", absl::StrJoin(UnitsOfRanks(*here, env_.group_world_size), " "));
      if (!units.ok()) return units.status();
      ParseUnits(*units);
    }
    while (static_cast<int>(facts_->rounds.size()) < round - 1) {
      const int number = static_cast<int>(facts_->rounds.size()) + 1;
      const absl::StatusOr<std::string> plan =
          keys_.Get(absl::StrCat("plan/", number), milliseconds(1));
      if (!plan.ok()) return plan.status();
      const std::vector<UnitPair> pairs = ParsePairs(*plan);
      const auto reports = Collect(absl::StrCat("round", number), deadline,
                                   [&](int rank) { return PairOf(rank, pairs).has_value(); });
      if (!reports.ok()) return reports.status();
      AddRound(pairs, *reports, units_, *facts_);
    }
    plan_ = PairsText(PairsAfter(*facts_));
    if (plan_.empty()) plan_ = kEnd;
    return absl::OkStatus();
  }

  void ParseUnits(const std::string& text) {
    units_.assign(static_cast<size_t>(env_.world_size), 0);
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    for (size_t rank = 0; rank < std::min(words.size(), units_.size()); ++rank) {
      if (!absl::SimpleAtoi(words[rank], &units_[rank])) units_[rank] = 0;
    }
  }

  std::optional<UnitPair> PairOf(int rank, const std::vector<UnitPair>& pairs) const {
    const int unit = units_[static_cast<size_t>(rank)];
    for (const UnitPair& pair : pairs) {
      if (pair.a == unit || pair.b == unit) return pair;
    }
    return std::nullopt;
  }

  absl::Status TakePart(int round, const std::string& plan) {
    if (units_.empty()) {
      const absl::StatusOr<std::string> units = keys_.Get("units", limits_.group);
      if (!units.ok()) return units.status();
      ParseUnits(*units);
    }
    const std::vector<UnitPair> pairs = ParsePairs(plan);
    const std::optional<UnitPair> mine = PairOf(env_.rank, pairs);
    if (!mine) return absl::OkStatus();
    int rank = 0, ranks = 0;
    for (int other = 0; other < env_.world_size; ++other) {
      if (PairOf(other, pairs) != mine) continue;
      if (other < env_.rank) ++rank;
      ++ranks;
    }
    const std::string stage = absl::StrCat("round", round);
    const std::string keys = absl::StrCat("ddprun_check/", stage, "/", PairsText({*mine}));
    return Tell(stage, RunStage({kPairStage, keys, absl::StrCat(rank), absl::StrCat(ranks)}));
  }

  // Once in a job, whoever leads.
  absl::StatusOr<std::string> Judge() {
    const std::string me = absl::StrCat(env_.rank);
    const absl::StatusOr<std::string> judge = keys_.CompareSet("judge", "", me);
    if (!judge.ok()) return judge.status();
    if (*judge != me) return std::string(kEnd);
    const CheckVerdict verdict = JudgeCheck(*facts_);
    const std::string text = is_json_ ? CheckJson(*facts_, verdict) : CheckText(*facts_, verdict);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    if (verdict.is_well) return std::string(kEnd);
    exit_code_ = 1;
    // By it the other nodes learn the sentence.
    if (!env_.error_file.empty()) {
      const absl::Status ignored =
          WriteWholeFile(env_.error_file, ErrorTextOf({.message = verdict.sentence}, std::nullopt));
    }
    return std::string(kEnd);
  }

  const WorkerEnv env_;
  const std::unique_ptr<ddp::Store> store_;
  ddp::PrefixStore keys_;
  const StageLimits limits_;
  const double tolerance_;
  const bool is_json_;

  std::vector<int> units_;           // of the ranks; empty: not asked for yet
  std::optional<CheckFacts> facts_;  // of the rank that leads
  std::string plan_;
  int exit_code_ = kExitSuccess;
};

absl::StatusOr<int> RunRank(const std::vector<std::string>& words) {
  const auto env =
      ddp::internal::ParseWorkerEnv([](const char* name) { return std::getenv(name); });
  if (!env.ok()) return env.status();
  double tolerance = 0;
  if (!env->has_value() || words.size() != 2 || !absl::SimpleAtod(words[0], &tolerance)) {
    return absl::InvalidArgumentError("this is a part of ddprun check: run that");
  }
  auto store = ddp::Store::Connect((*env)->master_addr, (*env)->master_port, LimitsOfStage().group);
  if (!store.ok()) return store.status();
  return CheckRank(**env, *std::move(store), tolerance, words[1] == "json").Run();
}

}  // namespace

int RunCheckRank(const std::vector<std::string>& words) {
  if (!words.empty() && (words[0] == kAloneStage || words[0] == kPairStage)) {
    return RunCheckStage(words);
  }
  const absl::StatusOr<int> code = RunRank(words);
  if (code.ok()) return *code;
  std::fprintf(stderr, "ddprun: check: %s\n", std::string(code.status().message()).c_str());
  return kExitMachine;
}

}  // namespace ddprun::launcher
