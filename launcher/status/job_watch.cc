#include "launcher/status/job_watch.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <string_view>
#include <utility>

#include "launcher/status/disk_facts.h"
#include "launcher/status/node_memory.h"
#include "launcher/status/snapshot_json.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

// A look that many ask for is taken once.
constexpr Duration kFresh = std::chrono::seconds(1);
// How long other nodes may take: a little more than the coordinator lets them (QuestionDesk).
constexpr Duration kOthersPatience = std::chrono::milliseconds(2700);
// Reading /proc, and judging.
constexpr Duration kThreadPatience = std::chrono::milliseconds(2500);
// How often the whole job is looked at where nobody asks, and where ranks of this node wait.
constexpr Duration kQuietInterval = NodeMemory::kQuietInterval;
constexpr Duration kWaitingInterval = std::chrono::seconds(2);
constexpr double kLongWait_s = 2;
// For the last lines of all ranks of the node.
constexpr Duration kLinesPatience = std::chrono::milliseconds(200);
constexpr Duration kDiskInterval = std::chrono::seconds(30);
// Others' questions whose answers are being made.
constexpr size_t kMaxQuestions = 8;

double AgeOf(TimePoint at, TimePoint now) {
  return std::max(0.0, std::chrono::duration<double>(now - at).count());
}

// Of this node's ranks; none while one has made none.
std::optional<double> SlowestFirstStep(const NodeView& node) {
  std::optional<double> slowest;
  for (const RankView& rank : node.ranks) {
    if (!rank.first_step_s) return std::nullopt;
    slowest = std::max(slowest.value_or(0), *rank.first_step_s);
  }
  return slowest;
}

// `text`, which a line feed may end, as a terminal would leave it: of a progress bar its last
// state.
std::string LastState(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  const size_t back = text.rfind('\r');
  return EscapeControl(back == std::string_view::npos ? text : text.substr(back + 1));
}

}  // namespace

// What lasts from one look to the next.
struct JobWatch::Judging {
  explicit Judging(const JudgePolicy& policy) : judge(policy) {}
  JobJudge judge;
  NodeMemory memory;
  // What has been said is news once: where an answer comes too late it is kept for the next.
  JudgedNews News(JudgedNews news, bool was_heard) {
    if (was_heard) unheard = {};
    for (std::string& line : news.lines) {
      if (unheard.lines.size() < kMaxUnheard) unheard.lines.push_back(std::move(line));
    }
    const bool is_new = unheard.hang && unheard.hang->is_new;
    unheard.hang = std::move(news.hang);
    if (unheard.hang) unheard.hang->is_new |= is_new;
    return unheard;
  }
  static constexpr size_t kMaxUnheard = 64;
  JudgedNews unheard;
};

JobWatch::JobWatch(boost::asio::io_context& io, Options options, Hooks hooks)
    : io_(io),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      record_(options_.part, SteadyNow()),
      tick_timer_(io),
      others_timer_(io),
      facts_(std::make_shared<NodeFacts>()),
      judging_(std::make_shared<Judging>(options_.policy)),
      thread_(io),
      disk_thread_(io) {}

void JobWatch::Note(const AgentEvent& event) { record_.Note(SteadyNow(), event); }

void JobWatch::Note(const AgentAction& action) { record_.Note(SteadyNow(), action); }

void JobWatch::BeginRound(std::vector<std::shared_ptr<RankPage>> pages,
                          std::vector<std::string> server_sockets) {
  ranks_.clear();
  torch_ = std::make_shared<TorchReader>(std::move(server_sockets));
  has_told_first_step_ = false;
  for (size_t i = 0; i < pages.size(); ++i) {
    ranks_[static_cast<int>(i)].page = std::move(pages[i]);
  }
  if (!has_ended_) TickLater();
}

void JobWatch::WorkerRuns(int local_rank, int pid) {
  const TimePoint now = SteadyNow();
  record_.WorkerRuns(now, local_rank, pid);
  ranks_[local_rank].history.Reset(now);
}

RankProgress JobWatch::ProgressOf(int local_rank) const {
  const auto rank = ranks_.find(local_rank);
  if (rank == ranks_.end()) return {};
  const RankPage* page = rank->second.page.get();
  return rank->second.history.Progress(SteadyNow(), page == nullptr ? RankCounts{} : page->Read());
}

void JobWatch::TickLater() {
  tick_timer_.expires_after(options_.interval);
  tick_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Tick();
  });
}

void JobWatch::Tick() {
  if (has_ended_) return;
  LookAtPages();
  LookAtDisks();
  if (!look_ && IsLookDue(SteadyNow())) Look([](const auto&) {});
  TickLater();
}

