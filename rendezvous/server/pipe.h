// A connection to the rendezvous port that gRPC serves: what comes is counted, then carried to gRPC
// over a pair of sockets, and back.
//
// gRPC never has the connection itself, so that a stranger's frames cost what FrameLimits allows.
// The pipe holds at most what one turn has read, and reads on when that has gone out: each side
// feels how slow the other one is. Driven by the listener's thread.
#ifndef DDPRUN_RENDEZVOUS_SERVER_PIPE_H_
#define DDPRUN_RENDEZVOUS_SERVER_PIPE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/connection_table.h"
#include "rendezvous/wire/frame_limits.h"

namespace ddprun::rendezvous {

class Pipe {
 public:
  // Takes what comes over `outer`, a non-blocking socket, and enters it in `connections`, which
  // outlives the pipe. `for_grpc` is set to gRPC's end. Null: there was no descriptor for it
  // (errno is EMFILE or ENFILE), or the connection has been reset.
  static std::unique_ptr<Pipe> Open(UniqueFd outer, ConnectionTable& connections,
                                    UniqueFd& for_grpc);
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  // Carry what there is to gRPC, and from it. False: the connection is over.
  bool CarryIn(TimePoint now, std::vector<char>& scratch);
  bool CarryOut(std::vector<char>& scratch);
  // gRPC has closed its end. What it has said last goes out by CarryOut, and nothing else is read.
  void CloseInner(std::vector<char>& scratch);
  // What each end waits for: EPOLLIN, EPOLLOUT.
  uint32_t outer_events() const;
  uint32_t inner_events() const;
  int outer_fd() const { return outer_.get(); }
  int inner_fd() const { return inner_.get(); }
  // The other side has begun a call: it is no mere connection.
  bool has_call() const { return limits_.has_call(); }
  // An agent is at the other end, and gRPC at this one.
  bool has_joined() const { return connection_->has_joined && inner_.is_open(); }

 private:
  Pipe(UniqueFd outer, UniqueFd inner, std::string name, ConnectionTable& connections,
       std::shared_ptr<ConnectionTable::Connection> connection);

  const UniqueFd outer_;
  UniqueFd inner_;          // not open: gRPC has closed its end
  const std::string name_;  // of gRPC's end
  ConnectionTable& connections_;
  const std::shared_ptr<ConnectionTable::Connection> connection_;
  FrameLimits limits_;
  std::string inward_;   // read from the outer end, and not yet taken by the inner one
  std::string outward_;  // the other way
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_PIPE_H_
