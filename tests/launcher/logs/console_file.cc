#include "tests/launcher/logs/console_file.h"

#include <fcntl.h>

#include <sstream>
#include <utility>

#include "rendezvous/base/check.h"
#include "tests/support/files.h"

namespace ddprun::launcher {

ConsoleFile::ConsoleFile(LogOptions options)
    : file_(open(dir_.File("console").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
  DDP_CHECK(file_.is_open());
  if (options.log_dir.empty()) options.log_dir = dir_.File("logs");
  options.temp_dir = options.memory_dir = dir_.path().string();
  options.stdout_fd = file_.get();
  options.stderr_fd = file_.get();
  auto created = LogRouter::Create(std::move(options));
  DDP_CHECK(created.ok());
  router_ = *std::move(created);
}

std::string ConsoleFile::Close() {
  router_.reset();
  return testing::ReadFile(dir_.File("console"));
}

std::string ConsoleFile::FileOf(const std::string& name) const {
  return testing::ReadFile(router_->run_folder() + "/" + name);
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace ddprun::launcher
