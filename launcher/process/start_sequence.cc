#include "launcher/process/start_sequence.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <boost/asio/post.hpp>

#include "rendezvous/base/check.h"

namespace ddprun::launcher {

using boost::asio::posix::stream_descriptor;

namespace {

constexpr Duration kHeldAgain = std::chrono::milliseconds(10);  // is_held_for_test

}  // namespace

StartSequence::StartSequence(boost::asio::io_context& io, Options options, Callbacks callbacks)
    : io_(io),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      hold_timer_(io),
      slow_timer_(io),
      read_end_(io) {}

void StartSequence::Begin(std::vector<SpawnRequest> requests) {
  DDP_CHECK(!requests.empty() && !read_end_.is_open() && !is_starting_);
  ++run_;
  requests_ = std::move(requests);
  next_ = 0;
  is_starting_ = true;
  PostNext();
}

void StartSequence::Stop() {
  slow_timer_.cancel();
  is_starting_ = false;
  write_end_.Reset();
}

void StartSequence::End() {
  ++run_;
  is_starting_ = false;
  hold_timer_.cancel();
  if (read_end_.is_open()) EndBatch();
}

void StartSequence::StartNext() {
  const size_t index = next_++;
  const auto fail = [&](const char* operation, int error) {
    Stop();
    callbacks_.on_failed(index, DescribeMachineFailure(operation, error));
  };
  if (!read_end_.is_open()) {
    if (const int error = BeginBatch(); error != 0) return fail("pipe", error);
  }
  auto child = std::make_unique<SpawnedChild>(std::move(requests_[index]), options_.baseline,
                                              write_end_.get());
  const pid_t pid = child->pid();
  if (pid < 0) return fail("clone", child->error());
  batch_[pid] = {index, std::move(child)};
  is_starting_ = next_ < requests_.size();
  if (index == 0 || !is_starting_) {
    write_end_.Reset();
  } else {
    PostNext();
  }
  callbacks_.on_started(index, pid);
}

void StartSequence::PostNext() {
  if (next_ != 0 && options_.is_held_for_test && options_.is_held_for_test()) {
    hold_timer_.expires_after(kHeldAgain);
    hold_timer_.async_wait([this, run = run_](boost::system::error_code error) {
      if (!error && is_starting_ && run == run_) PostNext();
    });
    return;
  }
  boost::asio::post(io_, [this, run = run_] {
    if (is_starting_ && run == run_) StartNext();
  });
}

int StartSequence::BeginBatch() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  boost::system::error_code error;
  if (fcntl(read_end.get(), F_SETFL, O_NONBLOCK) != 0) return errno;
  if (read_end_.assign(read_end.get(), error)) return error.value();
  read_end.Release();
  write_end_ = std::move(write_end);
  AwaitFailures();
  slow_timer_.expires_after(options_.slow_after);
  slow_timer_.async_wait([this, run = run_](boost::system::error_code failure) {
    if (failure || run != run_ || batch_.empty()) return;
    callbacks_.on_slow(batch_.begin()->second.process->executable());
  });
  return 0;
}

void StartSequence::AwaitFailures() {
  read_end_.async_wait(stream_descriptor::wait_read, [this](boost::system::error_code error) {
    if (error) return;  // the batch is over, or this object gone
    Check();
    if (read_end_.is_open()) AwaitFailures();
  });
}

void StartSequence::Check() {
  while (const std::optional<ChildFailure> failure = NextFailure()) {
    const Child& child = batch_.at(failure->pid);
    callbacks_.on_failed(child.index, DescribeSpawnFailure(child.process->executable(), *failure));
  }
  if (!is_batch_done_) return;
  EndBatch();
  if (is_starting_) PostNext();
}

std::optional<ChildFailure> StartSequence::NextFailure() {
  ChildFailure failure;
  ssize_t size = -1;
  do {
    if (!read_end_.is_open() || is_batch_done_) return std::nullopt;
    size = read(read_end_.native_handle(), &failure, sizeof(failure));
  } while (size < 0 && errno == EINTR);
  is_batch_done_ = size == 0;
  DDP_CHECK(size >= 0 || errno == EAGAIN);
  if (size <= 0) return std::nullopt;
  DDP_CHECK(size == static_cast<ssize_t>(sizeof(failure)));  // written in one piece
  return failure;
}

void StartSequence::EndBatch() {
  write_end_.Reset();
  while (NextFailure()) {
  }
  if (!is_batch_done_) {
    // They may yet come to their exec, hours later even, where a file system hangs.
    for (auto& [pid, child] : batch_) static_cast<void>(child.process.release());
  }
  batch_.clear();
  is_batch_done_ = false;
  boost::system::error_code ignored;
  read_end_.close(ignored);
  slow_timer_.cancel();
  // Workers that took their own score in our memory gave it to us, too.
  RestoreOomProtection(options_.baseline);
}

}  // namespace ddprun::launcher
