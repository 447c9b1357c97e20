#include "launcher/logs/log_thread.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

constexpr uint64_t kWakeId = 0;
constexpr uint64_t kStdoutId = 1;
constexpr uint64_t kStderrId = 2;
constexpr uint64_t kFirstStreamId = 3;

constexpr size_t kReadBytes = 64 * 1024;
constexpr int kReadsPerTurn = 4;  // then the others have their turn
constexpr std::string_view kCutMark = " [line cut by ddprun at 64 KiB]";

// What one read may bring, so that its lines with their prefixes surely fit into a console that
// is not above its high water mark: at worst every byte is a line.
size_t ReadLimit(const StreamPlan& plan) {
  if (plan.console != StreamPlan::Console::kLines) return kReadBytes;
  constexpr size_t kOtherEnd = 1;  // the newline for another's unfinished line
  constexpr size_t kRoom = ConsoleSink::kCapacity - ConsoleSink::kHighWater -
                           LineSplitter::kMaxLine - 2 * kCutMark.size() - kOtherEnd;
  return std::clamp<size_t>(kRoom / (plan.prefix.size() + 1), 1024, kReadBytes);
}

bool HasBytes(int fd) {
  int bytes = 0;
  return ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

bool IsSameFile(int one, int other) {
  struct stat a = {}, b = {};
  return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LogThread>> LogThread::Start(int stdout_fd, int stderr_fd,
                                                            std::function<void()> hold_for_test) {
  auto self = std::unique_ptr<LogThread>(new LogThread(stdout_fd, stderr_fd));
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kWakeId}};
  if (!self->epoll_.is_open() || !self->wake_.is_open() ||
      epoll_ctl(self->epoll_.get(), EPOLL_CTL_ADD, self->wake_.get(), &event) != 0) {
    return absl::ErrnoToStatus(errno, "set up the log thread");
  }
  if (self->files_.Start(std::move(hold_for_test))) {
    self->thread_ = StartQuietThread([raw = self.get()] { raw->Run(); });
  }
  if (!self->thread_.joinable()) {
    self->files_.End();
    return absl::ResourceExhaustedError(
        absl::StrCat("start a thread for the logs: ", kNoThreadText));
  }
  return self;
}

LogThread::LogThread(int stdout_fd, int stderr_fd)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      stdout_(stdout_fd),
      stderr_(stderr_fd),
      next_id_(kFirstStreamId),
      buffer_(kReadBytes),
      files_([this] { eventfd_write(wake_.get(), 1); }) {
  if (!IsSameFile(stdout_fd, stderr_fd)) return;
  stdout_.sharer = &stderr_;
  stderr_.sharer = &stdout_;
}

void LogThread::Run() {
  pthread_setname_np(pthread_self(), "ddprun-log");
  while (!is_stopping_) {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 WaitMilliseconds());
    RunCommands();
    for (int i = 0; i < count; ++i) {
      const auto found = streams_.find(events[static_cast<size_t>(i)].data.u64);
      if (found != streams_.end() && !found->second.is_paused) Read(found->second);
    }
    Settle();
  }
  CloseStreams();
  Settle();
  files_.End();
  Settle();
  ended_.set_value();
}

int LogThread::WaitMilliseconds() const {
  TimePoint next = std::min({stdout_.sink.NextDeadline(), stderr_.sink.NextDeadline(), show_at_});
  for (const Question& question : questions_) next = std::min(next, question.deadline);
  if (!has_told_busy_) next = std::min(next, files_.overdue_at());
  return PollTimeout(next);
}

void LogThread::RunCommands() {
  eventfd_t ignored;
  eventfd_read(wake_.get(), &ignored);
  std::vector<std::function<void()>> commands;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    commands.swap(commands_);
    lines_said_ = 0;
  }
  for (const auto& command : commands) command();
}

void LogThread::Open(StreamPlan plan) {
  const uint64_t id = next_id_++;
  Output* output = nullptr;
  if (plan.console != StreamPlan::Console::kNone) output = plan.is_stderr ? &stderr_ : &stdout_;
  written_at_.erase(plan.local_rank);
  if (plan.is_stderr) {
    tails_[plan.local_rank] = TailBuffer();
  } else {
    outputs_[plan.local_rank] = TailBuffer();
  }
  const size_t limit = ReadLimit(plan);
  const int fd = plan.read_end.get();
  streams_.emplace(
      id, Stream{.id = id, .plan = std::move(plan), .output = output, .read_limit = limit});
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = id}};
  // Pipes and terminals can always be added; running out of memory is the kernel's end, too.
  DDP_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
}

