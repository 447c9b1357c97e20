// How ranks that share memory tell each other what went wrong.
#include "worker_runtime/comm/shm/shm_domain.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/contains.h"
#include "worker_runtime/comm/shm/shm_layout.h"

namespace ddp::internal {
namespace {

using ddprun::testing::Contains;

// Every rank's view of one memory, all in this process.
struct Views {
  explicit Views(int count) {
    absl::StatusOr<ddprun::UniqueFd> made = ShmDomain::CreateMemory(count);
    DDP_CHECK(made.ok());
    memory = *std::move(made);
    std::vector<int> all;
    for (int rank = 0; rank < count; ++rank) all.push_back(rank);
    for (int rank = 0; rank < count; ++rank) {
      ddprun::UniqueFd copy(fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
      auto mapped = ShmDomain::Map(std::move(copy), all, rank);
      DDP_CHECK(mapped.ok());
      ranks.push_back(*std::move(mapped));
    }
  }

  ddprun::UniqueFd memory;
  std::vector<std::unique_ptr<ShmDomain>> ranks;
};

std::string Told(const ShmDomain& domain) { return std::string(domain.failure().message()); }

TEST_CASE("shm domain: a rank that died while it wrote a failure keeps nobody from telling one") {
  Views views(2);
  // What such a rank 0 leaves behind: words, and nothing that says they count.
  const size_t bytes = ControlBytes(2);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, views.memory.get(), 0);
  REQUIRE(memory != MAP_FAILED);
  std::strcpy(LinesOf(static_cast<char*>(memory))[0].failure.reason, "half a sen");
  munmap(memory, bytes);
  CHECK(views.ranks[0]->failure().ok());
  CHECK(views.ranks[1]->failure().ok());

  views.ranks[1]->Fail(absl::AbortedError("aborted by rank 1"));
  CHECK(Told(*views.ranks[0]) == "aborted by rank 1");
  CHECK(absl::IsAborted(views.ranks[0]->failure()));
}

TEST_CASE("shm domain: of failures told at once every rank hears the same one, whole") {
  for (int attempt = 0; attempt < 200; ++attempt) {
    Views views(3);
    const std::string words[] = {std::string(900, 'a'), std::string(900, 'b'),
                                 std::string(2000, 'c')};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {  // rank 0 from two threads
      threads.emplace_back([&, i] {
        views.ranks[i % 3]->Fail(absl::UnavailableError(words[i % 3]));
        const std::string told = Told(*views.ranks[(i + 1) % 3]);
        const size_t length = told[0] == 'c' ? Failure::kReasonBytes - 1 : 900;
        if (told != std::string(length, told[0])) ddprun::CheckFailed(told.c_str(), __FILE__, i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(Told(*views.ranks[0]) == Told(*views.ranks[1]));
    CHECK(Told(*views.ranks[0]) == Told(*views.ranks[2]));
  }
}

// Rank 1 stays where it is: one step behind, or more.
TEST_CASE("shm domain: a rank that has entered the operation is not late in its further steps") {
  Views views(2);
  ShmDomain &first = *views.ranks[0], &second = *views.ranks[1];
  Op op;
  op.kind = OpKind::kBarrier;
  op.sequence = 1;
  op.deadline = Clock::now() + std::chrono::hours(1);
  auto entered = std::async(std::launch::async,
                            [&] { return second.Agree(op, Location(), second.NextStep()); });
  REQUIRE(first.Agree(op, Location(), first.NextStep()).ok());
  REQUIRE(entered.get().ok());
  CHECK(first.LateRanks().empty());

  op.deadline = Clock::now();
  absl::Status status = first.Meet(op, first.NextStep());
  CHECK(first.LateRanks().empty());
  CHECK(status.message() == Contains("rank 1 did not finish"));
  // Of an operation that is done in pieces, each after a meeting of its own.
  status = first.Agree(op, Location(), first.NextStep());
  CHECK(first.LateRanks().empty());
  CHECK(status.message() == Contains("rank 1 did not finish"));

  op.sequence = 2;
  status = first.Agree(op, Location(), first.NextStep());
  CHECK(first.LateRanks() == std::vector<int>{1});
  CHECK(status.message() == Contains("rank 1 did not arrive"));
  CHECK(second.LateRanks().empty());
}

}  // namespace
}  // namespace ddp::internal
