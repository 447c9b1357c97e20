#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/gpu_check_program/check.h"

namespace ddprun::gpu_check {
namespace {

constexpr double kTarget = 0.99;       // of the bare loop
constexpr double kHiddenTarget = 0.5;  // seven of eight layers can be
constexpr double kNoticeLimit_s = 5;

std::string Size(size_t bytes) {
  if (bytes >= 1u << 30) return absl::StrCat(bytes >> 30, " GiB");
  if (bytes >= 1u << 20) return absl::StrCat(bytes >> 20, " MiB");
  return absl::StrCat(bytes >> 10, " KiB");
}

std::string OneGpuOnly() { return "one GPU only"; }

// Ranks across GPUs, one each: a power of two, so that a batch is divided evenly.
int RanksAcross(const Check& check) {
  int ranks = 1;
  while (ranks * 2 <= std::min(check.gpus, 8)) ranks *= 2;
  return ranks;
}

// `how`: plain or graph.
Result AllReduceRow(Check& check, int ranks, const std::string& how) {
  if (!check.nccl_lack.empty()) return NotRun(check.nccl_lack);
  const std::vector<std::string> program = {check.Program("gpu_check"), "all_reduce",
                                            std::to_string(check.max_bytes), how};
  const Outcome outcome =
      ranks == 1 ? check.Run(program) : check.RunRanks(ranks, /*is_shared=*/false, program);
  if (!outcome.ok()) return FailedRun("all-reduce", outcome);
  Result result;
  for (size_t bytes = 4096; bytes <= check.max_bytes; bytes *= 2) {
    const auto library = outcome.Value(absl::StrCat("library_us_", bytes));
    const auto bare = outcome.Value(absl::StrCat("bare_us_", bytes));
    if (!library || !bare) continue;
    const double share = *bare / *library;
    result.values[absl::StrCat("library_us_", bytes)] = *library;
    result.values[absl::StrCat("bare_us_", bytes)] = *bare;
    result.values[absl::StrCat("share_", bytes)] = share;
    if (share < kTarget) result.verdict = Verdict::kMissed;
    absl::StrAppendFormat(&result.text, "; %s %.1f us %.1f %%", Size(bytes), *library, 100 * share);
    if (const auto bus = outcome.Value(absl::StrCat("bus_gb_s_", bytes))) {
      result.values[absl::StrCat("bus_gb_s_", bytes)] = *bus;
      absl::StrAppendFormat(&result.text, " bus %.1f GB/s", *bus);
    }
  }
  if (result.values.empty()) return FailedRun("all-reduce: no figures", outcome);
  result.text =
      absl::StrFormat("ranks: %d; time and share of a bare loop's speed (target %.0f %%)%s", ranks,
                      100 * kTarget, result.text);
  return result;
}

Result AllReduceAcrossRow(Check& check, const std::string& how) {
  const int ranks = RanksAcross(check);
  return ranks > 1 ? AllReduceRow(check, ranks, how) : NotRun(OneGpuOnly());
}

Result OverlapRow(Check& check, int ranks) {
  if (!check.nccl_lack.empty()) return NotRun(check.nccl_lack);
  const size_t layer = std::min(check.max_bytes, size_t{64} << 20);
  const std::vector<std::string> program = {check.Program("gpu_check"), "overlap",
                                            std::to_string(layer)};
  const Outcome outcome =
      ranks == 1 ? check.Run(program) : check.RunRanks(ranks, /*is_shared=*/false, program);
  if (!outcome.ok()) return FailedRun("overlap", outcome);
  const double communication = outcome.Value("communication_ms").value_or(0);
  const double exposed = outcome.Value("exposed_ms").value_or(0);
  if (communication <= 0) return Failed("overlap: the events tell of no communication");
  const double hidden = std::max(0.0, 1 - exposed / communication);
  return {hidden >= kHiddenTarget ? Verdict::kOk : Verdict::kMissed,
          absl::StrFormat("%.0f %% of %.2f ms of communication hidden by backward (8 layers of %s, "
                          "%d ranks)",
                          100 * hidden, communication, Size(layer), ranks),
          {{"hidden_share", hidden}, {"communication_ms", communication}, {"exposed_ms", exposed}}};
}

Result SumsRow(Check& check, int ranks, bool is_shared) {
  if (!check.nccl_lack.empty()) return NotRun(check.nccl_lack);
  if (ranks == 1) return NotRun(OneGpuOnly());
  const Outcome outcome = check.RunRanks(ranks, is_shared, {check.Program("gpu_check"), "sums"});
  if (!outcome.ok()) return FailedRun("sums", outcome);
  if (outcome.Value("ranks") != ranks) return FailedRun("sums: not every rank took part", outcome);
  return {Verdict::kOk, absl::StrCat("sums and averages of 7 types are right on ", ranks,
                                     is_shared ? " ranks of one GPU" : " GPUs")};
}

Result KilledRow(Check& check, int ranks, bool is_shared) {
  if (!check.nccl_lack.empty()) return NotRun(check.nccl_lack);
  if (ranks == 1) return NotRun(OneGpuOnly());
  const std::string file = check.Scratch("time_of_death");
  std::remove(file.c_str());
  const Outcome outcome =
      check.RunRanks(ranks, is_shared, {check.Program("gpu_check"), "killed", file});
  double last_s = 0;  // of the survivors
  for (int rank = 0; rank + 1 < ranks; ++rank) {
    const auto noticed_s = outcome.Value(absl::StrCat("noticed_s_", rank));
    if (!noticed_s) {
      return FailedRun(absl::StrCat("killed rank: rank ", rank, " did not notice"), outcome);
    }
    last_s = std::max(last_s, *noticed_s);
  }
  constexpr int kKilled = 128 + 9;
  if (outcome.exit_code != kKilled) return FailedRun("killed rank: ddprun", outcome);
  return {last_s < kNoticeLimit_s ? Verdict::kOk : Verdict::kFailed,
          absl::StrFormat("noticed by all others after %.2f s (at most %.0f): %s", last_s,
                          kNoticeLimit_s, outcome.Text("message")),
          {{"noticed_s", last_s}}};
}

Result StepGraphRow(Check& check, int ranks, bool is_shared) {
  if (!check.nccl_lack.empty()) return NotRun(check.nccl_lack);
  if (ranks == 1) return NotRun(OneGpuOnly());
  const std::string layer = std::to_string(std::min(check.max_bytes, size_t{1} << 20));
  const Outcome outcome =
      check.RunRanks(ranks, is_shared, {check.Program("gpu_check"), "step_graph", layer});
  if (!outcome.ok()) return FailedRun("step graph", outcome);
  const auto run_ms = outcome.Value("run_ms"), replay_ms = outcome.Value("replay_ms");
  if (!run_ms || !replay_ms) return FailedRun("step graph: no figures", outcome);
  return {Verdict::kOk,
          absl::StrFormat("a step of %d ranks captured, its replays right: %.3f ms, uncaptured "
                          "%.3f ms",
                          ranks, *replay_ms, *run_ms),
          {{"replay_ms", *replay_ms}, {"run_ms", *run_ms}}};
}

}  // namespace

const std::vector<RowKind>& CollectiveRows() {
  static const std::vector<RowKind> rows = {
      {"all_reduce", 60, [](Check& c) { return AllReduceRow(c, 1, "plain"); }},
      {"all_reduce_graph", 60, [](Check& c) { return AllReduceRow(c, 1, "graph"); }},
      {"overlap", 30, [](Check& c) { return OverlapRow(c, 1); }},
      {"shared_sums_2", 45, [](Check& c) { return SumsRow(c, 2, true); }},
      {"shared_sums_4", 60, [](Check& c) { return SumsRow(c, 4, true); }},
      {"shared_step_graph", 45, [](Check& c) { return StepGraphRow(c, 2, true); }},
      {"shared_killed_2", 45, [](Check& c) { return KilledRow(c, 2, true); }},
      {"shared_killed_4", 45, [](Check& c) { return KilledRow(c, 4, true); }},
      {"gpus_sums", 45, [](Check& c) { return SumsRow(c, RanksAcross(c), false); }},
      {"gpus_all_reduce", 90, [](Check& c) { return AllReduceAcrossRow(c, "plain"); }},
      {"gpus_all_reduce_graph", 90, [](Check& c) { return AllReduceAcrossRow(c, "graph"); }},
      {"gpus_overlap", 45,
       [](Check& c) {
         return RanksAcross(c) > 1 ? OverlapRow(c, RanksAcross(c)) : NotRun(OneGpuOnly());
       }},
      {"gpus_step_graph", 45, [](Check& c) { return StepGraphRow(c, RanksAcross(c), false); }},
      {"gpus_killed", 45, [](Check& c) { return KilledRow(c, RanksAcross(c), false); }},
  };
  return rows;
}

}  // namespace ddprun::gpu_check
