// Shared libraries opened at run time, so that one binary serves machines with and without them:
// the CUDA driver and NCCL by this library, cuBLAS or cuDNN by a program.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_DYNAMIC_LIBRARY_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DYNAMIC_LIBRARY_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddp {

// A name for an open library; copies name the same one. It is never closed: CUDA and NCCL leave
// threads and exit handlers behind, and code unmapped under them would crash the process. Its
// symbols are seen by nobody else in the process. Any thread.
class DynamicLibrary {
 public:
  // `name` as dlopen takes it: with a slash a file, without one searched for by the loader.
  // NotFound in the loader's words when there is no such file, or when it is no library, is of
  // another processor, or needs a library that is not there.
  static absl::StatusOr<DynamicLibrary> Open(const std::string& name);

  // The library of this name (a path, or what its SONAME says) if somebody has loaded it into the
  // process before; loads nothing.
  static std::optional<DynamicLibrary> FindLoaded(const std::string& name);

  // Sets `function` to the symbol, or to null where the library has none; false then.
  template <typename Function>
  bool Take(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(Find(symbol));
    return function != nullptr;
  }

  // The file, as the loader found it: from the root, so that it is the same wherever the process
  // goes, if it was still where it was loaded from.
  const std::string& path() const { return path_; }

 private:
  explicit DynamicLibrary(void* handle);
  void* Find(const char* symbol) const;

  void* handle_;
  std::string path_;
};

// Where a library of NVIDIA's may lie.
struct LibraryPlaces {
  std::string what;                      // "NCCL", begins each message
  std::string variable;                  // names a file, and nothing else is tried when it is set
  std::vector<std::string> names;        // as the loader knows them, the best first
  std::vector<std::string> wheel_files;  // below a Python's folder of packages, the best first
  std::string advice;                    // ends the message when there is none
};

// Of cuBLAS 13 and 12, whose file the variable DDPRUN_CUBLAS_LIB may name. This library has no use
// for it; `ddprun doctor` tells what is found there.
LibraryPlaces CublasPlaces();

// Takes what is needed from a library. An error, which begins with its path, when it does not
// serve.
using ReadLibrary = std::function<absl::Status(const DynamicLibrary&)>;

// Ok as soon as `read` was content with a library; in this order: the variable; what the process
// has loaded; the system's; the wheels of the Python that $DDPRUN_NCCL_PYTHON, else $PYTHON_EXEC,
// names, else of the python3 of $PATH: PyTorch's libraries are there. One that does not serve does
// not end the search: images carry an old system package beside a newer wheel. Otherwise NotFound,
// or FailedPrecondition when some library was there; the message names each place and what was
// wrong with it.
absl::Status SearchLibrary(const LibraryPlaces& places, const ReadLibrary& read);

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DYNAMIC_LIBRARY_H_
