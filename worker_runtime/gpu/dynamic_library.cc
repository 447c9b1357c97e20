#include "ddp/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#include "absl/status/status.h"

namespace ddp {

DynamicLibrary::DynamicLibrary(void* handle) : handle_(handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return;
  path_ = map->l_name;
  // As it was named, if that was a path from the folder in which the process was then.
  if (path_.empty() || path_[0] == '/') return;
  char* const whole = realpath(path_.c_str(), nullptr);
  if (whole != nullptr) path_ = whole;
  free(whole);
}

absl::StatusOr<DynamicLibrary> DynamicLibrary::Open(const std::string& name) {
  // All symbols now: one that is missing ends in an error here, not in the middle of a step.
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return DynamicLibrary(handle);
  const char* cause = dlerror();
  if (cause == nullptr) return absl::NotFoundError(name + ": the loader refused it");
  // Its words mostly begin with the name.
  const std::string text = cause;
  return absl::NotFoundError(text.find(name) == std::string::npos ? name + ": " + text : text);
}

std::optional<DynamicLibrary> DynamicLibrary::FindLoaded(const std::string& name) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) return std::nullopt;
  return DynamicLibrary(handle);
}

void* DynamicLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace ddp
