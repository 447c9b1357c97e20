#include "rendezvous/server/job_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <future>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/durable_file.h"
#include "rendezvous/base/fnv1a.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kMaxFileBytes = 256 * 1024;
constexpr Duration kEndLimit = std::chrono::seconds(1);
// For the words that the disk does not answer, at the end.
constexpr Duration kWordsLimit = std::chrono::milliseconds(500);
// Nobody comes back to a job that long after its coordinator's end, which nothing dates: its last
// record is older. What is removed too early costs no more than a lost file does.
constexpr time_t kAbandonedAfterSeconds = 3600;
constexpr int kMostJobs = 1000;  // looked at
constexpr char kWhatIsLost[] =
    "; a coordinator that is started again in its place knows of this job only what its nodes "
    "still know";

// What the thread is at, or will be with what it is asked for next.
enum class Work { kRead, kWrite, kTidy };

std::string PathOf(const std::string& run_dir) { return absl::StrCat(run_dir, "/job"); }

std::string NewPathOf(const std::string& run_dir) { return PathOf(run_dir) + ".new"; }

// Of a coordinator that has ended before its job. Its modification time is the time until which
// nodes wait for another one.
std::string LeftPathOf(const std::string& run_dir) { return absl::StrCat(run_dir, "/left"); }

std::string EncodeSpent(const RestartsSpent& spent) {
  return absl::StrFormat(" %u %u %d %u %d %d %d %d %d", spent.charged_epoch.value,
                         spent.charged_round.value, spent.same_failures, spent.fingerprint,
                         spent.failures_in_row, spent.progress.count(), spent.given_back,
                         spent.node_losses, spent.preemptions);
}

RestartsSpent DecodeSpent(const char* text, int& read) {
  unsigned long long epoch = 0;
  unsigned long long round = 0;
  unsigned long long fingerprint = 0;
  long long progress = 0;
  RestartsSpent spent;
  // Of fewer the whole file is damaged, which is seen below.
  std::sscanf(text, "%llu %llu %d %llu %d %lld %d %d %d%n", &epoch, &round, &spent.same_failures,
              &fingerprint, &spent.failures_in_row, &progress, &spent.given_back,
              &spent.node_losses, &spent.preemptions, &read);
  spent.charged_epoch = Epoch{epoch};
  spent.charged_round = Round{round};
  spent.fingerprint = fingerprint;
  spent.progress = std::chrono::milliseconds(progress);
  return spent;
}

std::string EncodeHosts(const BadNodesRecord& bad_nodes) {
  v1::QuarantinedHosts out;
  for (const QuarantinedHost& known : bad_nodes.hosts) {
    v1::QuarantinedHost& host = *out.add_hosts();
    host.set_host(known.host);
    host.set_why(known.why);
    const auto left = std::chrono::floor<std::chrono::milliseconds>(known.left).count();
    host.set_left_ms(static_cast<uint64_t>(std::max<int64_t>(0, left)));
  }
  return out.SerializeAsString();
}

// `text` begins with them, behind their count and size. None: the file is damaged.
std::optional<std::string> DecodeHosts(const char* values, const std::string& text,
                                       BadNodesRecord& bad_nodes) {
  constexpr uint64_t kLongestMs = uint64_t{1000} * 3600 * 24 * 365;
  unsigned long long size = 0;
  v1::QuarantinedHosts in;
  if (std::sscanf(values, "%d %llu", &bad_nodes.count, &size) != 2 || size > text.size() ||
      bad_nodes.count < 0 || !in.ParseFromString(text.substr(0, size))) {
    return std::nullopt;
  }
  for (const v1::QuarantinedHost& host : in.hosts()) {
    const auto left = static_cast<int64_t>(std::min(host.left_ms(), kLongestMs));
    bad_nodes.hosts.push_back({host.host(), host.why(), std::chrono::milliseconds(left)});
  }
  return text.substr(size);
}

std::optional<Record> Read(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.is_open()) return std::nullopt;
  std::string text;
  while (text.size() <= kMaxFileBytes) {
    char buffer[4096];
    const ssize_t size = read(fd.get(), buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return std::nullopt;
    if (size == 0) return DecodeRecord(text);
    text.append(buffer, static_cast<size_t>(size));
  }
  return std::nullopt;
}

