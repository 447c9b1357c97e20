// What a thread that serves pipes waits for, by epoll.
//
// epoll knows a pipe's outer end by twice its number, and the inner one by one more.
#ifndef DDPRUN_RENDEZVOUS_SERVER_PIPE_WATCH_H_
#define DDPRUN_RENDEZVOUS_SERVER_PIPE_WATCH_H_

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/server/pipe.h"

namespace ddprun::rendezvous {

class PipeWatch {
 public:
  static constexpr uint32_t kUnwatched = ~0U;
  struct Watched {
    std::unique_ptr<Pipe> pipe;
    // What its ends are watched for.
    uint32_t outer_events = kUnwatched;
    uint32_t inner_events = kUnwatched;
  };

  PipeWatch();
  bool is_open() const { return epoll_.is_open(); }

  // False: errno says why not. `watched`: for which events it is watched already.
  bool Watch(int fd, uint64_t tag, uint32_t events, uint32_t* watched = nullptr);
  void Unwatch(int fd);
  // What came within `wait`; nothing after it.
  std::span<epoll_event> Wait(Duration wait);

  // Both ends, as far as they are open.
  bool Watch(uint64_t number, Watched& watched);
  void Unwatch(const Watched& watched);

  enum class Outcome {
    kGoesOn,
    kInnerClosed,  // what was said last may still go out; told once
    kOver,
  };
  // Carries what an event of one of its ends lets through.
  Outcome Serve(uint64_t tag, uint32_t events, TimePoint now, Watched& watched,
                std::vector<char>& scratch);

 private:
  const UniqueFd epoll_;
  std::vector<epoll_event> events_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_PIPE_WATCH_H_
