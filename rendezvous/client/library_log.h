// Where the messages of gRPC and Protobuf go. Knows nothing of either.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_LIBRARY_LOG_H_
#define DDPRUN_RENDEZVOUS_CLIENT_LIBRARY_LOG_H_

#include <functional>
#include <string>

namespace ddprun::rendezvous {

// `sink` is called with one line per message, on any thread; it must not block. Replaces the one
// before; an empty one drops the messages, as does never calling this.
void SetLibraryLogSink(std::function<void(const std::string&)> sink);

// Hands `line` to the sink.
void LogFromLibrary(const std::string& line);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_LIBRARY_LOG_H_
