// A connection to another agent and, on this machine, the socket of who uses it: what comes over
// the one goes out over the other, in TLS on the outer one where the job has an identity.
//
// gRPC never has the connection itself: what comes for it is counted first, so that a stranger's
// frames cost what FrameLimits allows. The pipe holds at most what one turn has read, and reads on
// when that has gone out: each side feels how slow the other one is. Driven by one thread.
#ifndef DDPRUN_RENDEZVOUS_SERVER_PIPE_H_
#define DDPRUN_RENDEZVOUS_SERVER_PIPE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/connection_table.h"
#include "rendezvous/tls/stream.h"
#include "rendezvous/wire/frame_limits.h"

namespace ddprun::rendezvous {

class Pipe {
 public:
  // `outer` and `inner` are non-blocking sockets, `tls` the outer one's end of TLS, or null.
  Pipe(UniqueFd outer, UniqueFd inner, std::unique_ptr<TlsStream> tls);
  // For gRPC, entered in `connections`, which outlives the pipe. `for_grpc` is set to gRPC's end.
  // Null: there was no descriptor for it (errno is EMFILE or ENFILE), or the connection has been
  // reset.
  static std::unique_ptr<Pipe> Open(UniqueFd outer, std::unique_ptr<TlsStream> tls,
                                    ConnectionTable& connections, UniqueFd& for_grpc);
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  // Carries what was read from the outer end, and decrypted, before there was a pipe. REQUIRES:
  // nothing was carried yet. False: as of CarryIn.
  bool CarryFirst(TimePoint now, std::string plain);
  // Carry what there is inwards, and outwards. False: the connection is over.
  bool CarryIn(TimePoint now, std::vector<char>& scratch);
  bool CarryOut(std::vector<char>& scratch);
  // The inner end's user has closed it. What it has said last goes out by CarryOut,
  // and nothing else is read.
  void CloseInner(std::vector<char>& scratch);
  // What each end waits for: EPOLLIN, EPOLLOUT.
  uint32_t outer_events() const;
  uint32_t inner_events() const;
  int outer_fd() const { return outer_.get(); }
  int inner_fd() const { return inner_.get(); }
  // The other side has begun a call: it is no mere connection.
  bool has_call() const { return !grpc_ || grpc_->limits.has_call(); }
  // An agent is at the other end, and its user at this one.
  bool has_joined() const { return (!grpc_ || grpc_->connection->has_joined) && inner_.is_open(); }
  // In TLS each side knows that the other one is of the job.
  bool is_ready() const { return tls_ == nullptr || tls_->is_ready(); }

 private:
  // What a pipe for gRPC has besides.
  struct Grpc {
    std::string name;  // of gRPC's end
    ConnectionTable* connections = nullptr;
    std::shared_ptr<ConnectionTable::Connection> connection;
    FrameLimits limits;
  };

  // What the outer end has sent, in the clear: to the inner one.
  bool PassIn(TimePoint now, std::string_view plain);
  bool FlushOut();
  std::string Encrypted(std::string_view plain);

  const UniqueFd outer_;
  UniqueFd inner_;  // not open: its user has closed its end
  const std::unique_ptr<TlsStream> tls_;
  std::optional<Grpc> grpc_;
  std::string inward_;   // in the clear, and not yet taken by the inner end
  std::string outward_;  // as it goes out, and not yet taken by the outer end
};

// Both ends of a pair of sockets, non-blocking; false: errno says why not.
bool MakeSocketPair(UniqueFd& one, UniqueFd& other);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_PIPE_H_
