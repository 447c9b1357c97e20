#include "launcher/status/job_judge.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/status/job_sentence.h"
#include "launcher/status/judge_words.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun::launcher {
namespace {

// So many silent nodes are a problem each; more are one together.
constexpr size_t kMaxSilentListed = 8;
// What all nodes together may list, and say in one look.
constexpr size_t kMaxNodeProblems = 64;
constexpr size_t kMaxNodeLines = 8;

// The worst first.
size_t Severity(const Problem& problem) {
  constexpr std::string_view kOrder[] = {"failure", "hang", "lost_node",  "no_progress", "oom",
                                         "gpu",     "disk", "throttling", "straggler"};
  const auto at = std::find(std::begin(kOrder), std::end(kOrder), problem.kind);
  return static_cast<size_t>(at - std::begin(kOrder));
}

// Told, and the job is well all the same. Of what was killed for want of memory the failure tells,
// if it was a rank.
bool IsHarmless(const Problem& problem) {
  constexpr std::string_view kKinds[] = {"straggler", "throttling", "disk", "oom"};
  return std::find(std::begin(kKinds), std::end(kKinds), problem.kind) != std::end(kKinds);
}

// Seen by who looks at all ranks together; a node that tells it has it from its own look at the
// job.
bool IsOfJob(const Problem& problem) {
  return problem.kind == "hang" || problem.kind == "no_progress" || problem.kind == "straggler";
}

// What another node's look has found, as far as ours has not: that may be the first.
void AddTold(JobView& job) {
  std::vector<Problem> told;
  for (const NodeView& node : job.nodes) {
    for (const Problem& problem : node.problems) {
      if (!IsOfJob(problem) || told.size() >= kMaxNodeProblems) continue;
      const bool is_known =
          std::any_of(job.problems.begin(), job.problems.end(), [&](const Problem& own) {
            return own.kind == problem.kind ||
                   (own.kind == "hang" && problem.kind == "no_progress");
          });
      if (is_known) continue;
      told.push_back(problem);
      told.back().text = EscapeControl(problem.text);
    }
  }
  for (Problem& problem : told) job.problems.push_back(std::move(problem));
}

bool IsRunning(const JobView& job) { return job.state == "running" || job.state == "unknown"; }

// A failure that ended a round which no other has followed yet, as far as a step.
bool IsUnrecovered(const JobView& job) {
  if (!job.first_fault) return false;
  const uint64_t failed = job.first_fault->round;
  if (job.state == "stopping" || job.state == "forming" || job.state == "ended") {
    return failed >= job.round;
  }
  return job.state == "starting" && failed + 1 >= job.round;
}

void AddFault(JobView& job) {
  if (!IsUnrecovered(job)) return;
  const FaultView& fault = *job.first_fault;
  const bool has_many_nodes = std::max(job.node_count, static_cast<int>(job.nodes.size())) > 1;
  // The node is the fault's own: the rank may be elsewhere by now.
  const std::string node =
      has_many_nodes && !fault.host.empty() ? absl::StrCat(" (node ", fault.host, ")") : "";
  const std::string who = IsHang(fault) ? "" : absl::StrCat("rank ", fault.rank, node, " failed: ");
  job.problems.push_back(
      {"failure", who + FaultText(fault), {fault.rank}, fault.host, SaneSeconds(fault.age_s)});
}

// "gpu-07"; of several agents on one host "gpu-07 (node 1)", without a node rank with the
// beginning of its id.
void NameNodes(JobView& job) {
  std::map<std::string, int> count;
  for (const NodeView& node : job.nodes) ++count[node.host];
  for (NodeView& node : job.nodes) {
    constexpr size_t kIdLength = 8;
    node.name = node.host.empty() ? node.id : node.host;
    if (node.host.empty() || count[node.host] == 1) continue;
    const std::string what = node.node_rank >= 0
                                 ? absl::StrCat("node ", node.node_rank)
                                 : node.id.substr(0, CharacterStart(node.id, kIdLength));
    absl::StrAppend(&node.name, " (", what, ")");
  }
}

// What the job's line says is not said again of nodes; those that join repeat what the coordinator
// has told them, with a countdown of then.
void DropRepeatedWaits(JobView& job) {
  const bool is_told = !job.waiting_for.empty() && !job.coordinator_silent_s;
  for (NodeView& node : job.nodes) {
    const bool is_repeated =
        (is_told && node.state == "joining") || job.waiting_line == WaitingWords(node);
    if (!is_repeated) continue;
    node.waiting_for.clear();
    node.waiting_left_s.reset();
  }
}

// The coordinator's word; where it was itself on a node that is gone, the others'.
std::string GoneText(const JobView& job) {
  if (!job.gone_nodes.empty()) return job.gone_nodes;
  if (job.state != "forming" && job.state != "stopping") return "";
  for (const NodeView& node : job.nodes) {
    if (!node.gone_node.empty()) return node.gone_node;
  }
  return "";
}

}  // namespace

