#include "launcher/commands/ask_job.h"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/cli/text.h"
#include "launcher/control/control_client.h"
#include "launcher/control/control_socket.h"
#include "launcher/status/assemble_job.h"
#include "launcher/status/job_judge.h"
#include "launcher/status/snapshot_json.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/look_on.h"

namespace ddprun::launcher {
namespace {

// A look takes an agent that is well less than a second, one that waits for silent nodes 3, and the
// rest of the time is for rendering a very large job.
constexpr Duration kPatience = std::chrono::seconds(8);
// Of several jobs those that do not answer even this within 2 s do not run: they are stopped.
constexpr Duration kWakePatience = std::chrono::seconds(2);
constexpr char kNothing[] = "/nothing";  // which is answered at once, that there is none

absl::StatusOr<JobView> AskForJob(const std::string& socket_path) {
  const absl::StatusOr<ControlReply> reply =
      AskControl(socket_path, "GET", "/status.json", kPatience);
  if (!reply.ok()) return reply.status();
  if (reply->status != 200) {
    return absl::UnavailableError(absl::StrCat("the ddprun behind ", EscapeControl(socket_path),
                                               " answers: ", EscapeControl(reply->body)));
  }
  return ParseJobJson(reply->body);
}

absl::StatusOr<JobView> AskIfAwake(const std::string& socket_path) {
  const absl::StatusOr<ControlReply> reply =
      AskControl(socket_path, "GET", kNothing, kWakePatience);
  return reply.ok() ? AskForJob(socket_path) : reply.status();
}

std::vector<absl::StatusOr<JobView>> AskAll(const std::vector<std::string>& paths) {
  std::vector<absl::StatusOr<JobView>> answers(paths.size());
  AtOnce(paths.size(), [&](size_t i) { answers[i] = AskIfAwake(paths[i]); });
  return answers;
}

// Two jobs may have the same id: "none", where none was given. Agents without a coordinator do not
// hear of one another.
bool IsSameJob(const JobView& a, const JobView& b) {
  if (a.run_id != b.run_id) return false;
  if (a.coordinator_silent_s && b.coordinator_silent_s &&
      std::tie(a.round, a.world_size, a.node_count) ==
          std::tie(b.round, b.world_size, b.node_count)) {
    return true;
  }
  return std::any_of(a.nodes.begin(), a.nodes.end(), [&b](const NodeView& node) {
    return std::any_of(b.nodes.begin(), b.nodes.end(),
                       [&node](const NodeView& other) { return other.id == node.id; });
  });
}

bool IsOfRank0(const JobView& job) {
  return !job.nodes.empty() && job.nodes.front().node_rank == 0 && job.nodes.front().age_s == 0;
}

}  // namespace

void AtOnce(size_t count, const std::function<void(size_t i)>& ask) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    const auto one = [&ask, i] { ask(i); };
    std::thread thread = StartQuietThread(one);
    thread.joinable() ? threads.push_back(std::move(thread)) : one();  // there is none left
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<FoundJob> FindJobs(std::vector<std::string>& troubles) {
  // Each agent, and with it those of its job that came before.
  std::vector<std::vector<FoundJob>> jobs;
  const std::vector<std::string> paths = FindControlSockets();
  std::vector<absl::StatusOr<JobView>> answers = AskAll(paths);
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!answers[i].ok()) {
      troubles.emplace_back(answers[i].status().message());
      continue;
    }
    std::vector<FoundJob> same = {{paths[i], *std::move(answers[i])}};
    std::erase_if(jobs, [&same](std::vector<FoundJob>& earlier) {
      const bool is_same =
          std::any_of(earlier.begin(), earlier.end(),
                      [&same](const FoundJob& one) { return IsSameJob(one.job, same.back().job); });
      if (is_same) same.insert(same.begin(), earlier.begin(), earlier.end());
      return is_same;
    });
    jobs.push_back(std::move(same));
  }
  std::vector<FoundJob> found;
  for (std::vector<FoundJob>& agents : jobs) {
    // Where rank 0 is the job has been watched.
    const auto watching = std::find_if(agents.begin(), agents.end(),
                                       [](const FoundJob& one) { return IsOfRank0(one.job); });
    if (watching != agents.end()) std::swap(agents.front(), *watching);
    for (size_t i = 1; i < agents.size(); ++i) {
      agents.front().other_sockets.push_back(agents[i].socket_path);
    }
    found.push_back(std::move(agents.front()));
  }
  return found;
}

