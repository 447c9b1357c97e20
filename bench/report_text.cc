#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/report.h"

namespace ddprun::bench {
namespace {

constexpr double kMb = 1 << 20;
constexpr double kGoodEfficiency = 0.8;

std::string Percent(double share) {
  return absl::StrFormat("%.*f %%", share < 0.0995 ? 1 : 0, 100 * share);
}

// The row that the verdict is about.
const Row* MostRanks(const Report& report, Way way) {
  const Row* most = nullptr;
  for (const Row& row : report.rows) {
    if (row.way == way && (most == nullptr || row.ranks > most->ranks)) most = &row;
  }
  return most;
}

std::string RuleText(const Row& row) {
  return absl::StrCat("exposed communication is ", Percent(row.exposed_share()), " of the step, ",
                      row.exposed_share() > kExposedLimit ? "above" : "within",
                      " the 10 % that are good");
}

std::string CoresText(const Machine& machine) {
  const double cores = machine.usable_devices();
  if (cores == 1) return "1 core";
  return absl::StrFormat("%g cores", cores);
}

// Empty where the machine was idle.
std::string LoadText(const Machine& machine, const char* before) {
  if (machine.load < 0.5) return "";
  return absl::StrFormat("%sthe load was %.1f before", before, machine.load);
}

}  // namespace

std::string MachineText(const Machine& machine) {
  std::string text = absl::StrFormat("%d %s", machine.cores, machine.cores == 1 ? "core" : "cores");
  if (machine.gpus > 0) {
    text = absl::StrFormat("%d GPU%s, %s", machine.gpus, machine.gpus == 1 ? "" : "s", text);
  }
  if (machine.core_quota > 0 && machine.core_quota < machine.cores) {
    absl::StrAppend(
        &text, absl::StrFormat(" of which the cgroup grants the time of %g", machine.core_quota));
  }
  if (machine.memory_bytes > 0) {
    absl::StrAppend(&text, absl::StrFormat(", %.1f GiB of memory free",
                                           static_cast<double>(machine.memory_bytes) / (1 << 30)));
  }
  return absl::StrCat(text, LoadText(machine, ", "));
}

std::string CapsText(const SweepPoint& point) {
  std::string text;
  for (const double cap_mb : point.same_mb) absl::StrAppend(&text, cap_mb, " = ");
  return absl::StrCat(text, point.cap_mb);
}

std::string TableText(const Report& report) {
  std::string out = absl::StrFormat("%-4s %5s  %9s  %10s  %7s  %8s  %9s  %9s  %10s  %9s\n", "way",
                                    "ranks", "samples/s", "speed-up", "step ms", "comm. ms",
                                    "exposed %", "moved MiB", "memory MiB", "imbalance");
  for (const Row& row : report.rows) {
    uint64_t most = 0;
    for (const uint64_t bytes : row.memory_bytes) most = std::max(most, bytes);
    absl::StrAppend(&out,
                    absl::StrFormat("%-4s %5d  %9.0f  %10s  %7.2f  %8.2f  %8.1f%s  %9.1f  %10.1f  "
                                    "%7.1f %%\n",
                                    Name(row.way), row.ranks, row.samples_per_second,
                                    absl::StrFormat("%.2f of %2d", Speedup(report, row), row.ranks),
                                    row.step_ms, row.communication_ms, 100 * row.exposed_share(),
                                    row.exposed_share() > kExposedLimit ? "!" : " ",
                                    static_cast<double>(row.bytes_moved) / kMb,
                                    static_cast<double>(most) / kMb, 100 * MemoryImbalance(row)));
  }
  absl::StrAppend(
      &out,
      "\nBoth ways train the same batches: dp in one process with a thread for each replica, ddp "
      "in a\nprocess for each rank. The speed-up should approach the number of ranks. Exposed is "
      "communication that\ncomputation does not hide: up to 10 % of a step is good, more has a !. "
      "Moved is between devices in a\nstep. Memory is that of the fullest device; the imbalance, "
      "how much more it holds than the emptiest.\n");
  if (const SweepPoint* cap = RecommendedCap(report)) {
    absl::StrAppend(&out, absl::StrFormat("\nbucket_cap_mb: %g is recommended for %d ranks here; "
                                          "step in ms by value:",
                                          cap->cap_mb, report.sweep_ranks));
    bool has_same = false;
    for (const SweepPoint& point : report.sweep) {
      absl::StrAppend(&out, absl::StrFormat("%s %s: %.2f", &point == &report.sweep[0] ? "" : ",",
                                            CapsText(point), point.step_ms));
      has_same |= !point.same_mb.empty();
    }
    absl::StrAppend(&out, has_same ? " (values with = give the same buckets)\n" : "\n");
  }
  return out;
}

std::string Verdict(const Report& report) {
  if (!report.failure.empty()) {
    return absl::StrCat("Not all was measured: ", report.failure,
                        ". Rows that were measured only once may be far off.");
  }
  const Row* row = MostRanks(report, Way::kDistributed);
  if (row == nullptr) return "";
  if (row->ranks == 1) {
    return "One rank was measured: nothing travels, and computation alone limits.";
  }
  const double devices = report.machine.usable_devices();
  const bool takes_turns = row->ranks > devices;  // never on GPUs
  const Row* shown = FindRow(report, Way::kDistributed, ShownRanks(report));
  if (takes_turns && shown != nullptr && shown->ranks <= devices) {
    return absl::StrFormat(
        "The cores limit: %d ranks share %s, take turns, and reach %.1f times one rank; %d ranks "
        "with a core each reach %.1f times (%s%s).",
        row->ranks, CoresText(report.machine), Speedup(report, *row), shown->ranks,
        Speedup(report, *shown), RuleText(*shown), LoadText(report.machine, "; "));
  }
  const double speedup = Speedup(report, *row);
  const std::string rule = RuleText(*row);
  if (takes_turns) {
    return absl::StrFormat(
        "The cores limit: %d ranks share %s, take turns, and reach %.1f times one rank (%s, "
        "waiting for a rank that does not run included).",
        row->ranks, CoresText(report.machine), speedup, rule);
  }
  if (row->exposed_share() > kExposedLimit) {
    return absl::StrFormat(
        "Communication limits: %s; %d ranks are %.1f times as fast as one; a larger batch, more "
        "accumulation or another bucket_cap_mb would hide more of it.",
        rule, row->ranks, speedup);
  }
  if (speedup >= kGoodEfficiency * row->ranks) {
    return absl::StrFormat(
        "Computation limits, as it should: %s, and %d ranks are %.1f times as "
        "fast as one.",
        rule, row->ranks, speedup);
  }
  const char* const what = report.machine.gpus > 0
                               ? "Small kernels limit (a rank's part of the batch is too small to "
                                 "fill a GPU, and the host "
                                 "takes longer to start a kernel than the GPU to run it"
                               : "What the ranks share limits (memory bandwidth, caches, the clock";
  return absl::StrFormat("%s%s): %s, and yet %d ranks are only %.1f times as fast as one.", what,
                         LoadText(report.machine, ", "), rule, row->ranks, speedup);
}

std::string Comparison(const Report& report) {
  const Row* ddp = FindRow(report, Way::kDistributed, ShownRanks(report));
  const Row* dp = ddp == nullptr ? nullptr : FindRow(report, Way::kDataParallel, ddp->ranks);
  if (dp == nullptr || dp->samples_per_second <= 0) return "";
  return absl::StrFormat(
      "With %d ranks DistributedDataParallel trains %.2f times as many samples a second as "
      "DataParallel; exposed communication is %s of its step and %s of DataParallel's. torch's own "
      "DataParallel is slower than this one, as its threads share Python's GIL, which C++ does not "
      "have.",
      ddp->ranks, ddp->samples_per_second / dp->samples_per_second, Percent(ddp->exposed_share()),
      Percent(dp->exposed_share()));
}

}  // namespace ddprun::bench
