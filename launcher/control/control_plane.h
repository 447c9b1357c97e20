// What this node's agent answers: over its control socket, to this user; over TCP, to whoever looks
// (dashboard, metrics); and to the other nodes of the job, over the agents' streams, by which it
// asks them as well.
//
// On the io_context's thread, which it never holds up.
#ifndef DDPRUN_LAUNCHER_CONTROL_CONTROL_PLANE_H_
#define DDPRUN_LAUNCHER_CONTROL_CONTROL_PLANE_H_

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_events.h"
#include "launcher/agent/file_thread.h"
#include "launcher/control/control_socket.h"
#include "launcher/control/http_server.h"
#include "launcher/control/job_history.h"
#include "launcher/control/shared_text.h"
#include "launcher/control/stacks.h"
#include "launcher/logs/log_router.h"
#include "launcher/status/job_watch.h"

namespace ddprun::launcher {

class ControlPlane {
 public:
  struct Hooks {
    std::function<void(const StopOrder& order)> stop;
    std::function<void(const rendezvous::Question& question)> ask;
    std::function<void(uint64_t id, const std::string& body)> answer;
    // One line for the user.
    std::function<void(const std::string& text)> say;
  };
  struct Options {
    std::string host;
    bool is_alone = false;  // no other node can be in the job
    Stacks::Options stacks;
  };
  // Both are borrowed.
  ControlPlane(boost::asio::io_context& io, Options options, JobWatch& watch, LogRouter& logs,
               Hooks hooks);
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  // Serves the page, or the metrics, on a TCP socket that listens, and says where. `host` is how
  // the user called the address; empty: every one.
  void ServeDashboard(UniqueFd listening, const std::string& host);
  void ServeMetrics(UniqueFd listening, const std::string& host);
  // Opens the control socket, soon. Where it cannot be had the job runs on, and the user is told.
  void Start();
  // From the coordinator: a node's or a viewer's question, and the answers to ours.
  void Asked(uint64_t id, const std::string& body);
  void Answered(const rendezvous::GiveAnswers& part);
  // A look was taken.
  void Publish(const std::shared_ptr<const JobSnapshot>& snapshot);
  // To those who have asked for such a stop, and wait.
  void AnswerStops(const AnswerStop& answer);
  // What that rank does, in one phrase: "in train_step (train.py:41)"; "": it cannot be found out.
  void AskWhere(int rank, std::function<void(std::string where)> then);
  // The stacks of all ranks into a new folder in `directory`, or where that cannot be, in another
  // place; `then` gets a sentence for people.
  struct DumpDone {
    std::string folder;     // that was made; empty: none
    std::string why_there;  // why it is not in `directory`; empty: it is
    std::string sentence;
    std::string error;
  };
  void Dump(const std::string& directory, const Stacks::Ranks& ranks,
            std::function<void(DumpDone done)> then);
  // Takes no more questions, and begins to remove the socket.
  void End();
  // `then` once it is removed, or could not be in time: at once where there is none. After End().
  void AwaitEnd(std::function<void()> then);
  bool is_idle() const { return thread_.is_idle() && stacks_.is_idle(); }

 private:
  using Answers = std::vector<rendezvous::NodeAnswer>;
  struct Asking {
    Answers answers;
    std::unique_ptr<boost::asio::steady_timer> timer;
    std::function<void(Answers answers)> then;
  };
  // `ddprun stop`, until the coordinator has heard it.
  struct StopAsker {
    bool is_after_step = false;
    std::unique_ptr<boost::asio::steady_timer> timer;
    HttpServer::Answer answer;
  };
  void Handle(const HttpRequest& request, HttpServer::Answer answer);
  void HandleControl(const HttpRequest& request, HttpServer::Answer answer);
  void HandlePage(HttpRequest request, HttpServer::Answer answer);
  void GiveEvents(bool is_private, HttpServer::Answer answer);
  void GiveMetrics(const HttpRequest& request, HttpServer::Answer answer);
  void GiveStatus(bool is_private, HttpServer::Answer answer);
  void GiveStop(const HttpRequest& request, HttpServer::Answer answer);
  void GiveLogs(const HttpRequest& request, bool is_private, HttpServer::Answer answer);
  void GiveDump(const HttpRequest& request, HttpServer::Answer answer);
  // Asks the agent of the node that runs `rank`; `then` gets its words, or nothing in time.
  void AskNodeOf(int rank, const std::string& body, Duration patience,
                 std::function<void(std::optional<std::string> answer)> then);
  // Asks all nodes, or one; `then` gets what has come in time.
  void AskNodes(const std::string& node_id, const std::string& body, Duration patience,
                std::function<void(Answers answers)> then);
  void AnswerLogs(int rank, uint64_t from, std::function<void(std::string answer)> then);
  // What this node answers to `body`.
  void AnswerHere(const std::string& body, std::function<void(std::string answer)> then);

  boost::asio::io_context& io_;
  const Options options_;
  JobWatch& watch_;
  LogRouter& logs_;
  const Hooks hooks_;
  HttpServer server_;
  FileThread thread_;
  SharedText texts_;  // made by it
  Stacks stacks_;
  bool is_dumping_ = false;
  std::shared_ptr<std::string> socket_path_;  // the thread's; null: Start was not called
  // Who has it in the page's address sees what the workers write.
  const std::string key_;
  bool has_page_ = false;
  JobHistory history_;         // for the page
  bool is_rendering_ = false;  // for those who follow
  TimePoint publish_again_at_{};
  std::map<uint64_t, Asking> asking_;
  std::map<uint64_t, StopAsker> stop_askers_;
  uint64_t last_id_ = uint64_t{1} << 62;  // beyond the watch's own
  bool has_ended_ = false;
  bool is_removing_ = false;  // the socket
  std::function<void()> on_removed_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONTROL_CONTROL_PLANE_H_
