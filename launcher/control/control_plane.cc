#include "launcher/control/control_plane.h"

#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/status/snapshot_json.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

using nlohmann::json;

constexpr Duration kSocketTimeout = std::chrono::seconds(5);
constexpr Duration kNodePatience = std::chrono::milliseconds(2500);
constexpr Duration kLogPatience = std::chrono::milliseconds(500);
// What another node is answered; a message of the agents' streams holds 256 KiB, and one that is
// larger would break them.
constexpr size_t kMaxAnswerBytes = 192 * 1024;
constexpr char kJson[] = "application/json";

HttpReply Error(int status, const std::string& text) {
  return {.status = status, .type = kJson, .body = json{{"error", text}}.dump() + "\n"};
}

// A query's number; -1: it is none.
int64_t NumberIn(const HttpRequest& request, const std::string& name, int64_t fallback) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return fallback;
  int64_t number = -1;
  return absl::SimpleAtoi(found->second, &number) && number >= 0 ? number : -1;
}

std::string LogsQuestion(int rank, int64_t from) { return absl::StrCat("logs ", rank, " ", from); }

// What the user's own program wrote, for another process: bytes that are not UTF-8 become U+FFFD.
std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

ControlPlane::ControlPlane(boost::asio::io_context& io, std::string host, JobWatch& watch,
                           LogRouter& logs, Hooks hooks)
    : io_(io),
      host_(std::move(host)),
      watch_(watch),
      logs_(logs),
      hooks_(std::move(hooks)),
      server_(io, [this](const HttpRequest& request,
                         HttpServer::Answer answer) { Handle(request, std::move(answer)); }),
      thread_(io) {}

void ControlPlane::Start() {
  using Made = absl::StatusOr<std::shared_ptr<ControlSocket>>;
  thread_.Ask<Made>(
      "control socket", "the directory of the control socket", kSocketTimeout,
      []() -> Made {
        absl::StatusOr<ControlSocket> made = ListenForControl();
        if (!made.ok()) return made.status();
        return std::make_shared<ControlSocket>(*std::move(made));
      },
      [this](std::optional<Made> made) {
        if (has_ended_) return;
        if (!made || !made->ok()) {
          const std::string why =
              made ? std::string(made->status().message()) : "the file system does not answer";
          return hooks_.say(
              absl::StrCat("warning: `ddprun status` and the like do not reach this "
                           "job: ",
                           EscapeControl(why)));
        }
        socket_path_ = (**made)->path;
        server_.Listen(std::move((**made)->listening), true);
      });
}

void ControlPlane::Handle(const HttpRequest& request, HttpServer::Answer answer) {
  if (has_ended_) return answer(Error(503, "the job is ending"));
  const bool is_post = request.method == "POST";
  if (request.path == "/status.json" && !is_post) return GiveStatus(request.is_local, answer);
  if (request.path == "/logs" && !is_post) return GiveLogs(request, answer);
  if (request.path == "/stop" && is_post && request.is_local) return GiveStop(request, answer);
  answer(Error(404, "nothing is known by this name here"));
}

void ControlPlane::GiveStatus(bool is_private, HttpServer::Answer answer) {
  watch_.Look([answer, is_private](const std::shared_ptr<const JobSnapshot>& snapshot) {
    if (snapshot == nullptr) {
      return answer(Error(503, "this node's /proc does not answer, or the job is ending"));
    }
    JobView job = snapshot->job;
    if (!is_private) HidePrivate(job);
    answer({.type = kJson, .body = RenderJson(job) + "\n"});
  });
}

void ControlPlane::GiveStop(const HttpRequest& request, HttpServer::Answer answer) {
  const bool is_after_step = request.query.contains("after_step");
  hooks_.stop({is_after_step, absl::StrCat("ddprun stop on node ", host_)});
  answer({.type = kJson, .body = "{}\n"});
}

void ControlPlane::GiveLogs(const HttpRequest& request, HttpServer::Answer answer) {
  const int64_t rank = NumberIn(request, "rank", -1), from = NumberIn(request, "offset", 0);
  if (rank < 0 || rank > INT32_MAX || from < 0) {
    return answer(Error(400, "expected rank=NUMBER and, if need be, offset=NUMBER"));
  }
  if (!request.is_local) return answer(Error(403, "log lines are not shown here"));
  const std::string body = LogsQuestion(static_cast<int>(rank), from);
  const auto give = [answer, rank](std::optional<std::string> text) {
    if (text) return answer({.type = kJson, .body = *text + "\n"});
    answer(Error(504, absl::StrCat("the node of rank ", rank, " does not answer")));
  };
  const rendezvous::Assignment& here = watch_.record().assignment();
  const bool is_here = watch_.record().workers().contains(static_cast<int>(rank) - here.first_rank);
  if (is_here) return AnswerHere(body, give);
  AskNodeOf(static_cast<int>(rank), body, give);
}

