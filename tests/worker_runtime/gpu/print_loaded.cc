// print_loaded nccl|cublas [FILE]: opens FILE, then says which library the loader takes. A program
// of its own, since LD_LIBRARY_PATH, which stands for the system here, is read when one starts.
#include <cstdio>
#include <string>

#include "worker_runtime/gpu/cublas_api.h"
#include "worker_runtime/gpu/dynamic_library.h"
#include "worker_runtime/gpu/nccl_api.h"

namespace {

template <typename Loaded>
void Print(const absl::StatusOr<Loaded>& loaded) {
  std::puts(loaded.ok() ? loaded->path.c_str() : loaded.status().ToString().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  using ddp::internal::DynamicLibrary;
  if (argc < 2) return 2;
  if (argc > 2 && !DynamicLibrary::Open(argv[2]).ok()) return 3;
  if (argv[1] == std::string("nccl")) {
    Print(ddp::internal::LoadNccl());
  } else {
    Print(ddp::internal::LoadCublas());
  }
  return 0;
}
