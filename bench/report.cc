#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace ddprun::bench {
namespace {

// "ddp with 2 ranks"
std::string NameOf(const Row& row) {
  return absl::StrFormat("%s with %d rank%s", Name(row.way), row.ranks, row.ranks == 1 ? "" : "s");
}

}  // namespace

const char* Name(Way way) { return way == Way::kDataParallel ? "dp" : "ddp"; }

const char* LongName(Way way) {
  return way == Way::kDataParallel ? "DataParallel" : "DistributedDataParallel";
}

double Machine::usable_devices() const {
  if (gpus > 0) return gpus;
  return core_quota > 0 ? std::min<double>(cores, core_quota) : cores;
}

double Apart(double one_ms, double other_ms) {
  const auto [faster, slower] = std::minmax(one_ms, other_ms);
  return faster > 0 ? slower / faster - 1 : 0;
}

int RanksWithCores(const std::vector<int>& ranks, const Machine& machine) {
  int chosen = 0;
  for (const int number : ranks) {
    if (number == 1) continue;
    if (chosen == 0 || number <= machine.usable_devices()) chosen = number;
  }
  return chosen;
}

int ShownRanks(const Report& report) {
  std::vector<int> ranks;
  for (const Row& row : report.rows) {
    if (row.way == Way::kDistributed) ranks.push_back(row.ranks);
  }
  return RanksWithCores(ranks, report.machine);
}

const Row* FindRow(const Report& report, Way way, int ranks) {
  for (const Row& row : report.rows) {
    if (row.way == way && row.ranks == ranks) return &row;
  }
  return nullptr;
}

double Speedup(const Report& report, const Row& row) {
  const Row* one = FindRow(report, row.way, 1);
  if (one == nullptr || one->samples_per_second <= 0) return 0;
  return row.samples_per_second / one->samples_per_second;
}

double MemoryImbalance(const Row& row) {
  if (row.memory_bytes.empty()) return 0;
  const auto [least, most] = std::minmax_element(row.memory_bytes.begin(), row.memory_bytes.end());
  return *least == 0 ? 0 : static_cast<double>(*most) / static_cast<double>(*least) - 1;
}

const SweepPoint* RecommendedCap(const Report& report) {
  constexpr double kNoise = 1.02;
  double best = INFINITY;
  for (const SweepPoint& point : report.sweep) best = std::min(best, point.step_ms);
  const SweepPoint* chosen = nullptr;
  for (const SweepPoint& point : report.sweep) {
    if (point.step_ms > best * kNoise) continue;
    if (chosen == nullptr || point.cap_mb > chosen->cap_mb) chosen = &point;
  }
  return chosen;
}

void Merge(Report found, Report& report) {
  const auto is_same = [](const auto& a) {
    return [&a](const auto& b) { return a.way == b.way && a.ranks == b.ranks; };
  };
  for (Row& row : found.rows) {
    const auto known = std::find_if(report.rows.begin(), report.rows.end(), is_same(row));
    if (known == report.rows.end()) {
      report.rows.push_back(std::move(row));
      continue;
    }
    // Both halves must have learnt alike: what is compared is the loss that is further off.
    const double usual = report.rows.front().final_loss;
    if (!(std::abs(row.final_loss - usual) <= std::abs(known->final_loss - usual))) {
      known->final_loss = row.final_loss;
    }
    known->halves_apart = row.halves_apart = Apart(known->step_ms, row.step_ms);
    if (known->step_ms <= row.step_ms) {
      std::erase_if(found.timelines, is_same(row));
      continue;
    }
    std::erase_if(report.timelines, is_same(row));
    row.final_loss = known->final_loss;
    *known = std::move(row);
  }
  std::move(found.timelines.begin(), found.timelines.end(), std::back_inserter(report.timelines));
  if (found.sweep.empty()) return;
  report.sweep_ranks = found.sweep_ranks;
  report.sweep = std::move(found.sweep);
}

std::string LossDifference(const Report& report) {
  for (const Row& row : report.rows) {
    const Row& first = report.rows.front();
    const double difference = std::abs(row.final_loss - first.final_loss);
    // Also true where one of them is no number.
    if (difference <= kLossTolerance * std::abs(first.final_loss)) continue;
    return absl::StrFormat(
        "after %d steps that of %s is %.6f and that of %s is %.6f; they may be apart by %g of it, "
        "as gradients are summed in another order",
        kLossSteps, NameOf(row), row.final_loss, NameOf(first), first.final_loss, kLossTolerance);
  }
  return "";
}

std::string Uncertainty(const Report& report) {
  std::vector<std::string> rows, ways, points, all, also;
  for (const Row& row : report.rows) {
    if (row.halves_apart <= kHalvesLimit) continue;
    rows.push_back(absl::StrFormat("%s by %.0f %%", NameOf(row), 100 * row.halves_apart));
    if (row.ranks == 1) ways.push_back(Name(row.way));
  }
  for (const SweepPoint& point : report.sweep) {
    if (point.halves_apart <= kHalvesLimit) continue;
    points.push_back(absl::StrFormat("%g by %.0f %%", point.cap_mb, 100 * point.halves_apart));
  }
  if (!rows.empty()) {
    all.push_back(absl::StrCat("step, samples/s and speed-up of ", absl::StrJoin(rows, ", ")));
  }
  if (!points.empty()) {
    all.push_back(absl::StrCat("the step with bucket_cap_mb ", absl::StrJoin(points, ", ")));
    also.push_back("what bucket_cap_mb is recommended");
  }
  if (all.empty()) return "";
  if (!ways.empty()) {
    also.push_back(absl::StrCat("the speed-ups of all ", absl::StrJoin(ways, " and "), " rows"));
  }
  return absl::StrCat("Uncertain: ", absl::StrJoin(all, "; "),
                      ", as the two halves of their measurement are so far apart",
                      also.empty() ? "" : "; and so ", absl::StrJoin(also, ", and "),
                      ". Close what else runs here and measure again, or give more --seconds.");
}

}  // namespace ddprun::bench
