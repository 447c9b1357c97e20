// Files that do not answer: a network file system that hangs, made certain.
#ifndef DDPRUN_TESTS_LAUNCHER_PROCESS_FILE_GATE_H_
#define DDPRUN_TESTS_LAUNCHER_PROCESS_FILE_GATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {

// Opens or executions of one file, each of which waits for the answer of this object (fanotify's
// permission events). Its end lets all pass.
class FileGate {
 public:
  // `events`: FAN_OPEN_PERM or FAN_OPEN_EXEC_PERM. Null: not available here.
  static std::unique_ptr<FileGate> Make(const std::string& path, uint64_t events);

  // Whether somebody waits.
  bool HasVisitor() const;
  // Lets those pass that wait now.
  void LetPass();

 private:
  explicit FileGate(UniqueFd events) : events_(std::move(events)) {}
  const UniqueFd events_;
};

// A copy of the toy worker at `path`, whose execution waits at a gate. Null: not available here.
std::unique_ptr<FileGate> MakeSlowToyWorker(const std::string& path);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_PROCESS_FILE_GATE_H_
