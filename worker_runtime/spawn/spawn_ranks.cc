#include "worker_runtime/spawn/spawn_ranks.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddp/store.h"
#include "process/failure_text.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/store/store_server.h"
#include "worker_runtime/comm/left_peer.h"
#include "worker_runtime/comm/make_nonce.h"
#include "worker_runtime/env_contract.h"
#include "worker_runtime/returned_ranks.h"
#include "worker_runtime/spawn/rank_process.h"

namespace ddp::internal {
namespace {

using Clock = std::chrono::steady_clock;
using ddprun::ExitStatus;
using ddprun::rendezvous::StoreServer;

constexpr uint64_t kRound = 1;
// Of what this process says to its own store: both ends of the connection are its own.
constexpr rlim_t kOwnConnection = 2;
constexpr std::chrono::seconds kStoreTimeout(1);

// Where ranks leave the notes by which they say that another one's leaving ended their group
// (left_peer.h): files of a name that nobody guesses. There is none until a rank writes it: a
// caller that is killed before leaves nothing behind. One that is killed after leaves the notes:
// another Spawn cannot tell whether their caller lives, since folders are shared between
// containers.
class Notes {
 public:
  Notes() {
    const char* folder = std::getenv("TMPDIR");
    folder_ = folder != nullptr && *folder != '\0' ? folder : "/tmp";
    prefix_ = absl::StrCat("ddprun-spawn-", NonceText(MakeNonce()), ".");
  }
  // A rank that was killed while it wrote has left a file that begins like the note.
  ~Notes() {
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end;
         at.increment(error)) {
      if (at->path().filename().string().starts_with(prefix_)) (void)unlink(at->path().c_str());
    }
  }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  std::string FileOf(int rank) const { return absl::StrCat(folder_, "/", prefix_, rank); }
  bool HasNote(int rank) const { return access(FileOf(rank).c_str(), F_OK) == 0; }
  // The rank that this one's note names as the one that left.
  std::optional<int> NamedBy(int rank) const {
    std::ifstream file(FileOf(rank));
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    return LeftPeerOfNote(text);
  }

 private:
  std::string folder_;
  std::string prefix_;
};

// How a rank that failed ended.
struct Failure {
  int rank = -1;
  std::string text;
  bool is_consequence = false;  // of our stop, or of another rank's leaving
};

std::string FailureText(int rank, int ranks, const ExitStatus& status, const RankNews& news) {
  const std::string who = absl::StrCat("rank ", rank, " of ", ranks);
  if (news.exception) return absl::StrCat(who, " ended by an exception: ", *news.exception);
  if (status.is_unknown && !news.returned) {
    return absl::StrCat(who,
                        " ended, and the kernel does not tell how: SIGCHLD is ignored in this "
                        "process, or something else in it waits for all children");
  }
  if (!status.is_unknown && !status.exited) {
    const std::string name = ddprun::SignalName(status.signal);
    const std::string number = absl::StrCat("signal ", status.signal);
    return absl::StrCat(who, " was killed by ", name,
                        name == number ? "" : absl::StrCat(" (", number, ")"),
                        status.dumped_core ? ", core dumped" : "");
  }
  return absl::StrCat(
      who, " failed: exit code ", status.is_unknown ? *news.returned : status.code,
      news.has_begun
          ? ""
          : ", before it came to this call of Spawn: every rank comes to it, whatever RANK is");
}

class RankGroup {
 public:
  RankGroup(int ranks, int call, std::chrono::milliseconds grace)
      : ranks_(ranks), call_(call), grace_(grace) {}

  absl::Status Start(uint16_t store_port);
  absl::Status Await();

 private:
  WorkerEnv EnvOf(int rank) const;
  absl::Status CheckRoomForConnections() const;
  int PollTimeoutMs() const;
  void Finish(int rank);
  const Failure& Cause() const;
  void TellWhoReturned();
  void Stop();
  void KillRest();

  const int ranks_;
  const int call_;
  const std::chrono::milliseconds grace_;  // from SIGTERM to SIGKILL
  const Notes notes_;
  uint16_t store_port_ = 0;
  uint64_t epoch_ = 0;  // part of all keys: ranks that meet another call's store find nothing in it
  std::vector<std::unique_ptr<RankProcess>> processes_;  // by rank; reaped ones stay
  std::vector<int> returned_;                            // with success; in the order of the ends
  size_t told_ = 0;                                      // of these
  std::unique_ptr<Store> told_to_;                       // null before the first is told
  std::vector<Failure> failures_;                        // in the order of the ends
  bool is_stopping_ = false;
  std::optional<Clock::time_point> kill_at_;
};

WorkerEnv RankGroup::EnvOf(int rank) const {
  WorkerEnv env;
  env.rank = env.local_rank = env.role_rank = rank;
  env.world_size = env.local_world_size = env.role_world_size = ranks_;
  env.master_addr = "127.0.0.1";
  env.master_port = store_port_;
  env.run_id = kSpawnRunId;
  env.use_agent_store = true;
  env.error_file = notes_.FileOf(rank);
  env.round = kRound;
  env.epoch = epoch_;
  return env;
}

absl::Status RankGroup::Start(uint16_t store_port) {
  const auto arguments = OwnArguments();
  if (!arguments.ok()) return arguments.status();
  store_port_ = store_port;
  const Nonce nonce = MakeNonce();
  std::memcpy(&epoch_, nonce.data(), sizeof(epoch_));
  for (int rank = 0; rank < ranks_; ++rank) {
    Variables variables = FormatWorkerEnv(EnvOf(rank));
    // All ranks are on this host, and the descriptor is not handed on.
    variables.emplace_back(kRoundKeyVar, "");
    // A launcher above looks at one process's progress.
    if (rank != 0) variables.emplace_back(kProgressFileVar, "");
    auto process = RankProcess::Start(*arguments, variables, {.call = call_, .rank = rank});
    if (!process.ok()) {
      return absl::Status(process.status().code(),
                          absl::StrCat("spawn rank ", rank, " of ", ranks_, ": ",
                                       std::string(process.status().message())));
    }
    processes_.push_back(*std::move(process));
  }
  return CheckRoomForConnections();
}

// A rank that this process cannot accept a connection of would wait for its timeout.
absl::Status RankGroup::CheckRoomForConnections() const {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  rlim_t open = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++open;
  }
  const rlim_t needed = open + static_cast<rlim_t>(ranks_) + kOwnConnection;
  if (error || needed <= limit.rlim_cur) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "spawn ", ranks_, " ranks: each connects to this process's store, and with ", open,
      " files open it may have ", limit.rlim_cur, "; raise the limit on open files (ulimit -n)"));
}