void ControlPlane::AskNodeOf(int rank, const std::string& body,
                             std::function<void(std::optional<std::string>)> then) {
  watch_.Look([this, rank, body, then](const std::shared_ptr<const JobSnapshot>& snapshot) {
    if (snapshot == nullptr || has_ended_) return then(std::nullopt);
    for (const NodeView& node : snapshot->job.nodes) {
      for (const RankView& view : node.ranks) {
        if (view.rank == rank) return AskNode(node.id, body, then);
      }
    }
    const std::string why =
        absl::StrCat("there is no rank ", rank, " in this job, or its node does not answer");
    then(json{{"error", why}}.dump());
  });
}

void ControlPlane::AskNode(const std::string& node_id, const std::string& body,
                           std::function<void(std::optional<std::string>)> then) {
  const uint64_t id = ++last_id_;
  Asking& asking = asking_[id];
  asking.then = std::move(then);
  asking.timer = std::make_unique<boost::asio::steady_timer>(io_, kNodePatience);
  asking.timer->async_wait([this, id](const boost::system::error_code& error) {
    if (error) return;
    const auto asked = asking_.extract(id);
    if (!asked.empty()) asked.mapped().then(std::nullopt);
  });
  hooks_.ask({.id = id, .to = NodeId{node_id}, .body = body});
}

void ControlPlane::Answered(const rendezvous::GiveAnswers& part) {
  const auto found = asking_.find(part.id);
  if (found == asking_.end()) return watch_.Answered(part);
  Asking& asking = found->second;
  if (!part.answers.empty()) {
    asking.answer = part.answers.front().body;
    asking.is_answered = true;
  }
  if (!part.is_last) return;
  const auto asked = asking_.extract(found);
  const Asking& done = asked.mapped();
  done.then(done.is_answered ? std::optional(done.answer) : std::nullopt);
}

void ControlPlane::Asked(uint64_t id, const std::string& body) {
  if (has_ended_) return;
  if (body == rendezvous::kPublicQuestion) return watch_.Asked(id, false);
  if (body == kPrivateQuestion) return watch_.Asked(id, true);
  AnswerHere(body, [this, id](const std::string& answer) { hooks_.answer(id, answer); });
}

void ControlPlane::AnswerHere(const std::string& body, std::function<void(std::string)> then) {
  const std::vector<std::string> words = absl::StrSplit(body, ' ');
  int rank = 0;
  uint64_t from = 0;
  const bool is_logs = words.size() == 3 && words[0] == "logs" &&
                       absl::SimpleAtoi(words[1], &rank) && absl::SimpleAtoi(words[2], &from);
  if (!is_logs) return then(json{{"error", "this node's ddprun does not know that"}}.dump());
  const int local_rank = rank - watch_.record().assignment().first_rank;
  thread_.Ask<RecentOutput>(
      "recent output", "the workers' output", 2 * kLogPatience,
      [&logs = logs_, local_rank, from] { return logs.Recent(local_rank, from, kLogPatience); },
      [rank, then](std::optional<RecentOutput> output) {
        if (!output) return then(json{{"error", "the log thread does not answer"}}.dump());
        json answer = {{"rank", rank},
                       {"offset", output->end},
                       {"is_kept", output->is_kept},
                       {"has_stdout", output->has_stdout},
                       {"text", output->text}};
        std::string written = Dump(answer);
        // A control character takes six bytes.
        while (written.size() > kMaxAnswerBytes) {
          output->text.erase(0, CharacterStart(output->text, output->text.size() / 2));
          answer["text"] = output->text;
          written = Dump(answer);
        }
        then(std::move(written));
      });
}

void ControlPlane::Publish(const JobSnapshot&) {}

void ControlPlane::End() {
  if (std::exchange(has_ended_, true)) return;
  server_.Close();
  asking_.clear();
  if (socket_path_.empty()) return;
  thread_.Ask<bool>(
      "control socket", socket_path_, kSocketTimeout,
      [path = socket_path_] {
        RemoveControlSocket(path);
        return true;
      }, [](std::optional<bool>) {});
}

}  // namespace ddprun::launcher
