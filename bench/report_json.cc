#include "bench/report_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::bench {

// For the library's templates, which look for them beside the types.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Row, way, ranks, steps, samples_per_second, step_ms,
                                   communication_ms, exposed_ms, bytes_moved, memory_bytes,
                                   final_loss, halves_apart)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Span, name, begin_ms, end_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Timeline, way, ranks, step, step_ms, exposed_ms, backward_end_ms,
                                   phases, reductions)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SweepPoint, cap_mb, same_mb, buckets, step_ms, exposed_ms,
                                   halves_apart)

namespace {

using Json = nlohmann::ordered_json;

Json SpansJson(const std::vector<Span>& spans) {
  Json list = Json::array();
  for (const Span& span : spans) {
    list.push_back({{"name", span.name}, {"begin_ms", span.begin_ms}, {"end_ms", span.end_ms}});
  }
  return list;
}

Json RowsJson(const Report& report) {
  Json rows = Json::array();
  for (const Row& row : report.rows) {
    rows.push_back({{"way", Name(row.way)},
                    {"ranks", row.ranks},
                    {"steps", row.steps},
                    {"samples_per_second", row.samples_per_second},
                    {"speedup", Speedup(report, row)},
                    {"efficiency", Speedup(report, row) / row.ranks},
                    {"step_ms", row.step_ms},
                    {"communication_ms", row.communication_ms},
                    {"exposed_communication_ms", row.exposed_ms},
                    {"exposed_communication_share", row.exposed_share()},
                    {"bytes_moved", row.bytes_moved},
                    {"memory_bytes", row.memory_bytes},
                    {"memory_imbalance", MemoryImbalance(row)},
                    {"final_loss", row.final_loss},
                    {"halves_apart", row.halves_apart}});
  }
  return rows;
}

Json SweepJson(const Report& report) {
  const SweepPoint* recommended = RecommendedCap(report);
  if (recommended == nullptr) return {};
  Json points = Json::array();
  for (const SweepPoint& point : report.sweep) {
    points.push_back({{"bucket_cap_mb", point.cap_mb},
                      {"same_buckets_as_mb", point.same_mb},
                      {"buckets", point.buckets},
                      {"step_ms", point.step_ms},
                      {"exposed_communication_ms", point.exposed_ms},
                      {"halves_apart", point.halves_apart}});
  }
  return {{"ranks", report.sweep_ranks},
          {"recommended_bucket_cap_mb", recommended->cap_mb},
          {"points", points}};
}

}  // namespace

std::string ReportJson(const Report& report) {
  Json timelines = Json::array();
  for (const Timeline& timeline : report.timelines) {
    timelines.push_back({{"way", Name(timeline.way)},
                         {"ranks", timeline.ranks},
                         {"step", timeline.step},
                         {"step_ms", timeline.step_ms},
                         {"exposed_communication_ms", timeline.exposed_ms},
                         {"backward_end_ms", timeline.backward_end_ms},
                         {"phases", SpansJson(timeline.phases)},
                         {"reductions", SpansJson(timeline.reductions)}});
  }
  const Machine& machine = report.machine;
  const std::string difference = LossDifference(report);
  const Json all = {{"machine",
                     {{"device", machine.device()},
                      {"gpus", machine.gpus},
                      {"cores", machine.cores},
                      {"core_quota", machine.core_quota > 0 ? Json(machine.core_quota) : Json()},
                      {"free_memory_bytes", machine.memory_bytes},
                      {"load", machine.load}}},
                    {"model",
                     {{"parameters", report.model.parameters},
                      {"layers", report.model.layers},
                      {"global_batch", report.model.global_batch}}},
                    {"rows", RowsJson(report)},
                    {"bucket_cap_sweep", SweepJson(report)},
                    {"timelines", timelines},
                    {"loss_steps", kLossSteps},
                    {"loss_tolerance", kLossTolerance},
                    {"losses_equal", difference.empty()},
                    {"failure", report.failure},
                    {"verdict", Verdict(report)},
                    {"comparison", Comparison(report)},
                    {"uncertainty", Uncertainty(report)}};
  return absl::StrCat(all.dump(2), "\n");
}

std::string EncodeFound(const Report& found) {
  const nlohmann::json all = {{"rows", found.rows},
                              {"timelines", found.timelines},
                              {"sweep_ranks", found.sweep_ranks},
                              {"sweep", found.sweep}};
  return absl::StrCat(all.dump(), "\n");
}

absl::StatusOr<Report> DecodeFound(std::string_view line) {
  try {
    nlohmann::json all = nlohmann::json::parse(line);
    for (nlohmann::json& row : all.at("rows")) {
      // What is no number is null on the way.
      nlohmann::json& loss = row.at("final_loss");
      if (loss.is_null()) loss = std::numeric_limits<double>::quiet_NaN();
    }
    Report found;
    all.at("rows").get_to(found.rows);
    all.at("timelines").get_to(found.timelines);
    all.at("sweep_ranks").get_to(found.sweep_ranks);
    all.at("sweep").get_to(found.sweep);
    return found;
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat("read what a rank has found: ", error.what()));
  }
}

}  // namespace ddprun::bench