int RankGroup::PollTimeoutMs() const {
  if (!kill_at_) return -1;  // the ranks end when they want to
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

absl::Status RankGroup::Await() {
  while (true) {
    std::vector<pollfd> polled;
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (processes_[rank]->is_reaped()) continue;
      polled.push_back({processes_[rank]->pidfd(), POLLIN, 0});
      ranks.push_back(rank);
    }
    if (polled.empty()) break;
    const int ready = poll(polled.data(), polled.size(), PollTimeoutMs());
    // EINTR: a handler of the caller ran. ENOMEM: the kernel has none now.
    DDP_CHECK(ready >= 0 || errno == EINTR || errno == ENOMEM);
    for (size_t i = 0; ready > 0 && i < polled.size(); ++i) {
      if (polled[i].revents != 0) Finish(ranks[i]);
    }
    TellWhoReturned();
    if (!failures_.empty() && !is_stopping_) Stop();
    if (kill_at_ && Clock::now() >= *kill_at_) KillRest();
  }
  return failures_.empty() ? absl::OkStatus() : absl::AbortedError(Cause().text);
}

// The first end, of the most likely kind. A rank whose own note came too late looks like a cause:
// those that others name come before it.
const Failure& RankGroup::Cause() const {
  std::set<std::optional<int>> named;
  for (const Failure& failure : failures_) named.insert(notes_.NamedBy(failure.rank));
  const auto doubt = [&named](const Failure& failure) {
    return failure.is_consequence ? 2 : named.contains(failure.rank) ? 0 : 1;
  };
  return *std::min_element(
      failures_.begin(), failures_.end(),
      [&doubt](const Failure& a, const Failure& b) { return doubt(a) < doubt(b); });
}

void RankGroup::Finish(int rank) {
  const ExitStatus status = processes_[rank]->Reap();
  const RankNews news = processes_[rank]->News();
  const bool is_success = status.is_unknown ? news.returned == 0 : status.is_success();
  if (is_success && news.has_begun) {
    returned_.push_back(rank);
    return;
  }
  const bool is_stopped =
      is_stopping_ && !news.returned && !news.exception &&
      (status.is_unknown || status.signal == SIGTERM || status.signal == SIGKILL);
  failures_.push_back({.rank = rank,
                       .text = FailureText(rank, ranks_, status, news),
                       .is_consequence = is_stopped || notes_.HasNote(rank)});
}

// Those that form a group without them would wait for its timeout. They do where this fails,
// because no descriptor is left, say.
void RankGroup::TellWhoReturned() {
  const size_t reaped = returned_.size() + failures_.size();
  const bool is_useless = is_stopping_ || !failures_.empty() || reaped == processes_.size();
  if (is_useless || told_ == returned_.size()) return;
  const bool is_first = std::exchange(told_, returned_.size()) == 0;
  if (is_first) {
    auto store = Store::Connect("127.0.0.1", store_port_, kStoreTimeout);
    if (!store.ok()) return;
    told_to_ = std::make_unique<PrefixStore>(KeysOfRound(epoch_, kRound), *std::move(store));
  }
  if (told_to_ == nullptr || !NoteReturnedRanks(*told_to_, returned_).ok()) told_to_.reset();
}

void RankGroup::Stop() {
  is_stopping_ = true;
  kill_at_ = Clock::now() + grace_;
  for (const auto& process : processes_) {
    if (process->is_reaped()) continue;
    process->Signal(SIGTERM);
    // It would not see the signal. Only then: LeakSanitizer stops the threads of a process that
    // ends, and would wait for ever for one that was continued meanwhile.
    if (process->IsStopped()) process->Signal(SIGCONT);
  }
}

void RankGroup::KillRest() {
  kill_at_.reset();
  for (const auto& process : processes_) {
    if (!process->is_reaped()) process->Signal(SIGKILL);
  }
}

}  // namespace

absl::Status SpawnRanks(int ranks, int call, std::chrono::milliseconds grace) {
  // Older kernels know no P_PIDFD, and say so before they look at the descriptor, which is none.
  siginfo_t info{};
  if (waitid(P_PIDFD, std::numeric_limits<int>::max(), &info, WEXITED) != 0 && errno != EBADF) {
    return absl::UnimplementedError(
        absl::StrCat("spawn ", ranks, " ranks: waitid(P_PIDFD): ", ddprun::ErrorText(errno),
                     "; Linux 5.4 or newer is needed"));
  }
  const auto store = StoreServer::Start({}, ddprun::SteadyClock());
  if (!store.ok()) {
    return absl::Status(
        store.status().code(),
        absl::StrCat("spawn ", ranks, " ranks: ", std::string(store.status().message())));
  }
  RankGroup group(ranks, call, grace);
  if (absl::Status status = group.Start((*store)->port()); !status.ok()) return status;
  return group.Await();
}

}  // namespace ddp::internal
