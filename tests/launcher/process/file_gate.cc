#include "tests/launcher/process/file_gate.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <filesystem>

#include "rendezvous/base/check.h"
#include "tests/launcher/process/process_testing.h"

namespace ddprun::testing {

std::unique_ptr<FileGate> FileGate::Make(const std::string& path, uint64_t events) {
  UniqueFd gate(fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC));
  if (!gate.is_open() ||
      fanotify_mark(gate.get(), FAN_MARK_ADD, events, AT_FDCWD, path.c_str()) != 0) {
    return nullptr;
  }
  return std::unique_ptr<FileGate>(new FileGate(std::move(gate)));
}

bool FileGate::HasVisitor() const {
  pollfd polled{events_.get(), POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

void FileGate::LetPass() {
  alignas(fanotify_event_metadata) char bytes[4096];
  ssize_t size = read(events_.get(), bytes, sizeof bytes);
  DDP_CHECK(size > 0);
  const auto* event = reinterpret_cast<const fanotify_event_metadata*>(bytes);
  for (; FAN_EVENT_OK(event, size); event = FAN_EVENT_NEXT(event, size)) {
    const UniqueFd file(event->fd);
    const fanotify_response answer{event->fd, FAN_ALLOW};
    DDP_CHECK(write(events_.get(), &answer, sizeof answer) == sizeof answer);
  }
}

std::unique_ptr<FileGate> MakeSlowToyWorker(const std::string& path) {
  std::filesystem::copy_file(ToyWorker(), path);
  return FileGate::Make(path, FAN_OPEN_EXEC_PERM);
}

}  // namespace ddprun::testing
