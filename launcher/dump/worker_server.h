// The server that a PyTorch program runs for whoever wants to look into it
// (torch.distributed.elastic.control_plane.worker_main).
#ifndef DDPRUN_LAUNCHER_DUMP_WORKER_SERVER_H_
#define DDPRUN_LAUNCHER_DUMP_WORKER_SERVER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// These ask one of the processes `pids` over the socket at `path` (a relative one is the first
// process's). The answer comes from a thread of the program's own, which needs neither ptrace nor
// Python's lock. An error where no server of these very processes listens there, or none answers by
// the deadline.

// The Python stacks, as Python's faulthandler prints them.
absl::StatusOr<std::string> AskStacks(const std::string& path, const std::vector<int>& pids,
                                      TimePoint deadline);

// PyTorch's flight recorders as JSON: the last collectives of each group. Empty: it has no such
// recorder, nothing has been recorded, or that one has not answered; an error where none has.
struct FlightRecords {
  std::string gloo;  // and whatever else records into PyTorch's default one
  std::string nccl;
};
absl::StatusOr<FlightRecords> AskFlightRecords(const std::string& path,
                                               const std::vector<int>& pids, TimePoint deadline);

// The two steps of each, for those who have the bytes. Whether what was read so far holds a whole
// answer: the server may leave the connection open behind it.
bool IsWholeAnswer(std::string_view answer);
// What stands behind the head of what the server at `path` has said to `handler`. An error where it
// has refused, does not know the handler (NotFound), or has said a part alone.
absl::StatusOr<std::string> ServerBody(const std::string& answer, const std::string& path,
                                       const char* handler);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DUMP_WORKER_SERVER_H_
