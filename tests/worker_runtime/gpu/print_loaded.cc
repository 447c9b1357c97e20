// print_loaded nccl|newest [FILE]: opens FILE, then says which library the search takes; libnewest
// has two versions. A program of its own, since LD_LIBRARY_PATH, which stands for the system here,
// is read when one starts.
#include <cstdio>
#include <string>

#include "ddp/dynamic_library.h"
#include "worker_runtime/gpu/nccl_api.h"

namespace {

using ddp::DynamicLibrary;

std::string Nccl() {
  const auto nccl = ddp::internal::LoadNccl();
  return nccl.ok() ? nccl->path : nccl.status().ToString();
}

std::string Newest() {
  std::string path;
  const absl::Status status = ddp::SearchLibrary({.what = "newest",
                                                  .variable = "DDPRUN_NEWEST_LIB",
                                                  .names = {"libnewest.so.2", "libnewest.so.1"},
                                                  .wheel_files = {},
                                                  .advice = "there is none"},
                                                 [&path](const DynamicLibrary& library) {
                                                   path = library.path();
                                                   return absl::OkStatus();
                                                 });
  return status.ok() ? path : status.ToString();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (argc > 2 && !DynamicLibrary::Open(argv[2]).ok()) return 3;
  std::puts((argv[1] == std::string("nccl") ? Nccl() : Newest()).c_str());
  return 0;
}
