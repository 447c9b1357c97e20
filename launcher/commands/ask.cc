// `ddprun status`, `list`, `stop`, `logs`: what a running job answers, for a person or a program.
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/text.h"
#include "launcher/commands/ask_job.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/terminal.h"
#include "launcher/commands/top.h"
#include "launcher/commands/trust.h"
#include "launcher/control/control_client.h"
#include "launcher/control/control_socket.h"
#include "launcher/dump/dump_folder.h"
#include "launcher/process/exit_status.h"
#include "launcher/status/snapshot_json.h"
#include "launcher/status/status_text.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/core/text.h"

namespace ddprun::launcher {
namespace {

using nlohmann::json;
using rendezvous::StopHow;

constexpr int kExitUnhealthy = 1;
constexpr int kExitNotDone = 1;
constexpr int kExitCannotAsk = kExitUsage;
constexpr Duration kPatience = std::chrono::seconds(6);
constexpr Duration kDumpPatience = std::chrono::seconds(40);
constexpr int kFollowMs = 500;

TextOptions TextOptionsOf(const Environment& environment) {
  TextOptions options;
  winsize size{};
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  if (is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = size.ws_col;
  }
  const std::optional<std::string> no_color = environment.Get("NO_COLOR");
  options.allows_colours = is_terminal && (!no_color || no_color->empty());
  return options;
}

int Status(const AskOptions& options, const Environment& environment) {
  JobView job;
  if (options.coordinator) {
    const auto identity = IdentityOf(options.trust, environment.token);
    if (!identity.ok()) return Complain(identity.status(), kExitAuthentication);
    absl::StatusOr<JobView> seen = LookFromOutside(*options.coordinator, *identity);
    if (absl::IsUnauthenticated(seen.status())) {
      return Complain(seen.status(), kExitAuthentication);
    }
    if (!seen.ok()) return Complain(seen.status(), kExitCannotAsk);
    job = *std::move(seen);
    if (!options.job.empty() && options.job != job.run_id) {
      return Complain(
          absl::NotFoundError(absl::StrCat("the coordinator there serves the job ",
                                           Quoted(job.run_id), ", not ", Quoted(options.job))),
          kExitCannotAsk);
    }
  } else {
    absl::StatusOr<FoundJob> found = ChooseJob(options.job);
    if (!found.ok()) return Complain(found.status(), kExitCannotAsk);
    job = std::move(found->job);
  }
  const int printed = Print(options.is_json ? RenderJson(job, JsonForm::kIndented) + "\n"
                                            : StatusText(job, TextOptionsOf(environment)));
  if (printed != kExitSuccess) return printed;
  return job.is_healthy ? kExitSuccess : kExitUnhealthy;
}

int List(const AskOptions& options) {
  std::vector<std::string> troubles;
  const std::vector<FoundJob> jobs = FindJobs(troubles);
  if (absl::Status usable = CheckControlDirectories(); jobs.empty() && !usable.ok()) {
    troubles.emplace_back(usable.message());
  }
  for (const std::string& trouble : troubles) {
    Complain(absl::UnavailableError(trouble), kExitCannotAsk);
  }
  const int code = troubles.empty() ? kExitSuccess : kExitCannotAsk;
  if (options.is_json) {
    std::vector<ListedJob> listed;
    for (const FoundJob& found : jobs) listed.push_back({&found.job, found.socket_path});
    const int printed = Print(RenderListJson(listed) + "\n");
    return printed != kExitSuccess ? printed : code;
  }
  std::string text;
  for (const FoundJob& found : jobs) {
    const bool is_told = !found.job.is_healthy && !found.job.problems.empty();
    absl::StrAppend(&text, JobLine(found, jobs),
                    is_told ? "; " + found.job.problems.front().text : "", "\n");
  }
  if (jobs.empty() && troubles.empty()) {
    text = absl::StrCat("no job of yours runs ", WhereJobsAreSought(), "\n");
  }
  const int printed = Print(text);
  return printed != kExitSuccess ? printed : code;
}

// That member of an answer; "": it has none, or it is no text.
std::string TextIn(const json& body, const char* name) {
  const auto entry = body.find(name);
  return entry != body.end() && entry->is_string() ? entry->get<std::string>() : std::string();
}

// What the agent says of what it refuses.
absl::Status ErrorOf(const ControlReply& reply) {
  const std::string text = TextIn(json::parse(reply.body, nullptr, false), "error");
  return absl::UnavailableError(text.empty() ? absl::StrCat("it answers with HTTP ", reply.status)
                                             : EscapeControl(text));
}

// What an agent says of a stop order.
struct StopReply {
  std::string trouble;  // why other nodes may not hear of it; empty: the coordinator has heard it
  std::string ending;   // why the job ends without it; empty: it ends by it
};

// An error: the agent there does not answer, or refuses.
absl::StatusOr<StopReply> GiveStopOrder(const std::string& socket_path, StopHow how) {
  const absl::StatusOr<ControlReply> reply =
      AskControl(socket_path, "POST",
                 how == StopHow::kAfterStep ? "/stop?after_step=1"
                 : how == StopHow::kNow     ? "/stop?now=1"
                                            : "/stop",
                 kPatience);
  if (!reply.ok()) return reply.status();
  if (reply->status != 200) return ErrorOf(*reply);
  const json body = json::parse(reply->body, nullptr, false);
  return StopReply{TextIn(body, "trouble"), TextIn(body, "ending")};
}

int Stop(const AskOptions& options) {
  const bool is_after_step = options.stop_how == StopHow::kAfterStep;
  const absl::StatusOr<FoundJob> found = ChooseJob(options.job);
  if (!found.ok()) return Complain(found.status(), kExitCannotAsk);
  std::vector<absl::StatusOr<StopReply>> replies = {
      GiveStopOrder(found->socket_path, options.stop_how)};
  const auto is_heard = [](const absl::StatusOr<StopReply>& reply) {
    return reply.ok() && reply->trouble.empty();
  };
  if (!is_heard(replies.front())) {
    const std::vector<std::string>& others = found->other_sockets;
    replies.resize(1 + others.size());
    AtOnce(others.size(),
           [&](size_t i) { replies[1 + i] = GiveStopOrder(others[i], options.stop_how); });
  }
  const auto heard = std::find_if(replies.begin(), replies.end(), is_heard);
  if (heard != replies.end() && !(*heard)->ending.empty()) {
    const std::string ends = absl::StrCat("job ", EscapeControl(found->job.run_id),
                                          " ends already: ", EscapeControl((*heard)->ending));
    if (!is_after_step) return Print(ends + "\n");
    return Complain(
        absl::FailedPreconditionError(ends + "; its workers are not asked to save any more"),
        kExitNotDone);
  }
  if (heard != replies.end()) {
    return Print(absl::StrCat(is_after_step                       ? "asked job "
                              : options.stop_how == StopHow::kNow ? "killing job "
                                                                  : "stopping job ",
                              found->job.run_id,
                              is_after_step ? " for a graceful stop, after its step\n" : "\n"));
  }
  std::set<std::string> troubles(found->troubles.begin(), found->troubles.end());
  int agents = 0;
  for (const absl::StatusOr<StopReply>& reply : replies) {
    troubles.emplace(reply.ok() ? reply->trouble : std::string(reply.status().message()));
    if (reply.ok()) ++agents;
  }
  const std::string why = absl::StrJoin(troubles, "; ");
  if (agents == 0) return Complain(absl::UnavailableError(EscapeControl(why)), kExitCannotAsk);
  return Complain(absl::UnavailableError(absl::StrCat(
                      "stop job ", EscapeControl(found->job.run_id), ": ", EscapeControl(why), "; ",
                      rendezvous::Counted(agents, "agent"), " of the job on this machine ",
                      agents == 1 ? "has" : "have",
                      " the order, and nodes elsewhere may run on: give the same command there")),
                  kExitNotDone);
}

// For a terminal a worker's control characters are made visible: they could steer it.
std::string ForReader(const std::string& text) {
  if (isatty(STDOUT_FILENO) != 1) return text;
  std::string shown;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    absl::StrAppend(&shown, EscapeControl(line), end < text.size() ? "\n" : "");
    begin = end + 1;
  }
  return shown;
}

// Of a job that has not formed a round yet nobody knows which ranks it will have.
absl::Status CheckRank(const char* command, int rank, const JobView& job) {
  if (rank < job.world_size || job.world_size == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      command, ": there is no rank ", rank, " in this job, which has ",
      job.world_size == 1 ? "rank 0 alone" : absl::StrCat("ranks 0 to ", job.world_size - 1)));
}

