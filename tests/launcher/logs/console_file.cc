#include "tests/launcher/logs/console_file.h"

#include <fcntl.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::launcher {

ConsoleFile::ConsoleFile()
    : file_(open(dir_.File("console").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
  DDP_CHECK(file_.is_open());
  LogOptions options;
  options.temp_dir = options.memory_dir = dir_.path().string();
  options.stdout_fd = file_.get();
  options.stderr_fd = file_.get();
  auto created = LogRouter::Create(std::move(options));
  DDP_CHECK(created.ok());
  router_ = *std::move(created);
}

std::string ConsoleFile::Close() {
  router_.reset();
  std::ifstream file(dir_.File("console"));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace ddprun::launcher
