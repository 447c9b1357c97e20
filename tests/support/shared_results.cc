#include "tests/support/shared_results.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>

#include "rendezvous/base/check.h"

namespace ddprun::testing {
namespace {

// Text with room for `kSize` bytes. Its size is set last: a writer may be killed at any point.
template <size_t kSize>
struct Room {
  std::atomic<uint32_t> size;
  char bytes[kSize];

  void Append(std::string_view text) {
    const uint32_t before = size.load();
    const size_t fits = std::min(text.size(), kSize - before);
    std::memcpy(bytes + before, text.data(), fits);
    size.store(before + static_cast<uint32_t>(fits));
  }
  std::string Read() const { return {bytes, std::min<size_t>(size.load(), kSize)}; }
};

// The same in both processes.
double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

struct SharedResults::Header {
  std::atomic<bool> is_finished;
  std::atomic<int> exit_code;
};

// Two pages a case; those that no text reaches are never touched.
struct SharedResults::Slot {
  std::atomic<CaseState> state;
  std::atomic<bool> is_skipped;
  std::atomic<double> started_at;
  std::atomic<double> seconds;
  Room<1000> reason;
  Room<7000> failure;
};

SharedResults::SharedResults(size_t count)
    : size_(sizeof(Slot) * (count + 1)),
      memory_(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  static_assert(sizeof(Header) <= sizeof(Slot));
  DDP_CHECK(memory_ != MAP_FAILED);
  new (memory_) Header;
  for (size_t i = 0; i < count; ++i) new (&slot(i)) Slot;
}

SharedResults::~SharedResults() { munmap(memory_, size_); }

SharedResults::Slot& SharedResults::slot(size_t index) const {
  return static_cast<Slot*>(memory_)[index + 1];
}

void SharedResults::Start(size_t index) {
  slot(index).started_at = NowSeconds();
  slot(index).state = CaseState::kRunning;
}

void SharedResults::AddFailure(size_t index, std::string_view text) {
  const std::lock_guard lock(mutex_);
  slot(index).failure.Append(text);
}

void SharedResults::Skip(size_t index, std::string_view reason) {
  slot(index).reason.Append(reason);
  slot(index).is_skipped = true;
}

void SharedResults::End(size_t index, bool has_passed, double seconds) {
  slot(index).seconds = seconds;
  slot(index).state = has_passed ? CaseState::kPassed : CaseState::kFailed;
}

void SharedResults::Finish(int exit_code) {
  Header& header = *static_cast<Header*>(memory_);
  header.exit_code = exit_code;
  header.is_finished = true;
}

CaseResult SharedResults::Read(size_t index) const {
  const Slot& from = slot(index);
  CaseResult result{.state = from.state, .seconds = from.seconds, .failure = from.failure.Read()};
  if (result.state == CaseState::kRunning) result.seconds = NowSeconds() - from.started_at;
  if (from.is_skipped) result.skip_reason = from.reason.Read();
  return result;
}

std::optional<int> SharedResults::exit_code() const {
  const Header& header = *static_cast<const Header*>(memory_);
  return header.is_finished ? std::optional<int>(header.exit_code) : std::nullopt;
}

}  // namespace ddprun::testing
