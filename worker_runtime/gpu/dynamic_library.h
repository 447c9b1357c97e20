// A shared library opened at run time.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_DYNAMIC_LIBRARY_H_
#define DDPRUN_WORKER_RUNTIME_GPU_DYNAMIC_LIBRARY_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace ddp::internal {

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

  // The file, as the loader found it.
  const std::string& path() const { return path_; }

 private:
  explicit DynamicLibrary(void* handle);
  void* Find(const char* symbol) const;

  void* handle_;
  std::string path_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_DYNAMIC_LIBRARY_H_