absl::StatusOr<FoundJob> ChooseJob(const std::string& job_id) {
  std::vector<std::string> troubles;
  std::vector<FoundJob> jobs = FindJobs(troubles);
  if (absl::Status usable = CheckControlDirectories(); jobs.empty() && !usable.ok()) {
    troubles.emplace_back(usable.message());
  }
  const std::string trouble = troubles.empty() ? "" : "; " + absl::StrJoin(troubles, "; ");
  if (jobs.empty()) {
    return absl::NotFoundError(absl::StrCat(
        job_id.empty() ? "" : absl::StrCat("job ", Quoted(job_id), ": "), "no job of yours ",
        troubles.empty() ? "runs " : "answers ", WhereJobsAreSought(), trouble,
        "; run this on a node of the job, or from elsewhere: "
        "ddprun status --coordinator=HOST:PORT"));
  }
  std::vector<std::string> ids;
  for (const FoundJob& found : jobs) ids.push_back(found.job.run_id);
  // The one that is meant may be the one that does not answer.
  if (job_id.empty() && !troubles.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("which job is meant is not known, as not all answer", trouble,
                     "; name one of those that do: ", EscapeControl(absl::StrJoin(ids, ", "))));
  }
  if (!job_id.empty()) {
    // A socket's path names one of several jobs with the same id.
    std::erase_if(jobs, [&job_id](const FoundJob& found) {
      return found.job.run_id != job_id && found.socket_path != job_id;
    });
  }
  if (jobs.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no job ", Quoted(job_id), troubles.empty() ? " runs" : " answers", " ",
                     WhereJobsAreSought(), troubles.empty() ? DidYouMean(job_id, ids) : "", trouble,
                     "; here run: ", EscapeControl(absl::StrJoin(ids, ", "))));
  }
  if (jobs.size() == 1) {
    jobs.front().troubles = std::move(troubles);
    return std::move(jobs.front());
  }
  std::vector<std::string> lines;
  for (const FoundJob& found : jobs) {
    lines.push_back(absl::StrCat("  ", JobLine(found, jobs)));
  }
  const std::string which =
      job_id.empty()
          ? "run here; which one?"
          : absl::StrCat("have this id; which one? Give its path instead of the id, such as ",
                         EscapeControl(jobs.front().socket_path));
  return absl::InvalidArgumentError(
      absl::StrCat(jobs.size(), " jobs ", which, "\n", absl::StrJoin(lines, "\n")));
}

absl::StatusOr<FoundJob> AskAgain(const std::string& socket_path) {
  absl::StatusOr<JobView> job = AskForJob(socket_path);
  if (!job.ok()) return job.status();
  return FoundJob{socket_path, *std::move(job)};
}

absl::StatusOr<JobView> LookFromOutside(
    const Endpoint& coordinator, const std::shared_ptr<const rendezvous::TlsIdentity>& identity) {
  const absl::StatusOr<rendezvous::GiveAnswers> answers =
      rendezvous::LookOn(coordinator.host, coordinator.port, identity, kPatience);
  if (!answers.ok()) return answers.status();
  JobView job = AssembleJob({}, *answers, SteadyNow());
  if (job.run_id.empty()) {
    return absl::NotFoundError(absl::StrCat("the coordinator at ",
                                            EndpointText(coordinator.host, coordinator.port),
                                            " serves no job yet: no node has joined"));
  }
  JobJudge().Look(SteadyNow(), job);
  return job;
}

std::string JobLine(const FoundJob& found, const std::vector<FoundJob>& jobs) {
  const JobView& job = found.job;
  const auto same_id = std::count_if(jobs.begin(), jobs.end(), [&job](const FoundJob& other) {
    return other.job.run_id == job.run_id;
  });
  return absl::StrCat(job.run_id, same_id > 1 ? absl::StrCat(" (", found.socket_path, ")") : "",
                      ": ", job.sentence,
                      job.program.empty() ? "" : absl::StrCat(" (", job.program, ")"));
}

}  // namespace ddprun::launcher