void JobWatch::LookAtPages() {
  const TimePoint now = SteadyNow();
  bool have_all_stepped = !ranks_.empty();
  int64_t slowest_ns = 0;
  for (auto& [local_rank, rank] : ranks_) {
    if (rank.page != nullptr) rank.history.Look(now, rank.page->Read());
    have_all_stepped = have_all_stepped && rank.history.last().steps > 0;
    slowest_ns = std::max(slowest_ns, rank.history.last().first_step_at_ns);
  }
  if (!have_all_stepped || std::exchange(has_told_first_step_, true)) return;
  hooks_.on_first_step(AgeOf(TimePoint(std::chrono::nanoseconds(slowest_ns)), now));
}

void JobWatch::LookAtDisks() {
  const TimePoint now = SteadyNow();
  if (options_.folders.empty() || now < disks_again_at_ || !disk_thread_.is_idle()) return;
  disks_again_at_ = now + kDiskInterval;
  disk_thread_.Ask<std::vector<Problem>>(
      "disks", options_.folders.front(), kThreadPatience,
      [folders = options_.folders, host = options_.part.host] {
        std::vector<Problem> problems = ReadDiskProblems(folders);
        for (Problem& problem : problems) problem.node = host;
        return problems;
      },
      [this](std::optional<std::vector<Problem>> problems) {
        if (problems) disk_problems_ = *std::move(problems);
      });
}

bool JobWatch::IsLookDue(TimePoint now) const {
  // A fiftieth of a core at most, however large the job is.
  if (viewers_ > 0) return last_ == nullptr || last_->at + 50 * judging_took_ <= now;
  if (!record_.has_rank_0()) return false;
  if (record_.assignment().node_count == 1 || last_ == nullptr) return true;
  bool is_waiting = !last_->job.problems.empty();
  for (const auto& [local_rank, rank] : ranks_) {
    RankView view;
    rank.history.Fill(now, view);
    for (const GroupView& group : view.groups) is_waiting |= group.waiting_s >= kLongWait_s;
  }
  // Of PyTorch's groups, and of other nodes' ranks, the last look knows.
  for (const NodeView& node : last_->job.nodes) {
    for (const RankView& rank : node.ranks) {
      for (const GroupView& group : rank.groups) is_waiting |= group.waiting_s >= kLongWait_s;
    }
  }
  return last_->at + (is_waiting ? kWaitingInterval : kQuietInterval) <= now;
}

void JobWatch::set_viewers(size_t count) {
  const bool is_first = viewers_ == 0 && count > 0;
  viewers_ = count;
  if (is_first && !has_ended_) TickLater();
}

void JobWatch::Look(Answer answer) {
  if (has_ended_) return boost::asio::post(io_, [answer] { answer(nullptr); });
  const TimePoint now = SteadyNow();
  if (look_) return look_->answers.push_back(std::move(answer));
  if (last_ != nullptr && now < last_->at + kFresh - options_.interval / 20) {
    return boost::asio::post(io_, [answer, last = last_] { answer(last); });
  }
  look_.emplace();
  look_->id = ++last_id_;
  look_->answers.push_back(std::move(answer));
  look_->others.is_last = false;
  // Who has told the verdict may have left.
  look_->has_others = options_.is_alone || record_.has_verdict();
  ViewOwn([this, id = look_->id](std::optional<NodeView> view) {
    if (!look_ || look_->id != id) return;
    if (!view) return Finish(std::nullopt);
    look_->own = *std::move(view);
    look_->has_own = true;
    JudgeWhenComplete();
  });
  if (look_->has_others) return;
  hooks_.ask({.id = look_->id, .to = {}, .body = kPrivateQuestion});
  others_timer_.expires_after(kOthersPatience);
  others_timer_.async_wait([this, id = look_->id](const boost::system::error_code& error) {
    if (error || !look_ || look_->id != id || look_->has_others) return;
    look_->has_others = true;
    JudgeWhenComplete();
  });
}

void JobWatch::Answered(const rendezvous::GiveAnswers& part) {
  if (!look_ || look_->id != part.id || look_->has_others) return;
  rendezvous::GiveAnswers& all = look_->others;
  all.answers.insert(all.answers.end(), part.answers.begin(), part.answers.end());
  all.silent.insert(all.silent.end(), part.silent.begin(), part.silent.end());
  if (!part.is_last) return;
  all.facts = part.facts;
  all.is_last = true;
  look_->has_others = true;
  others_timer_.cancel();
  JudgeWhenComplete();
}