void LogThread::Read(Stream& stream) {
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    if (MustWait(stream) || !ReadOnce(stream)) return;
  }
}

void LogThread::ReadAllOf(const Output& output) {
  std::vector<uint64_t> ids;  // reading may end a stream
  for (const auto& [id, stream] : streams_) {
    if (stream.output == &output && !stream.is_paused) ids.push_back(id);
  }
  for (const uint64_t id : ids) Read(streams_.at(id));
}

bool LogThread::ReadOnce(Stream& stream) {
  ssize_t length;
  do {
    length = read(stream.plan.read_end.get(), buffer_.data(), stream.read_limit);
  } while (length < 0 && errno == EINTR);
  if (length < 0 && errno == EAGAIN) {
    stream.was_empty = true;
    return false;
  }
  // EIO is how a terminal says that its last writer has gone.
  if (length <= 0) {
    Close(stream);
    return false;
  }
  Deliver(stream, std::string_view(buffer_.data(), static_cast<size_t>(length)));
  // A pipe gives less than asked for only when that was all.
  const bool was_all = !stream.plan.is_terminal && static_cast<size_t>(length) < stream.read_limit;
  stream.was_empty = stream.was_empty || was_all;
  return !was_all;
}

void LogThread::Deliver(Stream& stream, std::string_view bytes) {
  StreamPlan& plan = stream.plan;
  if (plan.file) files_.Write(plan.file, bytes);
  if (plan.is_stderr) tails_[plan.local_rank].Append(bytes);
  const TimePoint now = SteadyNow();
  last_output_at_.store(now, std::memory_order_relaxed);
  written_at_[plan.local_rank] = now;
  const auto output = outputs_.find(plan.local_rank);
  if (output != outputs_.end()) output->second.Append(bytes);
  if (plan.console == StreamPlan::Console::kRaw) {
    SinkOf(*stream.output).AppendRaw(stream.cursor, bytes);
  } else if (plan.console == StreamPlan::Console::kLines) {
    stream.splitter.Push(bytes, [&](const auto& line) { DeliverLine(stream, line); });
    show_at_ = std::min(show_at_, stream.splitter.ShowAt(now));
    FlushCopies(plan.is_stderr);
  }
}

void LogThread::DeliverLine(Stream& stream, const LineSplitter::Line& line) {
  const StreamPlan& plan = stream.plan;
  const std::string_view mark = line.is_cut ? kCutMark : std::string_view();
  SinkOf(*stream.output).AppendLine(plan.prefix, line.text, mark, stream.id, line.shown);
  auto& copies = copies_[plan.is_stderr];
  if (copies) copies->filter.Take(plan.prefix, line.text, mark);
}

void LogThread::ShowUnfinished(TimePoint now) {
  show_at_ = TimePoint::max();
  for (auto& [id, stream] : streams_) {
    if (stream.plan.console != StreamPlan::Console::kLines) continue;
    // The rest of the line may stand in the channel, which is not read because the console is slow.
    if (stream.is_paused) continue;
    LineSplitter& splitter = stream.splitter;
    if (splitter.ShowAt(now) <= now) {
      const std::string_view text = splitter.Unfinished();
      // Or it has come and is not read yet: then this thread is late, and not the worker.
      const bool is_shown = !HasBytes(stream.plan.read_end.get()) &&
                            SinkOf(*stream.output).AppendUnfinished(id, stream.plan.prefix, text);
      splitter.MarkShown(is_shown ? text.size() : 0);
    }
    show_at_ = std::min(show_at_, splitter.ShowAt(now));
  }
}

ConsoleSink& LogThread::SinkOf(Output& output) {
  // At once: what this one gets may be written first.
  if (output.sharer != nullptr &&
      (output.sharer->sink.EndLine() || output.sharer->sink.queued() > 0)) {
    output.sharer->sink.Flush(SteadyNow());
  }
  return output.sink;
}

void LogThread::FlushCopies(bool is_stderr) {
  auto& copies = copies_[is_stderr];
  if (copies) files_.Write(copies->file, copies->filter.Release());
}

