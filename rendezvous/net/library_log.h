// Where the messages of gRPC and Protobuf go. Knows nothing of either.
#ifndef DDPRUN_RENDEZVOUS_NET_LIBRARY_LOG_H_
#define DDPRUN_RENDEZVOUS_NET_LIBRARY_LOG_H_

#include <functional>
#include <string>

namespace ddprun::rendezvous {

// While one of these lives it is given the messages; without one they are dropped. The libraries
// know only plain functions and their threads outlive every job, so the way to it is the one global
// of ours: it is taken back, and a call under way waited for, before the destructor returns.
class LibraryLogScope {
 public:
  // `sink` is called with one line per message, on any thread, one call at a time. It must not
  // block and not call the libraries. REQUIRES: there is no other scope.
  explicit LibraryLogScope(std::function<void(const std::string&)> sink);
  ~LibraryLogScope();
  LibraryLogScope(const LibraryLogScope&) = delete;
  LibraryLogScope& operator=(const LibraryLogScope&) = delete;

 private:
  const std::function<void(const std::string&)> sink_;
};

// Hands `line` to the scope that there is.
void LogFromLibrary(const std::string& line);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_NET_LIBRARY_LOG_H_
