// Pieces of what the judge says: numbers, times, ranks. [pure]
#ifndef DDPRUN_LAUNCHER_STATUS_JUDGE_WORDS_H_
#define DDPRUN_LAUNCHER_STATUS_JUDGE_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

double SecondsOf(Duration duration);
// A time that a worker or another node told: 0 for what is none (negative, NaN, infinite), and at
// most thirty years.
double SaneSeconds(double seconds);
// Whether it is a time at all.
bool IsTime(double seconds);

// "88,123".
std::string NumberText(uint64_t number);
std::string NumberText(int64_t number);
// "412", "41.2", "4.12": three digits are enough for a rate.
std::string RateText(double per_s);
// Rounded down, two units at most: "42 s", "2 min 10 s", "3 h 12 min", "2 d 3 h".
std::string SpanText(double seconds);
// Of one step: "12.3 s", "1.23 s", "310 ms", "4.56 ms".
std::string StepTimeText(double seconds);

// RanksText, of a length that fits in a sentence: "ranks 1, 3, 5 and 12 more".
// REQUIRES: ascending, not empty.
std::string SomeRanksText(const std::vector<int>& ranks);
// "a, b, c", "a, b, c and 12 more".
std::string SomeNamesText(const std::vector<std::string>& names);
// `one` for one, `many` otherwise.
absl::string_view ByCount(size_t count, absl::string_view one, absl::string_view many);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_JUDGE_WORDS_H_