std::string SilenceText(Work work, const std::string& run_dir) {
  constexpr char kSilent[] = "\": its file system does not answer";
  switch (work) {
    case Work::kRead:
      return absl::StrCat("job file: read \"", PathOf(run_dir), kSilent,
                          "; what a coordinator before this one has left there is not known",
                          kWhatIsLost);
    case Work::kTidy:
      return absl::StrCat("job file: remove what ended jobs have left beside \"", run_dir, kSilent,
                          kWhatIsLost);
    case Work::kWrite:
      break;
  }
  return absl::StrCat("job file: write \"", PathOf(run_dir), kSilent, kWhatIsLost);
}

std::string StaysText(const std::string& run_dir) {
  return absl::StrCat("job file: remove \"", PathOf(run_dir),
                      "\": its file system does not answer; delete the file before you use this "
                      "--rdzv-id on this port again, or the next job counts this one's restarts "
                      "as its own");
}

// Whether what is written must outlive the machine's fall.
enum class Durability { kNone, kSynced };

absl::Status Replace(const std::string& run_dir, const std::string& text, Durability durability) {
  const std::string path = PathOf(run_dir);
  const std::string temporary = NewPathOf(run_dir);
  UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.is_open()) return FileError("create", temporary);
  if (absl::Status status = WriteAll(fd.get(), text, temporary); !status.ok()) return status;
  const bool is_synced = durability == Durability::kSynced;
  if (is_synced && fsync(fd.get()) != 0) return FileError("sync", temporary);
  fd.Reset();
  if (rename(temporary.c_str(), path.c_str()) != 0) return FileError("rename to", path);
  return is_synced ? SyncDirectory(run_dir) : absl::OkStatus();
}

absl::Status Write(const std::string& run_dir, const Record& record, Durability durability) {
  absl::Status status = absl::NotFoundError("not tried");
  // More than once: a job on the same port in another network namespace may just be removing it.
  for (int attempt = 0; attempt < 3 && absl::IsNotFound(status); ++attempt) {
    (void)mkdir(run_dir.c_str(), 0700);  // if it is still not there, the next call says so
    status = Replace(run_dir, EncodeRecord(record), durability);
  }
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("job file: ", status.message()));
}

