#include "worker_runtime/comm/refused.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/quiet_thread.h"

namespace ddp::internal {
namespace {

std::string LimitOf(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "an unknown number";
  return limit.rlim_cur == RLIM_INFINITY ? "any number" : absl::StrCat(limit.rlim_cur);
}

bool IsMemoryLimited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Empty: no limit is known for it.
std::string LimitText(int error) {
  switch (error) {
    case EMFILE:
      return absl::StrCat("this process may have ", LimitOf(RLIMIT_NOFILE), " (ulimit -n)");
    case ENFILE:
      return "this machine has no more (sysctl fs.file-max)";
    case ENOMEM:
      if (IsMemoryLimited()) {
        return absl::StrCat("this process may have ", LimitOf(RLIMIT_AS), " bytes (ulimit -v)");
      }
      return "no memory is free, or this process has too many mappings (sysctl vm.max_map_count)";
    case ENOSPC:
    case ENOBUFS:
      return "no memory is free on this machine or in its cgroup";
    default:
      return "";
  }
}

}  // namespace

std::string RefusedText(int error) {
  const char* name = strerrorname_np(error);
  const std::string words =
      name == nullptr ? std::strerror(error) : absl::StrCat(std::strerror(error), " (", name, ")");
  const std::string limit = LimitText(error);
  return limit.empty() ? words : absl::StrCat(words, ": ", limit);
}

absl::Status Refused(absl::string_view what, int error) {
  const std::string text = absl::StrCat(what, ": ", RefusedText(error));
  return LimitText(error).empty() ? absl::InternalError(text) : absl::ResourceExhaustedError(text);
}

absl::Status NoThread(absl::string_view what) {
  // The kernel says the same where the limit on memory leaves no room for its stack.
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": there is no thread for it: ", ddprun::kNoThreadText,
                   IsMemoryLimited() ? ", or that on memory (ulimit -v)" : ""));
}

absl::Status NoMemory(absl::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", RefusedText(ENOMEM)));
}

}  // namespace ddp::internal
