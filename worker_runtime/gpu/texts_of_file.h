// What a library's file says of itself where its functions do not.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_TEXTS_OF_FILE_H_
#define DDPRUN_WORKER_RUNTIME_GPU_TEXTS_OF_FILE_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::internal {

// The number of the text that stands first in the file, of those given. Nothing: none of them does,
// or the file cannot be read. Only the first 64 MiB are looked at: texts precede the kernels, and a
// build of NCCL is up to 400 MB.
std::optional<size_t> FirstTextOfFile(const std::string& path,
                                      std::span<const std::string_view> texts);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_TEXTS_OF_FILE_H_
