// A LogRouter whose console is a file, and what stands in it.
#ifndef DDPRUN_TESTS_LAUNCHER_LOGS_CONSOLE_FILE_H_
#define DDPRUN_TESTS_LAUNCHER_LOGS_CONSOLE_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "launcher/logs/log_router.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {

class ConsoleFile {
 public:
  // The consoles of `options` become the file, its folders those of this object; both streams
  // append to it.
  explicit ConsoleFile(LogOptions options = {});

  LogRouter& router() { return *router_; }
  // A file below the run's folder.
  std::string FileOf(const std::string& name) const;
  // Ends the router; everything that was written.
  std::string Close();

 private:
  testing::TempDir dir_;
  UniqueFd file_;
  std::unique_ptr<LogRouter> router_;
};

std::vector<std::string> Lines(const std::string& text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_LOGS_CONSOLE_FILE_H_