// As long as it is open the job counts as one whose coordinator lives.
UniqueFd LockJob(const std::string& run_dir, int mode) {
  UniqueFd folder(open(run_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  return folder.is_open() && flock(folder.get(), mode) == 0 ? std::move(folder) : UniqueFd();
}

std::optional<time_t> DateOf(const std::string& path) {
  struct stat about {};
  const bool is_file = lstat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
  return is_file ? std::optional(about.st_mtime) : std::nullopt;
}

std::optional<Record> ReadLeft(const std::string& run_dir) {
  const std::optional<time_t> until = DateOf(LeftPathOf(run_dir));
  return until && time(nullptr) < *until ? Read(LeftPathOf(run_dir)) : std::nullopt;
}

// Removes what killed coordinators have left beside `run_dir`.
void ForgetAbandonedJobs(const std::string& run_dir) {
  std::error_code error;
  std::filesystem::directory_iterator at(std::filesystem::path(run_dir).parent_path(), error);
  for (int count = 0; !error && at != std::filesystem::directory_iterator() && count < kMostJobs;
       at.increment(error), ++count) {
    const std::string other = at->path();
    const UniqueFd lock = LockJob(other, LOCK_EX | LOCK_NB);
    std::optional<time_t> date = DateOf(PathOf(other));
    if (!date) date = DateOf(LeftPathOf(other));
    const bool is_old = date && time(nullptr) - *date > kAbandonedAfterSeconds;
    if (lock.is_open() && is_old) ForgetJob(other);
  }
}

// What is counted cannot be below zero, nor so high that counting on overflows.
bool IsCredible(const RestartsSpent& spent) {
  const int counts[] = {spent.same_failures, spent.failures_in_row, spent.given_back,
                        spent.node_losses, spent.preemptions};
  const auto is_count = [](int count) { return count >= 0 && count <= kMaxRank; };
  constexpr auto kLongest = std::chrono::hours(24 * 365 * 100);
  return std::ranges::all_of(counts, is_count) && spent.progress.count() >= 0 &&
         spent.progress <= kLongest;
}

}  // namespace

// One line of values and a checksum over them and the verdict, then the verdict as on the wire.
// What limits of restarts have been used makes it longer, a line of version 2, which releases that
// know of none take for a damaged one. Bad nodes make it one of version 3, and their hosts come
// before the verdict.
std::string EncodeRecord(const Record& record) {
  v1::Verdict verdict;
  if (record.verdict) VerdictToProto(*record.verdict, verdict);
  std::string bytes = record.verdict ? verdict.SerializeAsString() : "";
  const bool has_bad = record.bad_nodes != BadNodesRecord{};
  const bool has_spent = has_bad || record.spent != RestartsSpent{};
  std::string values =
      absl::StrFormat("ddprun-job %d %u %u %u %d %d",
                      has_bad     ? 3
                      : has_spent ? 2
                                  : 1,
                      record.epoch.value, record.instance.high, record.instance.low,
                      record.restart_count, record.verdict ? 1 : 0);
  if (has_spent) absl::StrAppend(&values, EncodeSpent(record.spent));
  if (has_bad) {
    const std::string hosts = EncodeHosts(record.bad_nodes);
    absl::StrAppend(&values, absl::StrFormat(" %d %u", record.bad_nodes.count, hosts.size()));
    bytes = hosts + bytes;
  }
  Fnv1a checksum;  // finds a torn or flipped file, which is all it has to do
  checksum.Add(values.data(), values.size());
  checksum.Add(bytes.data(), bytes.size());
  return absl::StrFormat("%s %016x\n%s", values, checksum.value(), bytes);
}

std::optional<Record> DecodeRecord(const std::string& text) {
  unsigned long long epoch = 0;
  unsigned long long high = 0;
  unsigned long long low = 0;
  int has_verdict = 0;
  int version = 0;
  int read = 0;
  Record record{.instance = {}, .epoch = {}, .verdict = std::nullopt};
  if (std::sscanf(text.c_str(), "ddprun-job %d %llu %llu %llu %d %d%n", &version, &epoch, &high,
                  &low, &record.restart_count, &has_verdict, &read) != 6) {
    return std::nullopt;
  }
  record.epoch = Epoch{epoch};
  record.instance = {.high = high, .low = low};
  int spent_read = 0;
  if (version >= 2) record.spent = DecodeSpent(text.c_str() + read, spent_read);
  const size_t line_end = text.find('\n');
  if (line_end == std::string::npos) return std::nullopt;
  std::optional<std::string> bytes = text.substr(line_end + 1);
  if (version == 3) {
    bytes = DecodeHosts(text.c_str() + read + spent_read, *bytes, record.bad_nodes);
    if (!bytes) return std::nullopt;
  }
  if (has_verdict != 0) {
    v1::Verdict verdict;
    CheckedFields check;
    if (!verdict.ParseFromString(*bytes)) return std::nullopt;
    record.verdict = VerdictFromProto(verdict, check);
    if (!check.status().ok()) return std::nullopt;
  }
  // Whatever is not exactly what would have been written is no file of ours.
  if (EncodeRecord(record) != text) return std::nullopt;
  return record;
}

Beginning BeginAnew() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t microseconds = std::chrono::floor<std::chrono::microseconds>(now).count();
  JobInstance instance;
  // It fails only without getrandom, which Linux has since 3.17.
  DDP_CHECK(getentropy(&instance, sizeof(instance)) == 0);
  if (!instance.is_known()) instance.low = 1;
  return Beginning{.epoch = Epoch{static_cast<uint64_t>(std::max<int64_t>(1, microseconds))},
                   .instance = instance,
                   .verdict = std::nullopt};
}

