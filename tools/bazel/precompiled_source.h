// What most sources include and what costs the most to parse. Bigger is not better: with Asio or
// nlohmann's JSON in it every other file pays more than these save (docs/testing.md has figures).
#ifndef DDPRUN_TOOLS_BAZEL_PRECOMPILED_SOURCE_H_
#define DDPRUN_TOOLS_BAZEL_PRECOMPILED_SOURCE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#endif  // DDPRUN_TOOLS_BAZEL_PRECOMPILED_SOURCE_H_
