#include "bench/report_json.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/bench/example_report.h"
#include "tests/support/json.h"

namespace ddprun::bench {
namespace {

TEST_CASE("report json: a row for each way and number of ranks, with all that was measured") {
  const auto json = testing::ParseJson(ReportJson(ExampleReport()));
  REQUIRE(json.has_value());
  CHECK(json->get_child("rows").size() == 6);
  const testing::Json row = testing::ElementOf(*json, "rows", 2);
  CHECK(row.get<std::string>("way") == "dp");
  CHECK(row.get<int>("ranks") == 4);
  CHECK(row.get<double>("samples_per_second") == doctest::Approx(6400));
  CHECK(row.get<double>("speedup") == doctest::Approx(2));
  CHECK(row.get<double>("efficiency") == doctest::Approx(0.5));
  CHECK(row.get<double>("step_ms") == doctest::Approx(20));
  CHECK(row.get<double>("communication_ms") == doctest::Approx(8));
  CHECK(row.get<double>("exposed_communication_share") == doctest::Approx(0.4));
  CHECK(row.get<uint64_t>("bytes_moved") == 24 << 20);
  CHECK(row.get_child("memory_bytes").size() == 4);
  CHECK(row.get<double>("final_loss") == 2.25);
  CHECK(json->get<bool>("losses_equal"));
  CHECK(json->get<std::string>("failure").empty());
  CHECK(json->get<double>("bucket_cap_sweep.recommended_bucket_cap_mb") == 4);
  CHECK(row.get<double>("halves_apart") == 0);
  const testing::Json line = testing::ElementOf(*json, "timelines", 0);
  CHECK(line.get<int>("step") >= 1);
  CHECK(line.get<double>("exposed_communication_ms") >= 0);
  CHECK(testing::ElementOf(*json, "bucket_cap_sweep.points", 0).get<double>("halves_apart") >= 0);
  CHECK(json->get<std::string>("uncertainty").empty());
  CHECK(json->get_child("timelines").size() == 2);
  CHECK(json->get<std::string>("verdict") == Verdict(ExampleReport()));
}

TEST_CASE("report json: without a sweep there is none, and losses that differ are told") {
  Report report = ExampleReport();
  report.sweep.clear();
  report.rows[1].final_loss = 3;
  const auto json = testing::ParseJson(ReportJson(report));
  REQUIRE(json.has_value());
  CHECK(json->get<std::string>("bucket_cap_sweep") == "null");
  CHECK_FALSE(json->get<bool>("losses_equal"));
}

TEST_CASE("report json: what a rank has found comes back as it was") {
  Report report = ExampleReport();
  report.rows[2].halves_apart = 0.3;
  report.sweep[1].same_mb = {0.5};
  report.sweep[1].halves_apart = 0.2;
  absl::StatusOr<Report> found = DecodeFound(EncodeFound(report));
  REQUIRE(found.ok());
  found->machine = report.machine;
  found->model = report.model;
  CHECK(ReportJson(*found) == ReportJson(report));
}

TEST_CASE("report json: a loss that is no number comes back as none, and is told") {
  Report report = ExampleReport();
  report.rows[1].final_loss = std::nan("");
  const absl::StatusOr<Report> found = DecodeFound(EncodeFound(report));
  REQUIRE(found.ok());
  CHECK(std::isnan(found->rows[1].final_loss));
  CHECK(!LossDifference(*found).empty());
}

TEST_CASE("report json: what is no finding of a rank is an error and no crash") {
  for (const char* text : {"", "{", "[]", "{}", "{\"rows\": 1}", "\xff"}) {
    CHECK(DecodeFound(text).status().code() == absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace ddprun::bench