void Recall(const Record& record, Beginning& beginning) {
  beginning.restart_count = std::max(0, record.restart_count);
  if (IsCredible(record.spent)) beginning.spent = record.spent;
  beginning.bad_nodes = record.bad_nodes;
  beginning.verdict = record.verdict;
  beginning.is_remembered = record.instance.is_known();
  if (beginning.is_remembered) beginning.instance = record.instance;
}

namespace {

// BeginJob. `on_read` is called when the earlier file has been read, or is none.
absl::StatusOr<Beginning> ReadAndWrite(const std::string& run_dir,
                                       const std::function<void()>& on_read) {
  Beginning beginning = BeginAnew();
  // The new instance is not written: until a node has heard it nobody needs it, and a round of an
  // earlier coordinator may show that the job has another one.
  Record record{.instance = {}, .epoch = beginning.epoch, .verdict = std::nullopt};
  std::optional<Record> last = Read(PathOf(run_dir));
  if (!last) last = ReadLeft(run_dir);
  on_read();
  // Without an earlier file the write only tells whether it can be written: the time of day gives
  // the next start a higher epoch anyway.
  const Durability durability = last ? Durability::kSynced : Durability::kNone;
  if (last && last->epoch.value < UINT64_MAX) {
    record = *std::move(last);
    ++record.epoch.value;
    beginning.epoch = record.epoch;
    Recall(record, beginning);
  }
  const absl::Status status = Write(run_dir, record, durability);
  if (!status.ok()) return status;
  (void)unlink(LeftPathOf(run_dir).c_str());
  return beginning;
}

}  // namespace

absl::StatusOr<Beginning> BeginJob(const std::string& run_dir) {
  return ReadAndWrite(run_dir, [] {});
}

absl::Status WriteJob(const std::string& run_dir, const Record& record) {
  return Write(run_dir, record, Durability::kSynced);
}

void ForgetJob(const std::string& run_dir) {
  (void)unlink(PathOf(run_dir).c_str());
  (void)unlink(NewPathOf(run_dir).c_str());  // of a write that was cut short
  (void)unlink(LeftPathOf(run_dir).c_str());
  (void)rmdir(run_dir.c_str());
}

struct JobFile::Next {
  explicit Next(const Clock& its_clock) : clock(its_clock) {}

  const Clock& clock;
  std::mutex mutex;
  std::optional<Record> record;
  std::vector<std::function<void()>> on_written;  // one a verdict: a job has one
  std::optional<TimePoint> asked_at;  // since when the thread has something that is not done
  Work work = Work::kWrite;
  bool is_silence_told = false;
  std::function<void(const std::string&)> on_failure;
  UniqueFd lock;            // the thread's, like what follows
  bool is_failing = false;  // and that was told

  void Write(const std::string& run_dir) {
    std::unique_lock lock(mutex);
    const Record taken = *std::exchange(record, std::nullopt);
    const std::vector<std::function<void()>> tell = std::exchange(on_written, {});
    lock.unlock();
    // What cannot be kept must not hold up the job.
    const absl::Status status = WriteJob(run_dir, taken);
    Answered();
    const bool is_told = std::exchange(is_failing, !status.ok());
    if (!status.ok() && !is_told && on_failure) {
      on_failure(absl::StrCat(status.message(), kWhatIsLost));
    }
    for (const std::function<void()>& told : tell) told();
  }

  // The file system has done what it was asked for. A record may have come meanwhile.
  void Answered() {
    const std::lock_guard lock(mutex);
    asked_at = record ? std::optional(clock.Now()) : std::nullopt;
    work = Work::kWrite;
    is_silence_told = false;
  }

  void Turn(Work to) {
    const std::lock_guard lock(mutex);
    work = to;
  }
};

JobFile::JobFile(std::string run_dir, const Clock& clock,
                 std::function<void(const std::string&)> on_failure)
    : run_dir_(std::move(run_dir)),
      clock_(clock),
      next_(std::make_shared<Next>(clock)),
      thread_(kEndLimit, clock),
      teller_(kWordsLimit, clock) {
  next_->on_failure = std::move(on_failure);
}

