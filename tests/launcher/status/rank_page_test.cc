#include "launcher/status/rank_page.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "tests/support/scarce_descriptors.h"
#include "worker_runtime/counters_page.h"

namespace ddprun::launcher {
namespace {

using namespace ddp::internal;  // NOLINT(google-build-using-namespace): the layout's names

// A worker's mapping of the page.
class Mapped {
 public:
  explicit Mapped(const RankPage& page)
      : words_(static_cast<uint64_t*>(
            mmap(nullptr, kCountersBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page.fd(), 0))) {
    REQUIRE(words_ != MAP_FAILED);
  }
  ~Mapped() { munmap(words_, kCountersBytes); }
  void Set(size_t word, uint64_t value) {
    std::atomic_ref<uint64_t>(words_[word]).store(value, std::memory_order_release);
  }
  uint64_t at(size_t word) const { return words_[word]; }
  void SetName(size_t slot, const char* name, size_t size) {
    std::memcpy(&words_[kFirstGroupWord + slot * kGroupWords + kGroupNameWord], name, size);
  }

 private:
  uint64_t* words_;
};

std::unique_ptr<RankPage> MakePage() {
  absl::StatusOr<std::unique_ptr<RankPage>> page = RankPage::Make();
  REQUIRE_MESSAGE(page.ok(), page.status().ToString());
  return *std::move(page);
}

TEST_CASE("rank page: it is made with its magic and version, and otherwise empty") {
  const auto page = MakePage();
  const Mapped worker(*page);
  CHECK(worker.at(kMagicWord) == kCountersMagic);
  CHECK(worker.at(kVersionWord) == kCountersVersion);
  for (size_t word = 2; word < kCounterWords; ++word) CHECK(worker.at(word) == 0);
  CHECK(page->Read().steps == 0);
  CHECK(page->Read().groups.empty());
  CHECK((fcntl(page->fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("rank page: nobody can take the page away, not even who has its descriptor") {
  const auto page = MakePage();
  CHECK(ftruncate(page->fd(), 0) != 0);
  CHECK(errno == EPERM);
  CHECK(ftruncate(page->fd(), 1 << 20) != 0);
  CHECK(fcntl(page->fd(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  struct stat info {};
  REQUIRE(fstat(page->fd(), &info) == 0);
  CHECK(info.st_size == static_cast<off_t>(kCountersBytes));
  // A hole reads as zeros.
  if (fallocate(page->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kCountersBytes) == 0) {
    CHECK(page->Read().steps == 0);
  }
}

TEST_CASE("rank page: what the worker writes is read, also without the agent's descriptor") {
  const auto page = MakePage();
  Mapped worker(*page);
  page->CloseDescriptor();
  CHECK(page->fd() == -1);
  for (size_t word = kPhaseWord; word <= kCheckpointTimeWord; ++word) worker.Set(word, word * 10);
  worker.Set(kPassWord, uint64_t{1} << 32 | 15);
  worker.Set(kBackwardWord, 170);
  for (size_t i = 0; i < 8; ++i) worker.Set(kFirstBucketWord + i, i << 32 | (i + 5));
  const size_t slot = kFirstGroupWord + 2 * kGroupWords;
  worker.Set(slot + kGroupKeyWord, 99);
  worker.Set(slot + kGroupPlaceWord, uint64_t{3} << 32 | 8);
  worker.Set(slot + kGroupCalledWord, 7);
  worker.Set(slot + kGroupDoneWord, 5);
  worker.Set(slot + kGroupCalledAtWord, 70);
  worker.Set(slot + kGroupDoneAtWord, 50);
  worker.Set(slot + kGroupBusySinceWord, 60);
  worker.Set(slot + kGroupOpWord, 4);
  worker.SetName(2, "world", 5);
  const RankCounts counts = page->Read();
  CHECK(counts.phase == 30);
  CHECK(counts.phase_since_ns == 40);
  CHECK(counts.steps == 50);
  CHECK(counts.step == 60);
  CHECK(counts.step_at_ns == 70);
  CHECK(counts.samples == 80);
  CHECK(counts.first_step_at_ns == 90);
  CHECK(counts.longest_step_ns == 100);
  CHECK(counts.step_time_ns == 110);
  CHECK(counts.waited_ns == 120);
  CHECK(counts.exposed_ns == 130);
  CHECK(counts.evaluation_ns == 140);
  CHECK(counts.checkpoint_ns == 150);
  CHECK(counts.buckets == 15);
  CHECK(counts.backward_ns == 170);
  REQUIRE(counts.bucket_words.size() == 8);
  CHECK(counts.bucket_words[7].start_us == 7);
  CHECK(counts.bucket_words[7].end_us == 12);
  REQUIRE(counts.groups.size() == 1);
  const GroupCounts& group = counts.groups[0];
  CHECK(group.key == 99);
  CHECK(group.rank == 3);
  CHECK(group.size == 8);
  CHECK(group.called == 7);
  CHECK(group.done == 5);
  CHECK(group.called_at_ns == 70);
  CHECK(group.done_at_ns == 50);
  CHECK(group.busy_since_ns == 60);
  CHECK(group.op == 4);
  CHECK(group.name == "world");
}

TEST_CASE("rank page: a name without an end is as long as its place, and all slots are read") {
  const auto page = MakePage();
  Mapped worker(*page);
  const std::string name(kGroupNameBytes, 'n');
  for (size_t slot = 0; slot < kGroupSlots; ++slot) {
    worker.Set(kFirstGroupWord + slot * kGroupWords, slot + 1);
    worker.SetName(slot, name.data(), name.size());
  }
  const RankCounts counts = page->Read();
  CHECK(counts.groups.size() == kGroupSlots);
  for (const GroupCounts& group : counts.groups) CHECK(group.name == name);
}

TEST_CASE("rank page: it is read while the worker writes anything anywhere") {
  const auto page = MakePage();
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    Mapped worker(*page);
    std::mt19937_64 random(1);
    while (!is_over) worker.Set(random() % kCounterWords, random());
  });
  for (int i = 0; i < 2000; ++i) {
    const RankCounts counts = page->Read();
    CHECK(counts.groups.size() <= kGroupSlots);
    for (const GroupCounts& group : counts.groups) CHECK(group.name.size() <= kGroupNameBytes);
  }
  is_over = true;
  writer.join();
}

TEST_CASE("rank page: a pass that is told meanwhile is read whole or not at all") {
  const auto page = MakePage();
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    Mapped worker(*page);
    for (uint64_t number = 1; !is_over; ++number) {
      worker.Set(kPassWord, 0);
      worker.Set(kBackwardWord, number);
      for (size_t i = 0; i < kBucketWords; ++i) worker.Set(kFirstBucketWord + i, number);
      worker.Set(kPassWord, number << 32 | kBucketWords);
      for (uint64_t pause = number % 512; pause > 0 && !is_over; --pause) continue;
    }
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  int wholes = 0;
  while (wholes < 1000 && std::chrono::steady_clock::now() < deadline) {
    const RankCounts counts = page->Read();
    wholes += counts.bucket_words.empty() ? 0 : 1;
    for (const BucketCounts& bucket : counts.bucket_words) {
      CHECK(bucket.end_us == static_cast<uint32_t>(counts.backward_ns));
    }
  }
  is_over = true;
  writer.join();
  CHECK(wholes == 1000);
}

TEST_CASE("rank page: without a descriptor it is an error that says for what") {
  const ddprun::testing::ScarceDescriptors scarce;
  const auto last = RankPage::Make();
  const auto none = RankPage::Make();
  REQUIRE(!none.ok());
  CHECK(none.status().message().find("make memory for a worker's counters") == 0);
}

}  // namespace
}  // namespace ddprun::launcher
