#include "launcher/cli/cluster_job.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/node_list.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/fnv1a.h"

namespace ddprun::launcher {
namespace {

// "0,1" or names of MIG slices; no GPU: an empty list, -1 or, from Slurm, NoDevFiles.
int CountDevices(const std::string& list) {
  int count = 0;
  for (const absl::string_view entry : absl::StrSplit(list, ',')) {
    const absl::string_view device = absl::StripAsciiWhitespace(entry);
    if (device.empty() || device[0] == '-' || device == "NoDevFiles") break;
    ++count;
  }
  return count;
}

}  // namespace

absl::Status Contradiction(absl::string_view text, bool speaks) {
  return absl::InvalidArgumentError(
      speaks ? absl::StrCat(text, " (--no-cluster leaves the variables alone)") : "");
}

int ClusterVariables::Number(const std::string& name, int min, int max) {
  const absl::StatusOr<int> number = ParseNumber(Text(name), min, max);
  if (number.ok()) return *number;
  Fail(name, number.status().message());
  return min;
}

void ClusterVariables::Expect(const std::string& name, int count, const std::string& list) {
  if (!Has(name) || Text(name) == absl::StrCat(count)) return;
  Fail(name, absl::StrCat(list, " names ", count));
}

std::vector<std::string> ClusterVariables::Nodes(const std::string& name) {
  absl::StatusOr<std::vector<std::string>> nodes = ExpandNodeList(Text(name));
  if (nodes.ok()) return *std::move(nodes);
  Fail(name, nodes.status().message());
  return {};
}

void ClusterVariables::Fail(const std::string& name, absl::string_view why) {
  const std::string what = Has(name) ? Quoted(Text(name)) : "is missing";
  status_.Update(Contradiction(absl::StrCat(name, " ", what, ": ", why)));
}

int PortFor(const std::string& id) {
  constexpr int kLowest = 20000, kCount = 12000;
  Fnv1a hash;
  hash.Add(id.data(), id.size());
  return kLowest + static_cast<int>(hash.value() % kCount);
}

std::optional<int> LargestSize(const GivenOptions& given) {
  const auto found = given.find("nnodes");
  if (found == given.end()) return std::nullopt;
  const absl::StatusOr<NodeRange> nodes = ParseNodeRange(found->second.text);
  return nodes.ok() ? std::optional<int>(nodes->max) : std::nullopt;
}

GivenValue WorkersOf(const ClusterVariables& variables, const std::string& count_variable) {
  const char kDevices[] = "CUDA_VISIBLE_DEVICES";
  int count = CountDevices(variables.Text(kDevices));
  std::string source = kDevices;
  if (!variables.IsSet(kDevices) && absl::SimpleAtoi(variables.Text(count_variable), &count)) {
    source = count_variable;
  }
  return {.text = absl::StrCat(std::clamp(count, 1, kMaxWorkersPerNode)), .source = source};
}

}  // namespace ddprun::launcher