int Logs(const AskOptions& options) {
  const absl::StatusOr<FoundJob> found = ChooseJob(options.job);
  if (!found.ok()) return Complain(found.status(), kExitCannotAsk);
  const absl::Status exists = CheckRank("logs", *options.rank, found->job);
  if (!exists.ok()) return Complain(exists, kExitCannotAsk);
  uint64_t offset = 0;
  json round;  // of the worker that has written them
  for (bool is_first = true;; is_first = false) {
    if (!is_first) poll(nullptr, 0, kFollowMs);
    const absl::StatusOr<ControlReply> reply =
        AskControl(found->socket_path, "GET",
                   absl::StrCat("/logs?rank=", *options.rank, "&offset=", offset), kPatience);
    if (!is_first && absl::IsDeadlineExceeded(reply.status())) continue;  // it is suspended
    // The job is over.
    if (!reply.ok()) return is_first ? Complain(reply.status(), kExitCannotAsk) : kExitSuccess;
    const json body = json::parse(reply->body, nullptr, false);
    const bool is_output = reply->status == 200 && body.is_object() && body.contains("text") &&
                           body["text"].is_string() && body.value("offset", json()).is_number();
    if (!is_output) {
      if (is_first) return Complain(ErrorOf(*reply), kExitCannotAsk);
      continue;  // between two rounds there is no such rank
    }
    const json before = std::exchange(round, body.value("round", json()));
    const bool is_another = !is_first && (round != before || body["offset"] < offset);
    // Another worker writes now: all of that.
    if (is_another && std::exchange(offset, 0) > 0) continue;
    if (is_first && body.value("has_stdout", json()) == false) {
      std::fputs(
          "ddprun: this is stderr alone: the rank's stdout goes where ddprun's own goes; start the "
          "job with --tee 3 or --redirects 3 to have it here\n",
          stderr);
    }
    const int printed = Print(ForReader(body["text"].get<std::string>()));
    if (printed != kExitSuccess || !options.follows) return printed;
    offset = body["offset"].get<uint64_t>();
  }
}

