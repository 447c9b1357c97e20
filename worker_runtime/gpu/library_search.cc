#include "ddp/dynamic_library.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "worker_runtime/gpu/wheel_folders.h"

namespace ddp {
namespace {

using internal::NamedPython;
using internal::PackageFolders;
using internal::WheelPython;

// Remembers what was wrong with each place.
class Search {
 public:
  explicit Search(const ReadLibrary& read) : read_(read) {}

  bool Try(const absl::StatusOr<DynamicLibrary>& library) {
    const absl::Status status = library.ok() ? read_(*library) : library.status();
    if (!status.ok()) causes_.push_back(std::string(status.message()));
    has_unfit_ = has_unfit_ || (library.ok() && !status.ok());
    return status.ok();
  }

  void Note(std::string cause) { causes_.push_back(std::move(cause)); }

  absl::Status Failure(const std::string& what, const std::string& advice) const {
    return absl::Status(
        has_unfit_ ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kNotFound,
        what + ": " + absl::StrJoin(causes_, "; ") + "; " + advice);
  }

 private:
  const ReadLibrary& read_;
  std::vector<std::string> causes_;
  bool has_unfit_ = false;
};

// A second library beside a framework's own that does not serve is allowed: neither sees the
// other's symbols.
bool TryNames(const std::vector<std::string>& names, Search* search) {
  std::vector<std::string> others;
  for (const auto& name : names) {
    const auto loaded = DynamicLibrary::FindLoaded(name);
    if (!loaded.has_value()) {
      others.push_back(name);
    } else if (search->Try(*loaded)) {
      return true;
    }
  }
  for (const auto& name : others) {
    if (search->Try(DynamicLibrary::Open(name))) return true;
  }
  return false;
}

bool TryWheels(const std::vector<std::string>& files, Search* search) {
  const NamedPython python = WheelPython();
  if (python.path.empty()) {
    search->Note(
        "no Python's packages, as neither DDPRUN_NCCL_PYTHON nor PYTHON_EXEC is set, and PATH has "
        "no python3");
    return false;
  }
  // A path that leads nowhere still has folders beside it, /lib for one in /.
  std::error_code error;
  if (!std::filesystem::exists(python.path, error)) {
    search->Note("no Python's packages, as " + python.variable + " names " + python.path +
                 ", which does not exist");
    return false;
  }
  const auto folders = PackageFolders(python.path);
  bool has_file = false;
  for (const auto& folder : folders) {
    for (const auto& file : files) {
      const std::string path = folder + "/" + file;
      if (!std::filesystem::exists(path, error)) continue;
      has_file = true;
      if (search->Try(DynamicLibrary::Open(path))) return true;
    }
  }
  if (folders.empty()) {
    search->Note("no folder of packages belongs to the Python " + python.path);
  } else if (!has_file) {
    search->Note("no " + absl::StrJoin(files, " or ") + " among the packages of " + python.path);
  }
  return false;
}

}  // namespace

LibraryPlaces CublasPlaces() {
  return {.what = "cuBLAS",
          .variable = "DDPRUN_CUBLAS_LIB",
          .names = {"libcublas.so.13", "libcublas.so.12"},
          .wheel_files = {"nvidia/cu13/lib/libcublas.so.13", "nvidia/cublas/lib/libcublas.so.12"},
          .advice =
              "install the Python package nvidia-cublas or nvidia-cublas-cu12, or a CUDA "
              "toolkit, or name the file by DDPRUN_CUBLAS_LIB"};
}

absl::Status SearchLibrary(const LibraryPlaces& places, const ReadLibrary& read) {
  Search search(read);
  const char* given = std::getenv(places.variable.c_str());
  if (given != nullptr && *given != '\0') {
    if (search.Try(DynamicLibrary::Open(given))) return absl::OkStatus();
    return search.Failure(places.what,
                          places.variable + " names it; name another, or unset the variable");
  }
  if (TryNames(places.names, &search)) return absl::OkStatus();
  if (TryWheels(places.wheel_files, &search)) return absl::OkStatus();
  return search.Failure(places.what, places.advice);
}

}  // namespace ddp
