#include "rendezvous/net/library_log.h"

#include <mutex>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::rendezvous {
namespace {

struct Sink {
  std::mutex mutex;
  std::function<void(const std::string&)> call;
};

// Never destroyed: threads of gRPC's may log while the process exits.
Sink& TheSink() {
  static Sink* const sink = new Sink;
  return *sink;
}

}  // namespace

LibraryLogScope::LibraryLogScope(std::function<void(const std::string&)> call) {
  Sink& sink = TheSink();
  const std::lock_guard lock(sink.mutex);
  DDP_CHECK(!sink.call && call);
  sink.call = std::move(call);
}

LibraryLogScope::~LibraryLogScope() {
  Sink& sink = TheSink();
  const std::lock_guard lock(sink.mutex);
  sink.call = nullptr;
}

void LogFromLibrary(const std::string& line) {
  Sink& sink = TheSink();
  const std::lock_guard lock(sink.mutex);
  if (sink.call) sink.call(line);
}

}  // namespace ddprun::rendezvous
