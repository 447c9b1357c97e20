#include "launcher/process/start_sequence.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "rendezvous/base/check.h"

namespace ddprun::launcher {

StartSequence::StartSequence(boost::asio::io_context& io, Options options, Callbacks callbacks)
    : io_(io),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      delay_timer_(io),
      slow_timer_(io) {}

void StartSequence::Begin(size_t count) {
  DDP_CHECK(count > 0 && !batch_ && !is_starting_);
  ++run_;
  count_ = count;
  next_ = 0;
  is_starting_ = true;
  PostNext();
}

void StartSequence::Stop() {
  slow_timer_.cancel();
  if (std::exchange(is_starting_, false) && batch_) batch_->Close();
}

void StartSequence::End() {
  ++run_;
  is_starting_ = false;
  delay_timer_.cancel();
  if (batch_) EndBatch();
}

void StartSequence::Check() {
  if (batch_) batch_->Check();
}

void StartSequence::StartNext() {
  const size_t index = next_++;
  if (!batch_) BeginBatch();
  const SpawnResult result = batch_->Start(callbacks_.request(index));
  if (!result.ok()) {
    Stop();
    return callbacks_.on_failed(index, result);
  }
  children_[result.pid] = index;
  is_starting_ = next_ < count_;
  if (index == 0 || !is_starting_) {
    batch_->Close();
  } else {
    PostNext();
  }
  callbacks_.on_started(index, result.pid);
}

void StartSequence::PostNext() {
  const auto start = [this, run = run_] {
    if (is_starting_ && run == run_) StartNext();
  };
  if (options_.delay_for_test == Duration(0) || next_ == 0) return boost::asio::post(io_, start);
  delay_timer_.expires_after(options_.delay_for_test);
  delay_timer_.async_wait([start](boost::system::error_code error) {
    if (!error) start();
  });
}

void StartSequence::BeginBatch() {
  batch_ = std::make_unique<SpawnBatch>(
      io_, options_.baseline,
      [this](pid_t pid, const SpawnResult& why) { callbacks_.on_failed(children_.at(pid), why); },
      [this] {
        EndBatch();
        if (is_starting_) PostNext();
      });
  slow_timer_.expires_after(options_.slow_after);
  slow_timer_.async_wait([this, run = run_](boost::system::error_code error) {
    if (!error && run == run_ && batch_) callbacks_.on_slow();
  });
}

void StartSequence::EndBatch() {
  batch_.reset();
  children_.clear();
  slow_timer_.cancel();
  // Workers that took their own score in our memory gave it to us, too.
  RestoreOomProtection(options_.baseline);
}

}  // namespace ddprun::launcher