int Dump(const AskOptions& options) {
  const absl::StatusOr<FoundJob> found = ChooseJob(options.job);
  if (!found.ok()) return Complain(found.status(), kExitCannotAsk);
  for (const int rank : options.ranks) {
    const absl::Status exists = CheckRank("dump", rank, found->job);
    if (!exists.ok()) return Complain(exists, kExitCannotAsk);
  }
  // The agent has a working directory of its own.
  const std::string wanted = options.directory.empty() ? "." : options.directory;
  std::error_code error;
  std::filesystem::create_directories(wanted, error);
  if (error) {
    return Complain(
        absl::ErrnoToStatus(error.value(), absl::StrCat("dump: make the folder ", Quoted(wanted))),
        kExitCannotAsk);
  }
  const std::unique_ptr<char, decltype(&std::free)> directory(realpath(wanted.c_str(), nullptr),
                                                              &std::free);
  if (directory == nullptr) {
    return Complain(absl::ErrnoToStatus(errno, absl::StrCat("find the folder ", Quoted(wanted))),
                    kExitCannotAsk);
  }
  if (isatty(STDERR_FILENO) == 1) {
    std::fprintf(stderr, "ddprun: reading stacks, for up to %d s where nodes do not answer\n",
                 static_cast<int>(kDumpPatience / std::chrono::seconds(1)));
  }
  const absl::StatusOr<ControlReply> reply =
      AskControl(found->socket_path, "POST",
                 absl::StrCat("/dump?dir=", QueryValue(directory.get()),
                              "&ranks=", absl::StrJoin(options.ranks, "%2C")),
                 kDumpPatience);
  if (!reply.ok()) return Complain(reply.status(), kExitCannotAsk);
  const json body = json::parse(reply->body, nullptr, false);
  if (reply->status != 200 || !body.is_object()) return Complain(ErrorOf(*reply), kExitCannotAsk);
  if (TextIn(body, "sentence").empty()) {
    return Complain(absl::UnavailableError(EscapeControl(TextIn(body, "error"))), kExitUnhealthy);
  }
  const std::string folder = EscapeControl(TextIn(body, "folder"));
  const int printed = Print(absl::StrCat(
      EscapeControl(TextIn(body, "sentence")), "\n",
      folder.empty() ? ""
                     : DumpPlaceText(folder, EscapeControl(TextIn(body, "why_there"))) + "\n"));
  if (TextIn(body, "error").empty()) return printed;
  return Complain(absl::UnavailableError(EscapeControl(TextIn(body, "error"))), kExitUnhealthy);
}

}  // namespace

int RunAsk(const AskOptions& options, const Environment& environment) {
  Warn(options.warnings);
  switch (options.what) {
    case AskOptions::What::kStatus:
      return Status(options, environment);
    case AskOptions::What::kTop:
      return RunTop(options, environment);
    case AskOptions::What::kList:
      return List(options);
    case AskOptions::What::kStop:
      return Stop(options);
    case AskOptions::What::kLogs:
      return Logs(options);
    case AskOptions::What::kDump:
      return Dump(options);
  }
  return kExitBug;
}

}  // namespace ddprun::launcher
