#include "rendezvous/net/library_log.h"

#include <mutex>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::rendezvous {
namespace {

// Never destroyed, either of them: threads of gRPC's may log while the process exits.
std::mutex mutex;
const std::function<void(const std::string&)>* current_sink = nullptr;  // guarded by mutex

}  // namespace

LibraryLogScope::LibraryLogScope(std::function<void(const std::string&)> sink)
    : sink_(std::move(sink)) {
  const std::lock_guard lock(mutex);
  DDP_CHECK(current_sink == nullptr && sink_);
  current_sink = &sink_;
}

LibraryLogScope::~LibraryLogScope() {
  const std::lock_guard lock(mutex);
  current_sink = nullptr;
}

void LogFromLibrary(const std::string& line) {
  const std::lock_guard lock(mutex);
  if (current_sink != nullptr) (*current_sink)(line);
}

}  // namespace ddprun::rendezvous