void JobWatch::ViewOwn(std::function<void(std::optional<NodeView>)> then) {
  LookAtPages();
  const TimePoint now = SteadyNow();
  NodeView view;
  record_.Fill(now, view);
  view.problems = disk_problems_;
  for (RankView& rank : view.ranks) {
    const auto found = ranks_.find(rank.local_rank);
    if (found != ranks_.end()) found->second.history.Fill(now, rank);
  }
  thread_.Ask<NodeView>(
      "status", "/proc", kThreadPatience,
      [view = std::move(view), last_line = hooks_.last_line, facts = facts_, torch = torch_,
       world_size = record_.assignment().world_size]() mutable {
        facts->Fill(view);
        torch->Fill([&](int local_rank) { return facts->PidsOf(local_rank); }, world_size, view);
        // Where the log thread hangs in a file the rest is known all the same.
        const TimePoint until = SteadyNow() + kLinesPatience;
        for (RankView& rank : view.ranks) {
          const Duration left = until - SteadyNow();
          if (!last_line || left <= Duration{0}) break;
          const Hooks::LastLine last = last_line(rank.local_rank, left);
          rank.last_line = LastState(last.text);
          if (last.at) rank.last_line_age_s = AgeOf(*last.at, SteadyNow());
        }
        return view;
      },
      std::move(then));
}

void JobWatch::JudgeWhenComplete() {
  if (!look_->has_own || !look_->has_others) return;
  const TimePoint now = SteadyNow();
  JobView job;
  record_.Fill(now, true, job);
  job.nodes.push_back(look_->own);
  if (!job.rounds.empty()) job.rounds.back().first_step_s = SlowestFirstStep(look_->own);
  struct Judged {
    std::shared_ptr<const JobSnapshot> snapshot;
    JudgedNews news;
    std::string closing_line;
    Duration took{0};
  };
  thread_.Ask<Judged>(
      "judge", "/proc", kThreadPatience,
      [judging = judging_, job = std::move(job), others = std::move(look_->others),
       is_alone = options_.is_alone, was_heard = std::exchange(was_news_heard_, false),
       now]() mutable {
        Judged judged;
        const TimePoint began = SteadyNow();
        auto snapshot = std::make_shared<JobSnapshot>();
        snapshot->job = AssembleJob(std::move(job), others, now);
        snapshot->at = now;
        judging->memory.Recall(now, !is_alone && !others.is_last, snapshot->job);
        EndFirstFailed(snapshot->job);
        judged.news = judging->News(judging->judge.Look(now, snapshot->job), was_heard);
        judged.closing_line = judging->judge.ledger().ClosingLine();
        judged.snapshot = std::move(snapshot);
        judged.took = SteadyNow() - began;
        return judged;
      },
      [this, id = look_->id](std::optional<Judged> judged) {
        if (!look_ || look_->id != id) return;  // ended meanwhile
        if (!judged) return Finish(std::nullopt);
        was_news_heard_ = true;
        judging_took_ = judged->took;
        closing_line_ = std::move(judged->closing_line);
        // Only one node speaks for the job.
        if (record_.has_rank_0() && !has_ended_) {
          for (const std::string& line : judged->news.lines) hooks_.say(line);
          if (judged->news.hang) hooks_.on_hang(*judged->news.hang, judged->snapshot->job);
        }
        Finish(std::move(judged->snapshot));
      });
}

void JobWatch::Finish(std::optional<std::shared_ptr<const JobSnapshot>> snapshot) {
  if (!look_) return;
  UnderWay look = *std::exchange(look_, std::nullopt);
  if (snapshot) last_ = *snapshot;
  for (const Answer& answer : look.answers) answer(snapshot.value_or(nullptr));
  if (snapshot && hooks_.on_look) hooks_.on_look(*snapshot);
}

void JobWatch::Asked(uint64_t id, bool is_private) {
  if (has_ended_ || questions_.size() >= kMaxQuestions) return;
  questions_[id] = is_private;
  ViewOwn([this, id](std::optional<NodeView> view) {
    const auto question = questions_.extract(id);
    if (!view || question.empty()) return;
    if (!question.mapped()) HidePrivate(*view);
    // What the job's watcher has found is known nowhere else, but for lost nodes.
    const bool is_recent = last_ != nullptr && SteadyNow() < last_->at + 2 * kWaitingInterval;
    if (record_.has_rank_0() && is_recent) {
      for (const Problem& problem : last_->job.problems) {
        if (problem.node.empty() && problem.kind != "lost_node") view->problems.push_back(problem);
      }
    }
    hooks_.answer(id, RenderNodeJson(*view));
  });
}

void JobWatch::End() {
  has_ended_ = true;
  tick_timer_.cancel();
  others_timer_.cancel();
  facts_->EndGpus();
  Finish(std::nullopt);
}

}  // namespace ddprun::launcher
