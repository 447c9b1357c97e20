// The options about what workers write.
#include "launcher/cli/option_values.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {
namespace {

using absl::InvalidArgumentError;

void WarnOfRanks(const std::string& option, std::vector<int> ranks, const LaunchConfig& config,
                 std::vector<std::string>& warnings) {
  constexpr size_t kMaxNamed = 8;
  std::erase_if(ranks, [&](int rank) { return rank < config.workers_per_node; });
  if (ranks.empty()) return;
  const bool has_more = ranks.size() > kMaxNamed;
  if (has_more) ranks.resize(kMaxNamed);
  const int last = config.workers_per_node - 1;
  warnings.push_back(
      absl::StrCat(option, ": no worker here has local rank ", absl::StrJoin(ranks, ", "),
                   has_more ? ", ..." : "",
                   last == 0 ? "; the only one is 0" : absl::StrCat("; they are 0 to ", last)));
}

// Whether lines of that stream of some worker reach the console, and so the filters.
bool HasTee(const LaunchConfig& config, bool Streams::*stream) {
  for (int rank = 0; rank < config.workers_per_node; ++rank) {
    const bool is_shown = config.console_ranks.empty() || config.console_ranks.contains(rank);
    if (is_shown && config.tee.For(rank).*stream) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::set<int>> ParseLocalRanks(const std::string& text) {
  std::set<int> ranks;
  if (text.empty()) return ranks;
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  for (const std::string& part : parts) {
    const absl::StatusOr<int> rank =
        ParseNumber(std::string(absl::StripAsciiWhitespace(part)), 0, kMaxWorkersPerNode - 1);
    if (!rank.ok()) {
      return InvalidArgumentError(absl::StrCat("expected local ranks from 0 to ",
                                               kMaxWorkersPerNode - 1,
                                               " separated by commas, as in 0,1,12"));
    }
    ranks.insert(*rank);
  }
  return ranks;
}

absl::StatusOr<std::vector<std::string>> ParseLineFilters(const std::string& text) {
  std::vector<std::string> filters;
  if (text.empty()) return filters;
  filters.emplace_back();
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != ',') {
      filters.back().push_back(text[at]);
    } else if (text.substr(at, 2) == ",,") {
      filters.back().push_back(',');
      ++at;
    } else {
      filters.emplace_back();
    }
  }
  const bool has_empty = std::any_of(filters.begin(), filters.end(),
                                     [](const std::string& filter) { return filter.empty(); });
  if (!has_empty) return filters;
  return InvalidArgumentError(
      "expected texts separated by commas, ,, for a comma in a text; an empty one would match "
      "every line");
}

std::vector<std::string> OutputWarnings(const LaunchConfig& config) {
  std::vector<std::string> warnings;
  for (const auto& [option, choice] :
       {std::pair{"redirects", &config.redirects}, std::pair{"tee", &config.tee}}) {
    std::vector<int> ranks;
    for (const auto& [rank, streams] : choice->by_local_rank) ranks.push_back(rank);
    WarnOfRanks(config.SourceOf(option), std::move(ranks), config, warnings);
  }
  WarnOfRanks(config.SourceOf("local_ranks_filter"),
              {config.console_ranks.begin(), config.console_ranks.end()}, config, warnings);
  const auto check_filters = [&](const char* option, const char* stream, bool is_teed) {
    if (config.log_dir == "/dev/null") {
      warnings.push_back(absl::StrCat(config.SourceOf(option), " copies nothing: with ",
                                      config.SourceOf("log_dir"),
                                      "=/dev/null there is no file to copy to"));
    } else if (!is_teed) {
      warnings.push_back(absl::StrCat(
          config.SourceOf(option), " copies nothing: only lines that ", config.SourceOf("tee"),
          " shows on the console are copied, and it shows no ", stream));
    }
  };
  if (!config.stdout_filters.empty()) {
    check_filters("duplicate_stdout_filters", "stdout", HasTee(config, &Streams::out));
  }
  if (!config.stderr_filters.empty()) {
    check_filters("duplicate_stderr_filters", "stderr", HasTee(config, &Streams::err));
  }
  return warnings;
}

}  // namespace ddprun::launcher