// Files of one job are as a rule on one disk: the first says it for all.
void LogThread::TellOfFiles() {
  if (const std::string path = files_.busy_file(LogFiles::kPatience);
      !path.empty() && !std::exchange(has_told_busy_, true)) {
    SinkOf(stderr_).AppendMessage(
        absl::StrCat("ddprun: waiting for ", EscapeControl(path), ": ", FileErrorText(ETIMEDOUT)));
  }
  const auto [path, error] = files_.TakeBreak();
  if (error == 0) return;
  const bool is_full = error == ENOSPC || error == EDQUOT;
  SinkOf(stderr_).AppendMessage(absl::StrCat(
      "ddprun: warning: write log file ", EscapeControl(path), ": ", FileErrorText(error),
      "; the workers go on, and lines are missing there, as in other files that have no room: ",
      is_full ? "make room, or " : "", "choose another place with --log-dir"));
}

void LogThread::Close(Stream& stream) {
  StreamPlan& plan = stream.plan;
  if (plan.console == StreamPlan::Console::kLines) {
    stream.splitter.Finish([&](const auto& line) { DeliverLine(stream, line); });
    FlushCopies(plan.is_stderr);
  }
  if (plan.file) files_.Close(std::move(plan.file));
  // Closing alone would not do while a child between its clone and its exec has a copy of the
  // descriptor: epoll would report the stream's end all the time, to nobody.
  if (!stream.is_paused) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, plan.read_end.get(), nullptr);
  }
  streams_.erase(stream.id);
}

void LogThread::CloseStreams() {
  while (!streams_.empty()) {
    const uint64_t id = streams_.begin()->first;
    // No more than what the channel holds; a writer that is still there does not keep us.
    for (size_t bytes = 0; bytes < ConsoleSink::kCapacity; bytes += kReadBytes) {
      if (!ReadOnce(streams_.begin()->second)) break;
    }
    if (!streams_.empty() && streams_.begin()->first == id) Close(streams_.begin()->second);
  }
  for (auto& copies : copies_) {
    if (copies) files_.Close(std::move(copies->file));
    copies.reset();
  }
}

bool LogThread::MustWait(Stream& stream) {
  if (stream.output == nullptr || !stream.output->sink.should_wait()) return false;
  stream.output->sink.Flush(SteadyNow());
  if (!stream.output->sink.should_wait()) return false;
  // Out of epoll altogether: a channel whose writer has gone would wake us all the time.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream.plan.read_end.get(), nullptr);
  stream.is_paused = true;
  return true;
}

void LogThread::Settle() {
  const TimePoint now = SteadyNow();
  TellOfFiles();
  if (now >= show_at_) ShowUnfinished(now);
  stdout_.sink.Flush(now);
  if (const int error = stdout_.sink.TakeBreak()) {
    stderr_.sink.AppendMessage(
        absl::StrCat("ddprun: warning: from here on lines are missing from the console: ",
                     std::strerror(error)));
  }
  stderr_.sink.Flush(now);
  CountLosses();  // first: who has waited for the drain asks for them next
  AnswerQuestions();
  Watch(stdout_, kStdoutId);
  Watch(stderr_, kStderrId);
  for (auto& [id, stream] : streams_) {
    if (!stream.is_paused || stream.output->sink.should_wait()) continue;
    epoll_event event = {.events = EPOLLIN, .data = {.u64 = id}};
    DDP_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream.plan.read_end.get(), &event) == 0);
    stream.is_paused = false;
  }
}

void LogThread::Watch(Output& output, uint64_t id) {
  const int fd = output.sink.poll_fd();
  const bool is_wanted = fd >= 0 && output.sink.queued() > 0;
  if (is_wanted == output.is_watched) return;
  epoll_event event = {.events = EPOLLOUT, .data = {.u64 = id}};
  // EPERM: a device that is always ready, as /dev/null.
  const int operation = is_wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) output.is_watched = is_wanted;
}

void LogThread::AnswerQuestions() {
  const TimePoint now = SteadyNow();
  std::erase_if(questions_, [now](const Question& question) {
    if (!question.is_answered() && now < question.deadline) return false;
    question.reply->set_value(question.answer());
    return true;
  });
}

void LogThread::CountLosses() {
  LogLosses sum;
  for (const ConsoleSink* console : {&stdout_.sink, &stderr_.sink}) {
    sum.console_lines += console->dropped_lines();
    sum.refused_lines += console->refused_lines();
    if (console->last_error() != 0) sum.console_error = console->last_error();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  losses_ = sum;
}

LogThread::Stream* LogThread::FindStderr(int local_rank) {
  for (auto& [id, stream] : streams_) {
    if (stream.plan.is_stderr && stream.plan.local_rank == local_rank) return &stream;
  }
  return nullptr;
}

}  // namespace ddprun::launcher
