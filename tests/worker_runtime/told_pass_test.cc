// What the launcher is told of a backward pass and its buckets. Only children of the test do.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ddp/distributed_data_parallel.h"
#include "launcher/status/rank_page.h"
#include "tests/support/in_child.h"
#include "tests/support/thread_group.h"
#include "worker_runtime/counters.h"

namespace ddp::internal {
namespace {

using ddprun::launcher::BucketCounts;
using ddprun::launcher::RankCounts;
using ddprun::launcher::RankPage;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What an agent knows after `body`.
RankCounts Told(const std::function<std::string()>& body) {
  const auto page = *RankPage::Make();
  CHECK(ddprun::testing::InChild({{kCountersVar, std::to_string(page->fd())}}, body) == "done");
  return page->Read();
}

TEST_CASE("told pass: each bucket has a word, and many share one in their order") {
  for (const size_t count : {1, 14, 15, 29}) {
    CAPTURE(count);
    const RankCounts told = Told([count]() -> std::string {
      std::vector<BucketSpan> spans;
      for (size_t i = 0; i < count; ++i) {
        spans.push_back({microseconds(10 * i), microseconds(10 * i + 7)});
      }
      Counters::OfThisProcess()->TellPass(milliseconds(3), spans);  // no limit: a figure
      return "done";
    });
    CHECK(told.buckets == count);
    CHECK(told.backward_ns == 3'000'000);
    const size_t of_word = (count + 13) / 14;
    REQUIRE(told.bucket_words.size() == (count + of_word - 1) / of_word);
    CHECK(told.bucket_words.front().start_us == 0);
    CHECK(told.bucket_words.front().end_us == 10 * (of_word - 1) + 7);
    CHECK(told.bucket_words.back().end_us == 10 * (count - 1) + 7);
  }
}

TEST_CASE("told pass: what does not fit is cut, and a pass without buckets takes the last away") {
  const RankCounts cut = Told([]() -> std::string {
    const std::vector<BucketSpan> spans = {{-seconds(1), std::chrono::hours(2)}};
    Counters::OfThisProcess()->TellPass(seconds(1), spans);
    return "done";
  });
  REQUIRE(cut.bucket_words.size() == 1);
  CHECK(cut.bucket_words[0].start_us == 0);
  CHECK(cut.bucket_words[0].end_us == UINT32_MAX);
  const RankCounts none = Told([]() -> std::string {
    const std::vector<BucketSpan> spans(3);
    Counters::OfThisProcess()->TellPass(seconds(1), spans);
    Counters::OfThisProcess()->TellPass(seconds(1), {});
    return "done";
  });
  CHECK(none.bucket_words.empty());
}

TEST_CASE("told pass: one a second is due") {
  Told([]() -> std::string {
    Counters& counters = *Counters::OfThisProcess();
    const Counters::Clock::time_point at(seconds(5));
    if (!counters.IsPassDue(at)) return "the first";
    if (counters.IsPassDue(at)) return "the same";
    // no limit: pure
    if (counters.IsPassDue(at + milliseconds(999))) return "a moment later";
    if (!counters.IsPassDue(at + seconds(1))) return "a second later";
    return "done";
  });
}

// Two ranks as threads of this process; `passes` of a model with three parameters, each a bucket.
std::string Train(int passes, bool is_second_used) {
  std::string said = "done";
  ddprun::testing::ThreadGroup group(2);
  group.Run([&](Communicator& communicator) {
    DistributedDataParallelOptions options;
    options.first_bucket_bytes = options.bucket_cap_bytes = 4096;
    options.find_unused_parameters = !is_second_used;
    DistributedDataParallel ddp(communicator, options);
    std::vector<std::vector<float>> values(3, std::vector<float>(1024));
    for (size_t i = 0; i < values.size(); ++i) {
      ddp.AddParameter("p" + std::to_string(i), values[i].data(), 1024, DType::kFloat32);
    }
    absl::Status status = ddp.Finalize();
    for (int pass = 0; pass < passes && status.ok(); ++pass) {
      for (int id = 2; id >= 0 && status.ok(); --id) {
        if (id != 1 || is_second_used) status = ddp.GradientReady(id);
      }
      if (status.ok()) status = ddp.Finish();
    }
    if (!status.ok()) said = std::string(status.message());
  });
  return said;
}

TEST_CASE("told pass: after a pass the page has its buckets, within and behind backward") {
  for (const bool is_second_used : {true, false}) {
    const RankCounts told = Told([is_second_used] { return Train(2, is_second_used); });
    CHECK(told.buckets == 3);
    REQUIRE(told.bucket_words.size() == 3);
    CHECK(told.backward_ns > 0);
    CHECK(told.backward_ns < 60'000'000'000);
    for (const BucketCounts& bucket : told.bucket_words) {
      CHECK(bucket.start_us <= bucket.end_us);
      CHECK(bucket.end_us < 60'000'000);
    }
    // The last is handed over with the last gradient.
    CHECK(told.bucket_words.back().end_us >= told.backward_ns / 1000);
  }
}

TEST_CASE("told pass: a group of one reduces nothing and tells nothing") {
  const RankCounts told = Told([]() -> std::string {
    ddprun::testing::ThreadGroup group(1);
    group.Run([&](Communicator& communicator) {
      DistributedDataParallel ddp(communicator, {});
      std::vector<float> value(8);
      ddp.AddParameter("p", value.data(), value.size(), DType::kFloat32);
      (void)ddp.Finalize();
      (void)ddp.GradientReady(0);
      (void)ddp.Finish();
    });
    return "done";
  });
  CHECK(told.buckets == 0);
  CHECK(told.bucket_words.empty());
}

}  // namespace
}  // namespace ddp::internal
