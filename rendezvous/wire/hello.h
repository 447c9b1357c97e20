// The greeting by which a rendezvous port says what it is, before any gRPC. [pure]
//
// A client that finds a port open sends kHelloRequest on a connection of its own. A coordinator
// answers with its run id, whether it runs apart from all agents, and its release, and closes. So a
// port held by another program, or by another job, is named within a round trip, instead of failing
// handshakes until the join timeout. The request begins with a byte that starts neither a store's
// nor an HTTP/2 connection, and ends in empty lines, at which line-based servers (HTTP, SMTP,
// Redis) answer with an error of their own. All of it is alike in all releases, whatever else they
// say.
#ifndef DDPRUN_RENDEZVOUS_WIRE_HELLO_H_
#define DDPRUN_RENDEZVOUS_WIRE_HELLO_H_

#include <cstddef>
#include <string>

#include "rendezvous/base/release.h"

namespace ddprun::rendezvous {

inline constexpr char kHelloFirstByte = 0x01;
inline constexpr char kHelloRequest[] = "\x01 ddprun/1 hello\r\n\r\n";
inline constexpr size_t kMaxHelloReplyBytes = 512;

struct Hello {
  std::string run_id;     // empty: none yet, any is welcome
  bool is_apart = false;  // the coordinator lives in no agent
  Release release = ThisRelease();
};

enum class HelloAnswer {
  kIncomplete,  // so far it may be a hello
  kHello,
  kForeign,  // not ddprun
};

// The run's id as a greeting tells it.
std::string GreetedRunId(const std::string& run_id);

// "ddprun/1 run <run id>\nrelease <protocol> <version>\n", or "apart" for "run"; the run id must be
// CleanText and is cut to 256 bytes. Releases that say no number read and say the first line alone.
std::string MakeHelloReply(const Hello& hello);

// What `bytes`, all that came so far, says. kHello: `hello` is set.
HelloAnswer ParseHelloReply(const std::string& bytes, Hello& hello);

// Whether `bytes`, behind which nothing comes, is the answer of a release that says no number:
// `hello` is set, with kFirstProtocol.
bool ParseOldHelloReply(const std::string& bytes, Hello& hello);

// Whether a coordinator that says `hello` serves the run `run_id`.
bool Serves(const Hello& hello, const std::string& run_id);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_HELLO_H_
