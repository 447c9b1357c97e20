// What other threads ask of the log thread.
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "launcher/logs/log_thread.h"
#include "rendezvous/base/check.h"

namespace ddprun::launcher {

LogThread::~LogThread() { DDP_CHECK(!thread_.joinable()); }

bool LogThread::End(Duration timeout) {
  Post([this] { is_stopping_ = true; });
  const bool has_ended = ended_.get_future().wait_for(timeout) == std::future_status::ready;
  if (has_ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
  return has_ended;
}

void LogThread::Add(StreamPlan plan) {
  // std::function wants something that can be copied.
  auto shared = std::make_shared<StreamPlan>(std::move(plan));
  Post([this, shared] { Open(std::move(*shared)); });
}

void LogThread::SetCopies(bool is_stderr, LineFilter filter, std::shared_ptr<LogFiles::File> file) {
  Post([this, is_stderr, copies = Copies{std::move(filter), std::move(file)}]() mutable {
    copies_[is_stderr] = std::move(copies);
  });
}

void LogThread::CloseAll() {
  Post([this] {
    CloseStreams();
    written_at_.clear();
    tails_.clear();
    outputs_.clear();
  });
}

std::string LogThread::Tail(int local_rank, size_t max_lines, Duration timeout) {
  Post([this, local_rank] {
    if (Stream* stream = FindStderr(local_rank)) stream->was_empty = false;
  });
  Question question;
  question.is_answered = [this, local_rank] {
    Stream* stream = FindStderr(local_rank);
    if (stream != nullptr && !stream->is_paused && !stream->was_empty) Read(*stream);
    stream = FindStderr(local_rank);
    // A terminal hands bytes over a little later than they were written; only its end is sure.
    return stream == nullptr || (!stream->plan.is_terminal && stream->was_empty);
  };
  question.answer = [this, local_rank, max_lines] {
    const auto tail = tails_.find(local_rank);
    return tail == tails_.end() ? std::string() : tail->second.LastLines(max_lines);
  };
  return Ask(std::move(question), timeout);
}

RecentOutput LogThread::Recent(int local_rank, uint64_t from, Duration timeout, uint64_t most) {
  // Shared: the thread may come to it when nobody waits any more.
  const auto recent = std::make_shared<RecentOutput>();
  Question question;
  question.is_answered = [] { return true; };
  question.answer = [this, local_rank, from, most, recent]() mutable {
    const auto output = outputs_.find(local_rank), tail = tails_.find(local_rank);
    recent->has_stdout = output != outputs_.end();
    const TailBuffer* buffer = recent->has_stdout     ? &output->second
                               : tail != tails_.end() ? &tail->second
                                                      : nullptr;
    if (buffer == nullptr) return std::string();
    recent->is_kept = true;
    if (from > buffer->total()) from = 0;  // of the worker before
    const uint64_t begin = buffer->total() - std::min(buffer->total(), most);
    recent->text = buffer->From(std::max(from, begin));
    recent->end = buffer->total();
    const auto written = written_at_.find(local_rank);
    if (written != written_at_.end()) recent->written_at = written->second;
    return std::string("yes");
  };
  return Ask(std::move(question), timeout) == "yes" ? *recent : RecentOutput{};
}

bool LogThread::Drain(Duration timeout) {
  const auto is_drained = [this] {
    return streams_.empty() && files_.is_idle() && stdout_.sink.queued() == 0 &&
           stderr_.sink.queued() == 0;
  };
  Question question;
  question.is_answered = is_drained;
  question.answer = [is_drained] { return is_drained() ? "yes" : ""; };
  return Ask(std::move(question), timeout) == "yes";
}

bool LogThread::Say(const std::string& line, int max_waiting) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (lines_said_ >= max_waiting) return false;
    ++lines_said_;
  }
  Post([this, line] {
    ReadAllOf(stderr_);
    SinkOf(stderr_).AppendMessage(line);
  });
  return true;
}

LogLosses LogThread::losses() const {
  LogLosses sum;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sum = losses_;
  }
  const LogFiles::Losses of_files = files_.losses();
  sum.file_lines = of_files.lines;
  sum.file_error = of_files.error;
  return sum;
}

void LogThread::Post(std::function<void()> command) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    commands_.push_back(std::move(command));
  }
  eventfd_write(wake_.get(), 1);  // EAGAIN: the counter is full, so it is being woken anyway
}

std::string LogThread::Ask(Question question, Duration timeout) {
  question.deadline = SteadyNow() + timeout;
  // The thread answers at the deadline; it gets a little longer to say what it has.
  const auto patience = ToSteady(question.deadline + std::chrono::milliseconds(50));
  const auto reply = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answer = reply->get_future();
  question.reply = reply;
  Post([this, question = std::move(question)] { questions_.push_back(question); });
  return answer.wait_until(patience) == std::future_status::ready ? answer.get() : "";
}

}  // namespace ddprun::launcher
