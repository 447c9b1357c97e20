#include "launcher/check/check_json.h"

#include <nlohmann/json.hpp>

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOrNull(double value) { return value > 0 ? Json(value) : Json(); }

}  // namespace

std::string CheckJson(const CheckFacts& facts, const CheckVerdict& verdict) {
  Json units = Json::array();
  for (const UnitVerdict& row : verdict.units) {
    const UnitFacts& unit = facts.units[static_cast<size_t>(row.unit)];
    units.push_back({{facts.is_by_node ? "node" : "rank", row.unit},
                     {"name", unit.name},
                     {"state", StateWord(row.state)},
                     {"why", row.why},
                     {"times_slower", row.times},
                     {"device", unit.device},
                     {"compute_ms", NumberOrNull(unit.pass_ms)},
                     {"memory_gb_per_s", NumberOrNull(unit.memory_gb_s)},
                     {"within_gb_per_s", NumberOrNull(unit.inside_gb_s)}});
  }
  Json rounds = Json::array();
  for (const auto& round : facts.rounds) {
    Json pairs = Json::array();
    for (const PairResult& result : round) {
      pairs.push_back({{"pair", {result.pair.a, result.pair.b}},
                       {"gb_per_s", NumberOrNull(result.gb_per_s)},
                       {"failure", result.failure}});
    }
    rounds.push_back(std::move(pairs));
  }
  const Json all = {{"sentence", verdict.sentence}, {"is_well", verdict.is_well},
                    {"ranks", facts.ranks},         {"tolerance", facts.tolerance},
                    {"units", std::move(units)},    {"rounds", std::move(rounds)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ddprun::launcher
