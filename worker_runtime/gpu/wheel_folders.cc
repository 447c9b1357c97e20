#include "worker_runtime/gpu/wheel_folders.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace ddp::internal {
namespace {

namespace fs = std::filesystem;

// Names in a folder that begin with `begin`, sorted; none where it cannot be read.
std::vector<fs::path> Children(const fs::path& folder, const std::string& begin) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(begin)) found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void AddFoldersOf(const fs::path& prefix, std::vector<std::string>* folders) {
  for (const char* lib : {"lib", "lib64"}) {
    for (const auto& version : Children(prefix / lib, "python3")) {
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const fs::path folder = version / packages;
        std::error_code error;
        if (!fs::is_directory(folder, error)) continue;
        // lib64 is often a link to lib.
        const fs::path real = fs::canonical(folder, error);
        const bool is_known =
            error || std::any_of(folders->begin(), folders->end(), [&](const std::string& known) {
              std::error_code ignored;
              return fs::canonical(known, ignored) == real;
            });
        if (!is_known) folders->push_back(folder.string());
      }
    }
  }
}

// The path that a bare name stands for; itself where it is a path; empty: it is not found.
std::string FoundInPath(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  if (path == nullptr) return "";
  const std::string folders = path;
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string file = folders.substr(begin, end - begin) + "/" + name;
    if (end > begin && access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return "";
}

}  // namespace

NamedPython WheelPython() {
  for (const char* variable : {"DDPRUN_NCCL_PYTHON", "PYTHON_EXEC"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const std::string path = FoundInPath(value);
    return {variable, path.empty() ? value : path};
  }
  return {"", FoundInPath("python3")};
}

std::vector<std::string> PackageFolders(const std::string& python) {
  std::vector<std::string> folders;
  std::error_code error;
  const fs::path named = fs::path(python).lexically_normal();
  const fs::path real = fs::canonical(named, error);
  for (const auto& interpreter : {named, error ? named : real}) {
    const fs::path prefix = interpreter.parent_path().parent_path();
    // Debian's pip installs beside the distribution's Python, not into it.
    if (prefix == "/usr") AddFoldersOf("/usr/local", &folders);
    AddFoldersOf(prefix, &folders);
  }
  return folders;
}

}  // namespace ddp::internal