absl::StatusOr<std::unique_ptr<JobFile>> JobFile::Open(
    std::string run_dir, const Clock& clock, std::function<void(const std::string&)> on_failure) {
  auto file =
      std::unique_ptr<JobFile>(new JobFile(std::move(run_dir), clock, std::move(on_failure)));
  if (file->thread_.is_running() && file->teller_.is_running()) return file;
  return absl::ResourceExhaustedError(
      absl::StrCat("start a thread for the job's file: ", kNoThreadText));
}

absl::StatusOr<Beginning> JobFile::Begin(uint16_t, Duration timeout) {
  const auto begun = std::make_shared<std::promise<absl::StatusOr<Beginning>>>();
  std::future<absl::StatusOr<Beginning>> beginning = begun->get_future();
  {
    const std::lock_guard lock(next_->mutex);
    next_->asked_at = clock_.Now();
    next_->work = Work::kRead;
  }
  thread_.Post([begun, next = next_, run_dir = run_dir_] {
    // First what is there, if anything is: nobody may remove it any more. Then what stands now.
    const UniqueFd earlier = LockJob(run_dir, LOCK_SH);
    absl::StatusOr<Beginning> beginning =
        ReadAndWrite(run_dir, [&next] { next->Turn(Work::kWrite); });
    next->lock = LockJob(run_dir, LOCK_SH);
    next->Turn(Work::kTidy);
    begun->set_value(std::move(beginning));
    ForgetAbandonedJobs(run_dir);
    next->Answered();
  });
  if (IsReadyBy(beginning, clock_.Now() + timeout, clock_)) return beginning.get();
  return BeginAnew();
}

void JobFile::Write(const Record& record, std::function<void()> on_written) {
  const std::lock_guard lock(next_->mutex);
  if (!next_->record) thread_.Post([next = next_, run_dir = run_dir_] { next->Write(run_dir); });
  next_->record = record;
  if (!next_->asked_at) next_->asked_at = clock_.Now();
  if (on_written) next_->on_written.push_back(std::move(on_written));
}

void JobFile::Look(TimePoint now) {
  std::unique_lock lock(next_->mutex);
  if (!next_->asked_at || now - *next_->asked_at < kSilentAfter) return;
  if (std::exchange(next_->is_silence_told, true)) return;
  const Work work = next_->work;
  lock.unlock();
  Tell(SilenceText(work, run_dir_));
}

// Not on the caller's thread: our words may go where nobody answers, either.
void JobFile::Tell(std::string text) const {
  teller_.Post([next = next_, text = std::move(text)] {
    if (next->on_failure) next->on_failure(text);
  });
}

void JobFile::Leave(Duration timeout, std::optional<Duration> nodes_wait) {
  // Without a word of its nodes the job is as it was found.
  if (!nodes_wait) return;
  const auto left = std::make_shared<std::promise<void>>();
  thread_.Post([left, run_dir = run_dir_, wait = *nodes_wait] {
    const std::string path = PathOf(run_dir);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(wait).count();
    const timespec until{.tv_sec = time(nullptr) + seconds, .tv_nsec = 0};
    const timespec times[] = {until, until};
    // What fails leaves the file to the next coordinator, as a killed one does.
    if (utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) {
      (void)rename(path.c_str(), LeftPathOf(run_dir).c_str());
    }
    left->set_value();
  });
  (void)IsReadyBy(left->get_future(), clock_.Now() + timeout, clock_);
}

void JobFile::Forget(Duration timeout) {
  const auto forgotten = std::make_shared<std::promise<void>>();
  thread_.Post([forgotten, run_dir = run_dir_] {
    ForgetJob(run_dir);
    forgotten->set_value();
  });
  const Duration for_words = std::min(kWordsLimit, timeout / 4);
  const TimePoint end = clock_.Now() + timeout;
  if (IsReadyBy(forgotten->get_future(), end - for_words, clock_)) return;
  Tell(StaysText(run_dir_));
  const auto told = std::make_shared<std::promise<void>>();
  teller_.Post([told] { told->set_value(); });
  (void)IsReadyBy(told->get_future(), end, clock_);
}

}  // namespace ddprun::rendezvous
