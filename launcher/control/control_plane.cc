#include "launcher/control/control_plane.h"

#include <sys/random.h>

#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/dashboard/page.h"
#include "launcher/metrics/metrics_text.h"
#include "launcher/status/snapshot_json.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/net/listening_socket.h"

namespace ddprun::launcher {
namespace {

using nlohmann::json;

constexpr Duration kSocketTimeout = std::chrono::seconds(5);
constexpr Duration kNodePatience = std::chrono::milliseconds(2500);
constexpr Duration kRenderPatience = std::chrono::seconds(5);
// Less than the 6 s of the command.
constexpr Duration kStopPatience = std::chrono::seconds(4);
constexpr char kNoSnapshot[] = "this node's /proc does not answer, or the job is ending";
constexpr char kJson[] = "application/json";
constexpr char kPageDoor[] = "dashboard";
constexpr char kMetricsDoor[] = "metrics";
constexpr char kPrivateChannel[] = "private";
constexpr char kPublicChannel[] = "public";

// Texts of others may be no UTF-8.
std::string Dumped(const json& body) {
  return body.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

HttpReply Error(int status, const std::string& text) {
  return {.status = status, .type = kJson, .body = Dumped({{"error", text}})};
}

HttpReply StopReply(const AnswerStop& answer) {
  json body = json::object();
  if (!answer.trouble.empty()) body["trouble"] = answer.trouble;
  if (!answer.ending.empty()) body["ending"] = answer.ending;
  return {.type = kJson, .body = Dumped(body)};
}

// A query's number; -1: it is none.
int64_t NumberIn(const HttpRequest& request, const std::string& name, int64_t fallback) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return fallback;
  int64_t number = -1;
  return absl::SimpleAtoi(found->second, &number) && number >= 0 ? number : -1;
}

std::string LogsQuestion(int rank, int64_t from) { return absl::StrCat("logs ", rank, " ", from); }

// "": the system gives no random bits, and nobody sees more than strangers do.
std::string NewKey() {
  uint64_t random[2] = {};
  while (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    if (errno != EINTR) return "";
  }
  return absl::StrCat(absl::Hex(random[0], absl::kZeroPad16),
                      absl::Hex(random[1], absl::kZeroPad16));
}

// "/KEY/...". In a time that tells nothing of how much of the key is right.
bool BeginsWithKey(const std::string& path, const std::string& key) {
  if (key.empty() || path.size() < key.size() + 2 || path[key.size() + 1] != '/') return false;
  unsigned difference = 0;
  for (size_t i = 0; i < key.size(); ++i) {
    difference |= static_cast<unsigned char>(path[i + 1]) ^ static_cast<unsigned char>(key[i]);
  }
  return difference == 0;
}

// As old as it is by now.
std::string Render(const JobSnapshot& snapshot, bool is_private) {
  JobView job = snapshot.job;
  const double age_s = std::chrono::duration<double>(SteadyNow() - snapshot.at).count();
  for (NodeView& node : job.nodes) node.age_s += age_s;
  if (!is_private) HidePrivate(job);
  return RenderJson(job);
}

// Nobody can open such an address.
bool IsEverywhere(const std::string& host) {
  return host.empty() || host == "0.0.0.0" || host == "::";
}

}  // namespace

ControlPlane::ControlPlane(boost::asio::io_context& io, Options options, JobWatch& watch,
                           LogRouter& logs, Hooks hooks)
    : io_(io),
      options_(std::move(options)),
      watch_(watch),
      logs_(logs),
      hooks_(std::move(hooks)),
      server_(io, [this](const HttpRequest& request,
                         HttpServer::Answer answer) { Handle(request, std::move(answer)); }),
      thread_(io),
      texts_(thread_),
      stacks_(io, options_.stacks, watch.record()),
      key_(NewKey()) {}

void ControlPlane::Start() {
  using Made = absl::StatusOr<std::shared_ptr<ControlSocket>>;
  socket_path_ = std::make_shared<std::string>();
  thread_.Ask<Made>(
      "control socket", "the directory of the control socket", kSocketTimeout,
      [path = socket_path_]() -> Made {
        absl::StatusOr<ControlSocket> made = ListenForControl();
        if (!made.ok()) return made.status();
        *path = made->path;
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
        server_.Listen(std::move((**made)->listening), true);
      });
}

void ControlPlane::ServeDashboard(UniqueFd listening, const std::string& host) {
  const uint16_t port = rendezvous::LocalPort(listening.get());
  has_page_ = true;
  const std::string shown = IsEverywhere(host) ? options_.host : host;
  server_.Listen(std::move(listening), false, {options_.host, host}, kPageDoor);
  hooks_.say(absl::StrCat("dashboard: http://", EndpointText(shown, port), "/", key_,
                          "/ (without the last part it shows no log lines)"));
}

void ControlPlane::ServeMetrics(UniqueFd listening, const std::string& host) {
  const uint16_t port = rendezvous::LocalPort(listening.get());
  const std::string shown = IsEverywhere(host) ? options_.host : host;
  server_.Listen(std::move(listening), false, {options_.host, host}, kMetricsDoor);
  hooks_.say(absl::StrCat("metrics: http://", EndpointText(shown, port), "/metrics"));
}

void ControlPlane::Handle(const HttpRequest& request, HttpServer::Answer answer) {
  if (has_ended_) return answer(Error(503, "the job is ending"));
  if (request.path == "/metrics" && request.method == "GET") {
    return GiveMetrics(request, std::move(answer));
  }
  if (request.is_local) return HandleControl(request, std::move(answer));
  if (request.door == kPageDoor) return HandlePage(request, std::move(answer));
  answer(Error(404, "here are /metrics alone"));
}

void ControlPlane::HandleControl(const HttpRequest& request, HttpServer::Answer answer) {
  const bool is_get = request.method == "GET", is_post = request.method == "POST";
  if (request.path == "/status.json" && is_get) return GiveStatus(true, std::move(answer));
  if (request.path == "/logs" && is_get) return GiveLogs(request, true, std::move(answer));
  if (request.path == "/stop" && is_post) return GiveStop(request, std::move(answer));
  if (request.path == "/dump" && is_post) return GiveDump(request, std::move(answer));
  answer(Error(404, "nothing is known by this name here"));
}

void ControlPlane::HandlePage(HttpRequest request, HttpServer::Answer answer) {
  const bool is_private = BeginsWithKey(request.path, key_);
  if (is_private) request.path.erase(0, 1 + key_.size());
  if (request.path == "/") {
    return answer({.type = "text/html; charset=utf-8", .body = kDashboardPage});
  }
  if (request.path == "/status.json") return GiveStatus(is_private, std::move(answer));
  if (request.path == "/events") return GiveEvents(is_private, std::move(answer));
  if (request.path == "/logs") return GiveLogs(request, is_private, std::move(answer));
  answer(Error(404, "nothing is known by this name here"));
}

void ControlPlane::GiveStatus(bool is_private, HttpServer::Answer answer) {
  watch_.Look([this, answer, is_private](const std::shared_ptr<const JobSnapshot>& snapshot) {
    const auto give = [answer](std::optional<std::string> text) {
      if (text) return answer({.type = kJson, .body = *std::move(text) + "\n"});
      answer(Error(503, kNoSnapshot));
    };
    if (snapshot == nullptr || has_ended_) return give(std::nullopt);
    texts_.Give(
        is_private ? "private" : "public", snapshot,
        [is_private](const JobSnapshot& of) { return Render(of, is_private); }, give);
  });
}

void ControlPlane::GiveEvents(bool is_private, HttpServer::Answer answer) {
  answer({.type = "text/event-stream",
          .body = absl::StrCat("retry: 1000\n\nevent: history\ndata: ", history_.Json(SteadyNow()),
                               "\n\n"),
          .channel = is_private ? kPrivateChannel : kPublicChannel});
  publish_again_at_ = TimePoint{};
  watch_.set_viewers(1);  // counted at the next look
  watch_.Look([this](const std::shared_ptr<const JobSnapshot>& snapshot) {
    if (snapshot != nullptr) Publish(snapshot);
  });
}

void ControlPlane::Publish(const std::shared_ptr<const JobSnapshot>& snapshot) {
  if (has_page_) history_.Add(snapshot->at, snapshot->job);
  const size_t insiders = server_.stream_count(kPrivateChannel);
  const size_t others = server_.stream_count(kPublicChannel);
  watch_.set_viewers(insiders + others);
  if (insiders + others == 0 || is_rendering_ || has_ended_) return;
  if (SteadyNow() < publish_again_at_) return;
  is_rendering_ = true;
  struct Rendered {
    std::shared_ptr<const std::string> insiders, others;
    Duration took{0};
  };
  thread_.Ask<Rendered>(
      "render", "the job's status", kRenderPatience,
      [snapshot, insiders, others] {
        const TimePoint began = SteadyNow();
        Rendered rendered;
        const auto event = [&](bool is_private) {
          return std::make_shared<const std::string>(
              absl::StrCat("event: status\ndata: ", Render(*snapshot, is_private), "\n\n"));
        };
        if (insiders > 0) rendered.insiders = event(true);
        if (others > 0) rendered.others = event(false);
        rendered.took = SteadyNow() - began;
        return rendered;
      },
      [this](std::optional<Rendered> rendered) {
        is_rendering_ = false;
        if (!rendered || has_ended_) return;
        // A job of many thousands of ranks is shown less often: at most a fiftieth of a core.
        publish_again_at_ = SteadyNow() + 50 * rendered->took - std::chrono::milliseconds(100);
        if (rendered->insiders) server_.Publish(kPrivateChannel, rendered->insiders);
        if (rendered->others) server_.Publish(kPublicChannel, rendered->others);
      });
}

void ControlPlane::GiveMetrics(const HttpRequest& request, HttpServer::Answer answer) {
  const bool is_open_metrics = AcceptsOpenMetrics(request.accept);
  watch_.Look([this, answer, is_open_metrics](const std::shared_ptr<const JobSnapshot>& snapshot) {
    const auto give = [answer, is_open_metrics](std::optional<std::string> text) {
      if (!text) return answer(Error(503, kNoSnapshot));
      answer({.type = std::string(MetricsContentType(is_open_metrics)), .body = *std::move(text)});
    };
    if (snapshot == nullptr || has_ended_) return give(std::nullopt);
    texts_.Give(
        is_open_metrics ? "openmetrics" : "metrics", snapshot,
        [is_open_metrics, id = watch_.record().node_id()](const JobSnapshot& of) {
          return MetricsText(of.job, id, {.is_open_metrics = is_open_metrics});
        },
        give);
  });
}

void ControlPlane::GiveStop(const HttpRequest& request, HttpServer::Answer answer) {
  using rendezvous::StopHow;
  const std::map<std::string, std::string> after_step = {{"after_step", "1"}}, now = {{"now", "1"}};
  const StopHow how = request.query == after_step ? StopHow::kAfterStep
                      : request.query == now      ? StopHow::kNow
                                                  : StopHow::kGracefully;
  if (how == StopHow::kGracefully && !request.query.empty()) {
    return answer(Error(400, "expected no query, after_step=1 or now=1"));
  }
  const uint64_t id = ++last_id_;
  auto timer = std::make_unique<boost::asio::steady_timer>(io_, kStopPatience);
  timer->async_wait([this, id](const boost::system::error_code& error) {
    if (error) return;
    const auto asker = stop_askers_.find(id);
    if (asker == stop_askers_.end()) return;
    const auto give = std::move(asker->second.answer);
    stop_askers_.erase(asker);
    give(StopReply({.trouble = "the coordinator has not confirmed it in time"}));
  });
  stop_askers_[id] = {how == StopHow::kAfterStep, std::move(timer), std::move(answer)};
  hooks_.stop({how, absl::StrCat("ddprun stop on node ", options_.host)});
}

void ControlPlane::AnswerStops(const AnswerStop& answer) {
  auto askers = std::exchange(stop_askers_, {});
  for (auto& [id, asker] : askers) {
    if (asker.is_after_step || !answer.is_after_step) {
      asker.answer(StopReply(answer));
    } else {
      stop_askers_[id] = std::move(asker);
    }
  }
}

void ControlPlane::GiveLogs(const HttpRequest& request, bool is_private,
                            HttpServer::Answer answer) {
  const int64_t rank = NumberIn(request, "rank", -1), from = NumberIn(request, "offset", 0);
  if (rank < 0 || rank > INT32_MAX || from < 0) {
    return answer(Error(400, "expected rank=NUMBER and, if need be, offset=NUMBER"));
  }
  if (!is_private) {
    return answer(Error(403, "log lines are shown at the address that ddprun has printed"));
  }
  const std::string body = LogsQuestion(static_cast<int>(rank), from);
  const auto give = [answer, rank](std::optional<std::string> text) {
    if (text) return answer({.type = kJson, .body = *text + "\n"});
    answer(Error(504, absl::StrCat("the node of rank ", rank, " does not answer")));
  };
  const rendezvous::Assignment& here = watch_.record().assignment();
  const bool is_here = watch_.record().workers().contains(static_cast<int>(rank) - here.first_rank);
  if (is_here) return AnswerHere(body, give);
  AskNodeOf(static_cast<int>(rank), body, kNodePatience, give);
}

void ControlPlane::End() {
  if (std::exchange(has_ended_, true)) return;
  // What is small is written at once.
  AnswerStops({.trouble = "this node ended before the coordinator confirmed it"});
  server_.Close();
  asking_.clear();
  if (socket_path_ == nullptr) return;
  is_removing_ = true;
  // Behind what makes it, where the job ends so soon.
  thread_.Ask<bool>(
      "control socket", "the directory of the control socket", kSocketTimeout,
      [path = socket_path_] {
        if (!path->empty()) RemoveControlSocket(*path);
        return true;
      },
      [this](std::optional<bool>) {
        is_removing_ = false;
        if (const auto then = std::exchange(on_removed_, nullptr)) then();
      });
}

void ControlPlane::AwaitEnd(std::function<void()> then) {
  if (!is_removing_) return then();
  on_removed_ = std::move(then);
}

}  // namespace ddprun::launcher
