#include "launcher/logs/log_files.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rendezvous/base/check.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {

LogFiles::~LogFiles() { DDP_CHECK(!thread_.joinable()); }

bool LogFiles::Start(std::function<void()> hold_for_test) {
  hold_for_test_ = std::move(hold_for_test);
  thread_ = StartQuietThread([this] { Run(); });
  return thread_.joinable();
}

void LogFiles::End() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LogFiles::Write(const std::shared_ptr<File>& file, std::string_view bytes) {
  if (bytes.empty()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto has_room = [&] {
    return tasks_.empty() || queued_bytes_ + bytes.size() + sizeof(Task) <= kCapacity;
  };
  while (!has_room() && SteadyNow() < busy_since_ + kPatience) {
    changed_.wait_until(lock, ToSteady(busy_since_ + kPatience));
  }
  if (has_room()) {
    return Push({file, std::exchange(file->gap_so_far, std::nullopt), std::string(bytes)});
  }
  file->gap_so_far = bytes.back() != '\n';
  NoteLoss(*file, static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), '\n')), ETIMEDOUT);
}

void LogFiles::Close(std::shared_ptr<File> file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::optional<bool> gap = file->gap_so_far;
  Push({std::move(file), gap, "", true});
}

bool LogFiles::is_idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_idle_awaited_ = !tasks_.empty();
  return tasks_.empty();
}

LogFiles::Losses LogFiles::losses() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return losses_;
}

LogFiles::Break LogFiles::TakeBreak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (untold_breaks_.empty()) return {};
  Break first = std::move(untold_breaks_.front());
  untold_breaks_.pop_front();
  return first;
}

std::string LogFiles::busy_file(Duration at_least) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return SteadyNow() - busy_since_ >= at_least ? busy_file_ : "";
}

TimePoint LogFiles::overdue_at() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return tasks_.empty() ? TimePoint::max() : busy_since_ + kPatience;
}

void LogFiles::Push(Task task) {
  queued_bytes_ += task.bytes.size() + sizeof(Task);
  tasks_.push_back(std::move(task));
  if (tasks_.size() > 1) return;
  NoteProgress();
  changed_.notify_one();
}

void LogFiles::NoteLoss(const File& file, uint64_t lines, int error) {
  losses_.lines += lines;
  losses_.error = error;
  if (errors_.insert(error).second) untold_breaks_.push_back({file.path, error});
}

void LogFiles::NoteProgress() {
  busy_file_ = tasks_.empty() ? "" : tasks_.front().file->path;
  busy_since_ = SteadyNow();
}

void LogFiles::Run() {
  pthread_setname_np(pthread_self(), "ddprun-files");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !tasks_.empty() || is_ending_; });
    if (tasks_.empty()) return;
    Task& task = tasks_.front();  // stays where it is while others are pushed
    lock.unlock();
    Do(task);
    lock.lock();
    queued_bytes_ -= task.bytes.size() + sizeof(Task);
    tasks_.pop_front();
    NoteProgress();
    const bool is_awaited = tasks_.empty() && std::exchange(is_idle_awaited_, false);
    if (is_awaited || !untold_breaks_.empty()) wake_();
    changed_.notify_one();  // only one of the two ever waits: there is nothing, or too much
  }
}

void LogFiles::Do(Task& task) {
  if (hold_for_test_) hold_for_test_();
  FileSink& sink = task.file->sink;
  const uint64_t before = sink.dropped_lines();
  if (task.gap) sink.Skip(*task.gap, ETIMEDOUT);
  sink.Write(task.bytes);
  if (task.is_last) sink.Finish();
  const uint64_t dropped = sink.dropped_lines() - before;
  if (dropped > 0 || sink.is_skipping()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    NoteLoss(*task.file, dropped, sink.last_error());
  }
  task.file.reset();  // which may close it, and hang as well
}

std::string FileErrorText(int error) {
  return error == ETIMEDOUT ? "the file system does not answer" : std::strerror(error);
}

}  // namespace ddprun::launcher
