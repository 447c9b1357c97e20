// Sets of CPUs by the kernel's numbers, and how the kernel writes them. [pure]
#ifndef DDPRUN_LAUNCHER_PLACEMENT_CPU_SET_H_
#define DDPRUN_LAUNCHER_PLACEMENT_CPU_SET_H_

#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

using CpuSet = std::set<int>;

// More than any kernel has (8192): a bound on what a file is believed.
inline constexpr int kMaxCpus = 65536;

// "0-2,4,6-7" and the like, white space around; empty text is the empty set. InvalidArgument for
// anything else, numbers from kMaxCpus on included.
absl::StatusOr<CpuSet> ParseCpuList(std::string_view text);
// The reverse, as short as it gets.
std::string FormatCpuList(const CpuSet& cpus);

CpuSet Intersection(const CpuSet& a, const CpuSet& b);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLACEMENT_CPU_SET_H_
