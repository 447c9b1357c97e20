#include "worker_runtime/comm/plan.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ddp::internal {
namespace {

// Changes with whatever ranks must have alike: the layout of shared memory, the order of steps, the
// messages between nodes.
constexpr char kVersion[] = "ddp1";

// Bounds the connections between two nodes, and what a chunk of staging is divided by.
constexpr int kMaxLanes = 8;

const char* BackendName(Backend backend) {
  switch (backend) {
    case Backend::kAuto:
      return "auto";
    case Backend::kShm:
      return "shm";
    case Backend::kTcp:
      return "tcp";
  }
  return "?";
}

absl::Status Garbage(const char* what, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat("the store holds no ", what, " of version ",
                                                 kVersion, ": \"", text.substr(0, 100),
                                                 "\" (do all ranks run the same program?)"));
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const std::vector<Capabilities>& ranks) {
  Plan plan;
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i].backend == ranks[0].backend) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the ranks ask for different backends: rank 0 for ", BackendName(ranks[0].backend),
        ", rank ", i, " for ", BackendName(ranks[i].backend)));
  }
  size_t first_elsewhere = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool joins_previous = i > 0 && ranks[i].host == ranks[i - 1].host;
    if (joins_previous && ranks[i].backend != Backend::kTcp) {
      ++plan.node_sizes.back();
    } else {
      plan.node_sizes.push_back(1);
    }
    if (first_elsewhere == 0 && ranks[i].host != ranks[0].host) first_elsewhere = i;
  }
  if (ranks[0].backend == Backend::kTcp) {
    plan.reason = "tcp between all ranks, as asked for";
  } else if (plan.node_sizes.size() == 1) {
    plan.reason = "shm: all ranks share a host";
  } else {
    plan.reason = absl::StrCat("tcp between ", plan.node_sizes.size(), " nodes: rank ",
                               first_elsewhere, " is not on rank 0's host");
    if (ranks[0].backend == Backend::kShm) {
      return absl::FailedPreconditionError(
          absl::StrCat("backend shm needs all ranks on one host: rank ", first_elsewhere,
                       " is not on rank 0's"));
    }
  }
  return plan;
}

std::string Encode(const Capabilities& capabilities) {
  return absl::StrCat(kVersion, "|", BackendName(capabilities.backend), "|", capabilities.host, "|",
                      capabilities.address, "|", NonceText(capabilities.nonce));
}

absl::StatusOr<Capabilities> DecodeCapabilities(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '|');
  if (parts.size() != 5 || parts[0] != kVersion) return Garbage("capabilities", text);
  Capabilities capabilities;
  if (!ParseNonce(parts[4], &capabilities.nonce)) return Garbage("capabilities", text);
  for (Backend backend : {Backend::kAuto, Backend::kShm, Backend::kTcp}) {
    if (parts[1] != BackendName(backend)) continue;
    capabilities.backend = backend;
    capabilities.host = parts[2];
    capabilities.address = parts[3];
    return capabilities;
  }
  return Garbage("capabilities", text);
}

std::string Encode(const Plan& plan) {
  return absl::StrCat(kVersion, "|", absl::StrJoin(plan.node_sizes, ","), "|", plan.reason);
}

absl::StatusOr<Plan> DecodePlan(const std::string& text, int world_size) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('|', 2));
  if (parts.size() != 3 || parts[0] != kVersion) return Garbage("plan", text);
  Plan plan;
  plan.reason = parts[2];
  int64_t total = 0;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(parts[1], ','))) {
    int size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1) return Garbage("plan", text);
    plan.node_sizes.push_back(size);
    total += size;
  }
  if (total != world_size) return Garbage("plan", text);
  return plan;
}

Place PlaceOf(const Plan& plan, int rank) {
  Place place;
  place.node_count = static_cast<int>(plan.node_sizes.size());
  place.lanes =
      std::min(kMaxLanes, *std::min_element(plan.node_sizes.begin(), plan.node_sizes.end()));
  int first = 0;
  for (int node = 0; node < place.node_count; ++node) {
    const int size = plan.node_sizes[node];
    if (rank < first + size) {
      place.node = node;
      place.index = rank - first;
      for (int i = 0; i < size; ++i) place.ranks.push_back(first + i);
      if (node + 1 < place.node_count) place.next_first = first + size;
      break;
    }
    place.previous_first = first;
    first += size;
  }
  return place;
}

}  // namespace ddp::internal