JobJudge::JobJudge(JudgePolicy policy)
    : policy_(policy), hangs_(policy), progress_(policy), stragglers_(policy) {}

JudgedNews JobJudge::Look(TimePoint now, JobView& job) {
  JudgedNews news;
  NameNodes(job);
  const RankIndex ranks(job, policy_.silent_after);
  FillFigures(ranks, job);
  job.problems.clear();
  job.waiting_line.clear();
  if (job.round != round_ || !IsRunning(job)) Forget(news);
  round_ = job.round;
  AddLosses(now, job);
  AddFault(job);
  AddSilentNodes(now, job);
  AddNodeProblems(now, job, news);
  if (IsRunning(job)) {
    WatchRanks(now, ranks, job, news);
    AddTold(job);
  }
  if (job.waiting_line.empty()) job.waiting_line = OwnWaitingText(job);
  DropRepeatedWaits(job);
  // Nodes that are gone may be why others failed.
  const auto rest = job.problems.begin() + (gone_since_ ? 1 : 0);
  std::stable_sort(rest, job.problems.end(),
                   [](const Problem& a, const Problem& b) { return Severity(a) < Severity(b); });
  job.is_healthy = std::all_of(job.problems.begin(), job.problems.end(), IsHarmless);
  job.sentence = SentenceOf(ranks, job);
  looked_at_ = now;
  ledger_.Add(now, job);
  job.effective_share = ledger_.effective_share();
  job.checkpoint_s = ledger_.checkpoint_s();
  job.evaluation_s = ledger_.evaluation_s();
  job.restart_s = ledger_.restart_s();
  job.start_s = ledger_.start_s();
  job.stall_s = ledger_.stall_s();
  return news;
}

void JobJudge::Forget(JudgedNews& news) {
  for (std::string& line : hangs_.Forget()) news.lines.push_back(std::move(line));
  progress_.Forget();
  stragglers_.Forget();
}

void JobJudge::WatchRanks(TimePoint now, const RankIndex& ranks, JobView& job, JudgedNews& news) {
  HangsSeen hangs = hangs_.Look(now, ranks);
  const auto explained = hangs.hang        ? ProgressWatch::Explained::kYes
                         : hangs.is_coming ? ProgressWatch::Explained::kSoon
                                           : ProgressWatch::Explained::kNo;
  ProgressSeen progress = progress_.Look(now, ranks, explained);
  StragglersSeen stragglers = stragglers_.Look(now, ranks);
  news.hang = std::move(hangs.hang);
  if (!news.hang && progress.problem) {
    // An evaluation that nobody reports looks the same.
    news.hang = HangFound{.is_new = progress.is_new,
                          .ranks = progress.problem->ranks.empty() ? std::move(progress.behind)
                                                                   : progress.problem->ranks,
                          .text = progress.problem->text,
                          .may_restart = false};
  }
  for (Problem& problem : hangs.problems) job.problems.push_back(std::move(problem));
  if (progress.problem) job.problems.push_back(std::move(*progress.problem));
  if (stragglers.problem) job.problems.push_back(std::move(*stragglers.problem));
  for (auto* lines : {&hangs.lines, &progress.lines, &stragglers.lines}) {
    for (std::string& line : *lines) news.lines.push_back(std::move(line));
  }
  job.waiting_line = std::move(hangs.waiting_line);
  if (job.waiting_line.empty()) job.waiting_line = IdleText(ranks, policy_);
}

// Nodes that the coordinator has given up, and what else keeps the next round from beginning.
void JobJudge::AddLosses(TimePoint now, JobView& job) {
  const bool forms_again = job.state == "forming" && job.round > 0;
  if (!forms_again) forming_since_.reset();
  if (forms_again && !forming_since_) forming_since_ = now;
  const std::string gone = GoneText(job);
  if (gone.empty()) {
    gone_since_.reset();
  } else {
    if (!gone_since_) gone_since_ = now;
    job.problems.push_back({"lost_node", gone, {}, "", SecondsOf(now - *gone_since_)});
    return;
  }
  const double timeout_s = SecondsOf(policy_.hang_timeout);
  const double forming_s = forms_again ? SecondsOf(now - *forming_since_) : 0;
  if (timeout_s <= 0 || forming_s < timeout_s) return;
  job.problems.push_back(
      {"lost_node",
       absl::StrCat("no round has begun for ", SpanText(forming_s), " after the last one ended"),
       {},
       "",
       forming_s});
}

