// PyTorch's countdown timers (torch.distributed.elastic.timer): workers write what they begin and
// end into a FIFO that the agent made; a worker that has not ended it in time is killed. The job
// then goes the way of any failure: torchrun kills its agent as well.
//
// Lives on the io_context's thread. Whatever stands in the FIFO: only a process of this agent's own
// workers, or below them, is ever signalled.
#ifndef DDPRUN_LAUNCHER_AGENT_FILE_TIMERS_H_
#define DDPRUN_LAUNCHER_AGENT_FILE_TIMERS_H_

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/system_timer.hpp>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// One line of the FIFO: {"version", "pid", "scope_id", "expiration_time", "signal"}.
struct TimerRequest {
  int pid = 0;
  std::string scope;
  double expires = 0;  // Unix time in seconds; negative: the timer is released
  int signal = 0;      // 0 or less: nobody is killed
  friend bool operator==(const TimerRequest&, const TimerRequest&) = default;
};

// What a client may write at once (PIPE_BUF), and so the longest line that means something.
inline constexpr size_t kMaxTimerLine = 4096;

// Nothing for a line that is no request.
std::optional<TimerRequest> ParseTimerRequest(std::string_view line);

// The scope as it stands in a message: of a long one the beginning, whole characters, and "...".
std::string ShortScope(const std::string& scope);

// Where the FIFO stands, if this agent is to make one: TORCHELASTIC_ENABLE_FILE_TIMER=1 asks for
// it. TORCHELASTIC_TIMER_FILE names the path, except below another ddprun: there it is that one's.
std::optional<std::string> TimerFileOf(const Environment& environment);

// Makes the FIFO, in place of one that an earlier agent left. An error is this machine's and one
// line. Like all work on files, not on the agent's thread.
absl::StatusOr<UniqueFd> MakeTimerFile(const std::string& path);
// Removes a FIFO that stands there. False: it could not.
bool RemoveTimerFile(const std::string& path);

class FileTimers {
 public:
  using Say = std::function<void(const std::string& line)>;
  // A timer has expired; `is_kill`: its process has just been signalled.
  using Expired = std::function<void(const TimerRequest& timer, bool is_kill)>;

  // `fifo` was made by MakeTimerFile; whoever made it removes it.
  FileTimers(boost::asio::io_context& io, UniqueFd fifo, Say say, Expired expired)
      : say_(std::move(say)), expired_(std::move(expired)), fifo_(io, fifo.Release()), alarm_(io) {
    Read();
  }
  FileTimers(const FileTimers&) = delete;
  FileTimers& operator=(const FileTimers&) = delete;

  // A worker lives from here on, until it is gone.
  void WorkerRuns(int pid) { workers_.insert(pid); }
  // "; its timer 'x' had expired" when that is why it ended, else "".
  std::string WorkerIsGone(int pid);

 private:
  void Read();
  void Take(std::string_view bytes);
  void TakeLine(std::string_view line);
  void Arm();
  void Expire();
  void Kill(const TimerRequest& timer);
  // The worker to whose processes `pid` belongs; 0: none of ours.
  int WorkerOf(int pid) const;
  void Complain(const std::string& text);

  const Say say_;
  const Expired expired_;
  boost::asio::posix::stream_descriptor fifo_;
  boost::asio::system_timer alarm_;
  std::array<char, 16 * 1024> block_;
  std::string line_;          // the beginning of one
  bool is_skipping_ = false;  // what is left of a line that is too long
  std::map<std::pair<int, std::string>, TimerRequest> timers_;  // by pid and scope
  std::set<int> workers_;
  std::map<int, std::string> killed_;  // workers, with the scope of the timer
  int complaints_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_FILE_TIMERS_H_
