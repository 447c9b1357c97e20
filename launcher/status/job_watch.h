// Looks at this node's workers, and from the node of rank 0 at the whole job: what status shows,
// and what is said when something hangs.
//
// Everything here happens on the io_context's thread, which never waits: a worker's counters are
// memory, /proc and cgroups are read and snapshots are judged on a file thread, other nodes are
// asked over the agents' streams. Nobody who asks costs more than one look a second.
#ifndef DDPRUN_LAUNCHER_STATUS_JOB_WATCH_H_
#define DDPRUN_LAUNCHER_STATUS_JOB_WATCH_H_

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/file_thread.h"
#include "launcher/status/assemble_job.h"
#include "launcher/status/job_judge.h"
#include "launcher/status/node_facts.h"
#include "launcher/status/node_record.h"
#include "launcher/status/rank_counts.h"
#include "launcher/status/rank_page.h"
#include "launcher/status/snapshot.h"
#include "launcher/status/torch_reader.h"
#include "rendezvous/base/time.h"
#include "rendezvous/client/rendezvous_client.h"

namespace ddprun::launcher {

// One look at the job, judged.
struct JobSnapshot {
  JobView job;
  TimePoint at{};
};

class JobWatch {
 public:
  struct Options {
    NodeRecord::Part part;
    JudgePolicy policy;
    bool is_alone = false;             // no other node can be in the job
    std::vector<std::string> folders;  // in which the job writes: their disks are looked at
    Duration interval = std::chrono::seconds(1);
  };
  struct Hooks {
    // Asks all nodes of the job; Answered() follows, or nothing does.
    std::function<void(const rendezvous::Question& question)> ask;
    std::function<void(uint64_t id, const std::string& body)> answer;
    // One line for the user.
    std::function<void(const std::string& text)> say;
    // A hang stands: at every look at which it does.
    std::function<void(const HangFound& hang, const JobView& job)> on_hang;
    // A new look, for who has subscribed (set_viewers).
    std::function<void(const std::shared_ptr<const JobSnapshot>& snapshot)> on_look;
    // All ranks of this node have made their first step of the round, the last of them so long ago
    // by its own word.
    std::function<void(double ago_s)> on_first_step;
    // The last line that a local rank wrote, and when (none: it has written nothing), in that time;
    // any thread.
    struct LastLine {
      std::string text;
      std::optional<TimePoint> at;
    };
    std::function<LastLine(int local_rank, Duration timeout)> last_line;
  };
  // null: it could not be had in time.
  using Answer = std::function<void(std::shared_ptr<const JobSnapshot> snapshot)>;

  JobWatch(boost::asio::io_context& io, Options options, Hooks hooks);
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // What the agent's core hears and does.
  void Note(const AgentEvent& event);
  void Note(const AgentAction& action);
  // Of the workers that are started next, by local rank: their pages (null: one has none), and the
  // sockets of PyTorch's worker servers ("": likewise).
  void BeginRound(std::vector<std::shared_ptr<RankPage>> pages,
                  std::vector<std::string> server_sockets);
  void WorkerRuns(int local_rank, int pid);
  // How far the worker has come, also one that is dead.
  RankProgress ProgressOf(int local_rank) const;

  // The job as it is, not older than a second. `answer` comes later, within 6 s; within
  // one where all nodes and /proc answer.
  void Look(Answer answer);
  // Another node, or somebody from outside, asks for this node's view.
  void Asked(uint64_t id, bool is_private);
  void Answered(const rendezvous::GiveAnswers& part);
  // Whether somebody follows every look: then there is one each second.
  void set_viewers(size_t count);
  // No look is taken any more.
  void End();
  // The closing line on where the time went; empty: not worth one, or nothing was seen.
  const std::string& closing_line() const { return closing_line_; }
  const NodeRecord& record() const { return record_; }
  // After End().
  bool is_idle() const {
    return thread_.is_idle() && disk_thread_.is_idle() && facts_->are_gpus_idle();
  }

 private:
  struct Rank {
    std::shared_ptr<RankPage> page;  // null: none
    RankHistory history;
  };
  struct Judging;  // of the file thread
  // A look that is under way.
  struct UnderWay {
    uint64_t id = 0;
    bool has_own = false, has_others = false;
    NodeView own;
    rendezvous::GiveAnswers others;
    std::vector<Answer> answers;
  };
  void Tick();
  void TickLater();
  void LookAtPages();
  void LookAtDisks();
  bool IsLookDue(TimePoint now) const;
  // Adds what the kernel tells to what is known here, on the file thread, and hands it to `then`.
  void ViewOwn(std::function<void(std::optional<NodeView> view)> then);
  void JudgeWhenComplete();
  void Finish(std::optional<std::shared_ptr<const JobSnapshot>> snapshot);

  boost::asio::io_context& io_;
  const Options options_;
  const Hooks hooks_;
  NodeRecord record_;
  std::map<int, Rank> ranks_;  // by local rank
  boost::asio::steady_timer tick_timer_;
  boost::asio::steady_timer others_timer_;
  std::shared_ptr<NodeFacts> facts_;  // the file thread's
  std::shared_ptr<TorchReader> torch_ = std::make_shared<TorchReader>(std::vector<std::string>{});
  std::shared_ptr<Judging> judging_;  // likewise
  FileThread thread_;
  FileThread disk_thread_;  // a network file system may hang
  std::vector<Problem> disk_problems_;
  TimePoint disks_again_at_{};
  std::optional<UnderWay> look_;
  std::shared_ptr<const JobSnapshot> last_;
  std::map<uint64_t, bool> questions_;  // others', of which the answer is being made
  uint64_t last_id_ = 0;
  size_t viewers_ = 0;
  Duration judging_took_{0};    // the last time
  bool was_news_heard_ = true;  // of the last judgement
  bool has_told_first_step_ = false;
  bool has_ended_ = false;
  std::string closing_line_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_JOB_WATCH_H_