void JobJudge::AddSilentNodes(TimePoint now, JobView& job) {
  if (job.is_ending) return;
  if (job.coordinator_silent_s) {
    // It alone would say how the others are.
    silent_since_.clear();
    const double silent_s = SaneSeconds(*job.coordinator_silent_s);
    const auto host = std::find_if(job.nodes.begin(), job.nodes.end(),
                                   [](const NodeView& node) { return node.hosts_coordinator; });
    const std::string where = host == job.nodes.end() ? "" : absl::StrCat(" of node ", host->name);
    job.problems.push_back(
        {"lost_node",
         absl::StrCat("the coordinator", where, " has not answered",
                      silent_s >= 1 ? absl::StrCat(" for ", SpanText(silent_s)) : "",
                      "; what other nodes do is not known"),
         {},
         "",
         silent_s});
    return;
  }
  // By name, with how long it has been so at least. The one that a silent host stands for is shown
  // with its age.
  struct Silent {
    std::string host;
    double known_s = 0;
  };
  std::map<std::string_view, const NodeView*> old;  // by host
  for (const NodeView& node : job.nodes) {
    if (SaneSeconds(node.age_s) > 0) old.emplace(node.host, &node);
  }
  std::map<std::string, Silent> silent;
  for (const std::string& host : job.silent_nodes) {
    const auto known = old.find(host);
    silent.emplace(known == old.end() ? host : known->second->name, Silent{host});
  }
  for (const NodeView& node : job.nodes) {
    const double age_s = SaneSeconds(node.age_s);
    if (age_s < SecondsOf(policy_.silent_after) || node.state == "leaving") continue;
    // What it last said may be older than its silence, where nobody has asked in between.
    const double gap_s = looked_at_ ? SecondsOf(now - *looked_at_) : 0;
    silent[node.name] = {.host = node.host, .known_s = std::max(age_s - gap_s, 0.0)};
  }
  std::erase_if(silent_since_, [&](const auto& since) { return !silent.contains(since.first); });
  std::vector<std::string> names;
  double longest_s = 0;
  for (auto& [name, known] : silent) {
    const auto before = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(std::exchange(known.known_s, 0)));
    const TimePoint since = silent_since_.emplace(name, now - before).first->second;
    known.known_s = SecondsOf(now - since);
    longest_s = std::max(longest_s, known.known_s);
    names.push_back(name);
  }
  if (names.size() > kMaxSilentListed) {
    job.problems.push_back({"lost_node",
                            absl::StrCat(names.size(), " nodes have not answered for up to ",
                                         SpanText(longest_s), ": ", SomeNamesText(names)),
                            {},
                            "",
                            longest_s});
    return;
  }
  for (const auto& [name, known] : silent) {
    const std::string span = known.known_s >= 1 ? " for " + SpanText(known.known_s) : "";
    job.problems.push_back({"lost_node",
                            absl::StrCat("node ", name, " has not answered", span),
                            {},
                            known.host,
                            known.known_s});
  }
}

void JobJudge::AddNodeProblems(TimePoint now, JobView& job, JudgedNews& news) {
  const size_t first = job.problems.size();
  size_t said = 0;
  for (const NodeView& node : job.nodes) {
    for (const Problem& of_node : node.problems) {
      if (job.problems.size() - first >= kMaxNodeProblems) break;
      if (IsOfJob(of_node)) continue;
      Problem problem = of_node;
      problem.text = EscapeControl(problem.text);
      if (problem.node.empty()) problem.node = node.host;
      // Figures in its words may change from look to look.
      std::string what = absl::StrCat(node.id, " ", node.host, " ", problem.kind);
      for (const int rank : problem.ranks) absl::StrAppend(&what, " ", rank);
      const auto [told, is_new] = told_.insert_or_assign(std::move(what), now);
      if (is_new && said++ < kMaxNodeLines) {
        news.lines.push_back(job.nodes.size() > 1
                                 ? absl::StrCat("node ", node.name, ": ", problem.text)
                                 : problem.text);
      }
      job.problems.push_back(std::move(problem));
    }
  }
  std::erase_if(told_, [&](const auto& told) { return now - told.second >= policy_.calm; });
}

}  // namespace ddprun::launcher
