// Shared libraries opened at run time, so that one binary runs on machines with and without them.
// This library opens the CUDA driver and NCCL so, a program for example cuBLAS or cuDNN.
#ifndef DDPRUN_WORKER_RUNTIME_DDP_DYNAMIC_LIBRARY_H_
#define DDPRUN_WORKER_RUNTIME_DDP_DYNAMIC_LIBRARY_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddp {

// A handle of an open library. Copies refer to the same one. It is never closed: CUDA and NCCL
// leave threads and exit handlers, and unmapped code would crash the process. Its symbols are not
// visible to other code in the process. Any thread.
class DynamicLibrary {
 public:
  // Opens a library. `name` is as for dlopen: a file if it has a slash, otherwise the loader
  // searches for it. NotFound, with the loader's text, if there is no such file. NotFound also if
  // the file is no library, is for another processor, or needs a library that is missing.
  static absl::StatusOr<DynamicLibrary> Open(const std::string& name);

  // Returns the library of this name if the process has loaded it before. The name is a path, or
  // what its SONAME says. This loads nothing.
  static std::optional<DynamicLibrary> FindLoaded(const std::string& name);

  // Sets `function` to the symbol. If the library does not have it, sets null and returns false.
  template <typename Function>
  bool Take(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(Find(symbol));
    return function != nullptr;
  }

  // The file, as the loader found it. If it was still at the place from which it was loaded, the
  // path is from the root. It is then the same whatever the process's directory.
  const std::string& path() const { return path_; }

 private:
  explicit DynamicLibrary(void* handle);
  void* Find(const char* symbol) const;

  void* handle_;
  std::string path_;
};

// Places where a library of NVIDIA's may be.
struct LibraryPlaces {
  std::string what;                      // "NCCL", begins each message
  std::string variable;                  // names a file; if it is set, no other place is tried
  std::vector<std::string> names;        // for the loader, the best first
  std::vector<std::string> wheel_files;  // below a Python's folder of packages, the best first
  std::string advice;                    // ends the message if no library was found
};

// The places of cuBLAS 13 and 12. The variable DDPRUN_CUBLAS_LIB may name the file. This library
// does not use it, but `ddprun doctor` reports what is found there.
LibraryPlaces CublasPlaces();

// Takes what is needed from a library. If the library is not suitable, returns an error, which
// begins with its path.
using ReadLibrary = std::function<absl::Status(const DynamicLibrary&)>;

// Searches for a library that `read` accepts. Ok at the first one. The order is:
// - the file in the variable;
// - what the process has loaded;
// - the system's library;
// - the wheels of a Python, which have PyTorch's libraries. $DDPRUN_NCCL_PYTHON names it, else
//   $PYTHON_EXEC, else it is the python3 of $PATH.
//
// A library that is not suitable does not end the search: images have an old system package next to
// a newer wheel. If none is suitable, the result is NotFound, or FailedPrecondition if some library
// was there. The message names each place and what was wrong with it.
absl::Status SearchLibrary(const LibraryPlaces& places, const ReadLibrary& read);

}  // namespace ddp

#endif  // DDPRUN_WORKER_RUNTIME_DDP_DYNAMIC_LIBRARY_H_
