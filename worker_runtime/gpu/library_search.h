// Where a library of NVIDIA's may lie, tried in order.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_LIBRARY_SEARCH_H_
#define DDPRUN_WORKER_RUNTIME_GPU_LIBRARY_SEARCH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker_runtime/gpu/dynamic_library.h"

namespace ddp::internal {

struct LibraryPlaces {
  std::string what;                      // "NCCL", begins each message
  std::string variable;                  // names a file, and nothing else is tried when it is set
  std::vector<std::string> names;        // as the loader knows them, the best first
  std::vector<std::string> wheel_files;  // below a Python's folder of packages, the best first
  std::string advice;                    // ends the message when there is none
};

// Takes what is needed from a library. An error, which begins with its path, when it does not
// serve.
using ReadLibrary = std::function<absl::Status(const DynamicLibrary&)>;

// Ok as soon as `read` was content with a library; in this order: the variable; what the process
// has loaded; the system's; the wheels of a named Python (wheel_folders.h). One that does not serve
// does not end the search: images carry an old system package beside a newer wheel. Otherwise
// NotFound, or FailedPrecondition when some library was there; the message names each place and
// what was wrong with it.
absl::Status SearchLibrary(const LibraryPlaces& places, const ReadLibrary& read);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_LIBRARY_SEARCH_H_
