// Questions to the nodes and what they answer.
#include <algorithm>
#include <limits>
#include <utility>

#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr int64_t kMaxPatienceMs = 60'000;
// A hundred days, so that a sum does not overflow.
constexpr int64_t kMaxLeftMs = 8'640'000'000;

void FactsToProto(const JobFacts& facts, TimePoint now, v1::JobFacts& out) {
  out.set_run_id(CleanText(facts.run_id));
  out.set_phase(facts.phase);
  out.set_round(facts.round.value);
  out.set_node_count(static_cast<uint32_t>(facts.node_count));
  out.set_world_size(static_cast<uint32_t>(facts.world_size));
  out.set_nodes_here(static_cast<uint32_t>(facts.nodes_here));
  out.set_min_nodes(static_cast<uint32_t>(facts.min_nodes));
  out.set_max_nodes(static_cast<uint32_t>(facts.max_nodes));
  out.set_restart_count(static_cast<uint32_t>(facts.restart_count));
  out.set_max_restarts(static_cast<uint32_t>(facts.max_restarts));
  out.set_waiting_for(CleanText(facts.waiting_for));
  out.set_gone(CleanText(facts.gone));
  out.set_bad_nodes(static_cast<uint32_t>(facts.bad_nodes));
  out.set_bad_hosts(CleanText(facts.bad_hosts));
  if (facts.failure) {
    v1::FailureFact& failure = *out.mutable_failure();
    failure.set_rank(static_cast<uint32_t>(facts.failure->rank));
    failure.set_host(CleanText(facts.failure->host));
    failure.set_text(CleanText(facts.failure->text));
    failure.set_round(facts.failure->round.value);
    const auto age = duration_cast<milliseconds>(now - facts.failure->at).count();
    failure.set_age_ms(static_cast<uint64_t>(std::clamp<int64_t>(age, 0, kMaxLeftMs)));
  }
  if (!facts.deadline) return;
  const auto left = duration_cast<milliseconds>(*facts.deadline - now).count();
  out.set_left_ms(static_cast<uint64_t>(std::clamp<int64_t>(left, 0, kMaxLeftMs)));
}

JobFacts FactsFromProto(const v1::JobFacts& in, TimePoint now, CheckedFields& check) {
  const auto count = [&check](const char* field, uint32_t value) {
    return static_cast<int>(check.Range(field, value, 0, kMaxRank));
  };
  JobFacts facts;
  facts.run_id = check.Text("facts.run_id", in.run_id(), 0, kMaxTextBytes);
  facts.phase = check.Text("facts.phase", in.phase(), 0, 32);
  facts.round = Round{in.round()};
  facts.node_count = count("facts.node_count", in.node_count());
  facts.world_size = count("facts.world_size", in.world_size());
  facts.nodes_here = count("facts.nodes_here", in.nodes_here());
  facts.min_nodes = count("facts.min_nodes", in.min_nodes());
  facts.max_nodes = count("facts.max_nodes", in.max_nodes());
  facts.restart_count = count("facts.restart_count", in.restart_count());
  facts.max_restarts = static_cast<int>(
      check.Range("facts.max_restarts", in.max_restarts(), 0, std::numeric_limits<int>::max()));
  facts.waiting_for = check.Text("facts.waiting_for", in.waiting_for(), 0, kMaxTextBytes);
  facts.gone = check.Text("facts.gone", in.gone(), 0, kMaxTextBytes);
  facts.bad_nodes = count("facts.bad_nodes", in.bad_nodes());
  facts.bad_hosts = check.Text("facts.bad_hosts", in.bad_hosts(), 0, kMaxTextBytes);
  if (in.has_failure()) {
    const v1::FailureFact& failure = in.failure();
    facts.failure = FailureFact{
        .rank = count("facts.failure.rank", failure.rank()),
        .host = check.Text("facts.failure.host", failure.host(), 0, 256),
        .text = check.Text("facts.failure.text", failure.text(), 0, kMaxTextBytes),
        .round = Round{failure.round()},
        .at = now -
              milliseconds(check.Range("facts.failure.age_ms", failure.age_ms(), 0, kMaxLeftMs))};
  }
  const int64_t left = check.Range("facts.left_ms", in.left_ms(), 0, kMaxLeftMs);
  if (in.has_left_ms()) facts.deadline = now + milliseconds(left);
  return facts;
}

}  // namespace

void QuestionToProto(const Question& question, v1::Question& out) {
  out.set_id(question.id);
  out.set_to_node(CleanText(question.to.value));
  out.set_body(question.body);
  out.set_patience_ms(static_cast<uint32_t>(std::clamp<int64_t>(
      duration_cast<milliseconds>(question.patience).count(), 0, kMaxPatienceMs)));
}

Question QuestionFromProto(const v1::Question& in, CheckedFields& check) {
  check.Size("question.body", in.body().size(), kMaxQuestionBytes);
  return {.id = in.id(),
          .to = NodeId{check.Text("question.to_node", in.to_node(), 0, kMaxTextBytes)},
          .body = in.body(),
          .patience = milliseconds(
              check.Range("question.patience_ms", in.patience_ms(), 0, kMaxPatienceMs))};
}

void AnswersToProto(const GiveAnswers& given, TimePoint now, v1::Answers& out) {
  out.set_id(given.id);
  for (const NodeAnswer& answer : given.answers) {
    v1::NodeAnswer& one = *out.add_answers();
    one.set_node_id(CleanText(answer.node.value));
    one.set_host(CleanText(answer.host));
    one.set_body(answer.body);
  }
  for (const std::string& host : given.silent) out.add_silent(CleanText(host));
  out.set_is_last(given.is_last);
  if (given.is_last) FactsToProto(given.facts, now, *out.mutable_facts());
}

GiveAnswers AnswersFromProto(const v1::Answers& in, TimePoint now, CheckedFields& check) {
  GiveAnswers given{.session = {}, .id = in.id(), .answers = {}, .is_last = in.is_last()};
  for (const v1::NodeAnswer& one : in.answers()) {
    check.Size("answers.body", one.body().size(), kMaxAnswerBytes);
    given.answers.push_back({NodeId{check.Text("answers.node_id", one.node_id(), 0, kMaxTextBytes)},
                             check.Text("answers.host", one.host(), 0, kMaxTextBytes), one.body()});
  }
  for (const std::string& host : in.silent()) {
    given.silent.push_back(check.Text("answers.silent", host, 0, kMaxTextBytes));
  }
  if (in.has_facts()) given.facts = FactsFromProto(in.facts(), now, check);
  return given;
}

}  // namespace ddprun::rendezvous
