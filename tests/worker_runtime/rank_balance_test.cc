#include "ddp/rank_balance.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <map>
#include <string>

#include "ddp/process_group.h"
#include "tests/support/expect.h"
#include "tests/support/rank_processes.h"
#include "tests/support/thread_group.h"
#include "tests/worker_runtime/on_device.h"
#include "worker_runtime/comm/device_timer.h"

namespace ddp {
namespace {

using std::chrono::milliseconds;

ReductionTimes Exposed(milliseconds time) {
  const ReductionTimes::TimePoint start{std::chrono::hours(1)};
  return {.backward_end = start, .communication_end = start + time, .communication = time};
}

TEST_CASE("rank balance: every rank hears every rank's steps, in the order of the ranks") {
  ddprun::testing::ThreadGroup group(3);
  group.Run([](Communicator& communicator) {
    const int rank = communicator.rank();
    StepMetrics metrics(communicator);
    RankBalance balance(communicator);
    balance.Begin();
    // no limit: a figure
    metrics.Add(1, milliseconds(40), Exposed(milliseconds(rank == 1 ? 0 : 30)));
    balance.End();
    const absl::StatusOr<std::vector<RankSteps>> ranks = balance.Gather(metrics);
    REQUIRE(ranks.ok());
    REQUIRE(ranks->size() == 3);
    for (int i = 0; i < 3; ++i) {
      const RankSteps& one = (*ranks)[static_cast<size_t>(i)];
      CHECK(one.step_ms == doctest::Approx(40));
      CHECK(one.self_ms() == doctest::Approx(i == 1 ? 40 : 10));
      CHECK(one.ranks_on_cores == 3);  // of one host
      CHECK(one.hosts == 1);
      CHECK(one.cpu_utilisation >= 0);
    }
    cpu_set_t mine;
    REQUIRE(sched_getaffinity(0, sizeof mine, &mine) == 0);
    CHECK((*ranks)[0].cores == CPU_COUNT(&mine));
  });
}

// In processes, as a host's name is one's.
TEST_CASE("rank balance: ranks on two hosts know it") {
  ddprun::testing::RankProcesses ranks(
      {.world_size = 2,
       .env = {},
       .env_of_rank =
           [](int rank) {
             return std::map<std::string, std::string>{
                 {"DDPRUN_HOST_ID", "host" + std::to_string(rank)}};
           }},
      [](int) {
        auto group = ProcessGroup::FromEnv({.timeout = std::chrono::seconds(20)});
        EXPECT(group.ok());
        Communicator& communicator = (*group)->communicator();
        const auto steps = RankBalance(communicator).Gather(StepMetrics(communicator));
        EXPECT(steps.ok());
        EXPECT((*steps)[0].hosts == 2);
        EXPECT((*steps)[1].hosts == 2);
        return (*group)->Shutdown().ok() ? 0 : 2;
      });
  for (const int rank : {0, 1}) CHECK(ranks.Await(rank) == 0);
}

TEST_CASE("rank balance: without a step nothing is measured") {
  ddprun::testing::ThreadGroup group(1);
  group.Run([](Communicator& communicator) {
    const absl::StatusOr<std::vector<RankSteps>> ranks =
        RankBalance(communicator).Gather(StepMetrics(communicator));
    REQUIRE(ranks.ok());
    CHECK((*ranks)[0].step_ms == 0);
    CHECK((*ranks)[0].step_wait_ms < 0);
    CHECK((*ranks)[0].cpu_utilisation == 0);
    CHECK(SpeedAdvice(*ranks, 0, "no").empty());
  });
}

// Of a GPU that was busy for a quarter of the time, or does not tell.
class BusyDevice final : public internal::OnDevice, private internal::DeviceTimer {
 public:
  BusyDevice(Communicator& host, std::optional<double> share) : OnDevice(host), share_(share) {}
  internal::DeviceTimer* device_timer() override { return this; }
  std::chrono::system_clock::time_point since() const { return since_; }

 private:
  std::unique_ptr<internal::DeviceMoment> Mark(Stream) override { return nullptr; }
  std::optional<double> UtilisationSince(std::chrono::system_clock::time_point since) override {
    since_ = since;
    return share_;
  }

  const std::optional<double> share_;
  std::chrono::system_clock::time_point since_{};
};

TEST_CASE("rank balance: every rank hears how busy every GPU was since the steps began") {
  ddprun::testing::ThreadGroup group(2);
  group.Run([](Communicator& host) {
    BusyDevice device(host, host.rank() == 0 ? std::optional(0.25) : std::nullopt);
    RankBalance balance(device);
    StepMetrics metrics(host);
    const auto before = std::chrono::system_clock::now();
    balance.Begin();
    const auto begun = std::chrono::system_clock::now();
    balance.End();
    balance.Begin();  // the second time that its steps go on
    balance.End();
    const absl::StatusOr<std::vector<RankSteps>> ranks = balance.Gather(metrics);
    REQUIRE(ranks.ok());
    CHECK((*ranks)[0].gpu_utilisation == 0.25);
    CHECK((*ranks)[1].gpu_utilisation < 0);
    CHECK(device.since() >= before);
    CHECK(device.since() <= begun);
  });
}

}  // namespace
}  // namespace ddp
