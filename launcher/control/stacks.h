// The stacks of this node's workers, for `ddprun dump` and for what is said of a hang.
//
// On the io_context's thread; tools that read stacks run on a thread of their own, with a deadline.
#ifndef DDPRUN_LAUNCHER_CONTROL_STACKS_H_
#define DDPRUN_LAUNCHER_CONTROL_STACKS_H_

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/file_thread.h"
#include "launcher/dump/dump_folder.h"
#include "launcher/dump/roll_call.h"
#include "launcher/status/node_record.h"

namespace ddprun::launcher {

class Stacks {
 public:
  struct Options {
    std::string run_id, host;
    std::string tool_path;      // $PATH of the agent
    std::string flight_folder;  // DumpRequest's
    std::vector<std::string> other_places{};
  };
  // For all ranks of a node together.
  static constexpr Duration kPatience = std::chrono::seconds(10);

  // The record is borrowed.
  Stacks(boost::asio::io_context& io, Options options, const NodeRecord& record);

  // Of the ranks named, if they run here; of all for no name. `then` gets an answer within
  // kPatience and a few seconds; none: the kernel holds the thread.
  using Ranks = std::set<int>;
  void Read(const Ranks& ranks, std::function<void(std::optional<std::vector<RankStack>>)> then);
  // The same into a new folder `path`, or in another place, with all else that is known of them.
  void Dump(const std::string& path, const Ranks& ranks,
            std::function<void(std::optional<DumpResult>)> then);
  // Adds what other nodes have told (StacksToJson) to the folder of `own`, if it has one, and the
  // roll call of all, those of `ranks` (none: of the job) of which nobody has told among them.
  // "": written; else the error. `sentence` is what it says.
  struct Whole {
    std::string error;
    std::string sentence;
  };
  void Complete(const Ranks& ranks, DumpResult own, std::vector<std::string> others,
                std::function<void(std::optional<Whole>)> then);
  bool is_idle() const { return thread_.is_idle(); }

 private:
  std::vector<DumpProcess> Processes(const Ranks& ranks) const;

  const Options options_;
  const NodeRecord& record_;
  FileThread thread_;
};

// What nodes tell each other of their ranks' stacks; at most rendezvous::kMaxAnswerBytes, for which
// stacks are cut. Parsing takes what is well-formed and bounds it.
std::string StacksToJson(const std::vector<RankStack>& stacks);
std::vector<RankStack> StacksFromJson(const std::string& text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONTROL_STACKS_H_
