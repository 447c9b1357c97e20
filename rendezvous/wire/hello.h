// The greeting by which a rendezvous port says what it is, before any gRPC. [pure]
//
// A client that finds a port open sends kHelloRequest on a connection of its own. A coordinator
// answers with its run id and closes. So a port held by another program, or by another job, is
// named within a round trip, instead of failing handshakes until the join timeout. The request
// begins with a byte that starts neither a store's nor an HTTP/2 connection, and ends in empty
// lines, at which line-based servers (HTTP, SMTP, Redis) answer with an error of their own.
#ifndef DDPRUN_RENDEZVOUS_WIRE_HELLO_H_
#define DDPRUN_RENDEZVOUS_WIRE_HELLO_H_

#include <cstddef>
#include <string>

namespace ddprun::rendezvous {

inline constexpr char kHelloFirstByte = 0x01;
inline constexpr char kHelloRequest[] = "\x01 ddprun/1 hello\r\n\r\n";
inline constexpr size_t kMaxHelloReplyBytes = 512;

enum class HelloAnswer {
  kIncomplete,  // so far it may be ours
  kOurs,        // a coordinator of this run
  kOtherRun,    // a coordinator of another run
  kForeign,     // not ddprun
};

// "ddprun/1 run <run id>\n"; the run id must be CleanText and is cut to 256 bytes.
std::string MakeHelloReply(const std::string& run_id);

// What `bytes`, all that came so far, says. kOtherRun: `other_run` is set to its id.
HelloAnswer ParseHelloReply(const std::string& bytes, const std::string& run_id,
                            std::string& other_run);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_HELLO_H_
