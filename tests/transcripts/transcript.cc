#include "tests/transcripts/transcript.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "tests/rendezvous/core/machine_view.h"
#include "tests/sim/fake_job.h"

namespace ddprun::rendezvous::testing {
namespace {

using Words = std::vector<std::string>;
using Options = std::map<std::string, std::string>;

Words Split(const std::string& line) {
  std::istringstream stream(line);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Options ParseOptions(const Words& words, size_t first) {
  Options options;
  for (size_t i = first; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    options[words[i].substr(0, equals)] =
        equals == std::string::npos ? "" : words[i].substr(equals + 1);
  }
  return options;
}

// "30s", "200ms".
Duration ParseDuration(const std::string& text) {
  const int64_t number = std::atoll(text.c_str());
  if (text.ends_with("ms")) return std::chrono::milliseconds(number);
  return std::chrono::seconds(number);
}

Health ParseHealth(const std::string& word) {
  return word == "bad"       ? Health::kBad
         : word == "unknown" ? Health::kUnknown
         : word == "healthy" ? Health::kHealthy
                             : Health::kUnchecked;
}

ScaleUp ParseScaleUp(const std::string& word) {
  return word == "restart"    ? ScaleUp::kRestart
         : word == "graceful" ? ScaleUp::kGraceful
                              : ScaleUp::kNow;
}

void ParseBadNodes(const Options& options, BadNodeRules& rules) {
  for (const auto& [key, value] : options) {
    if (key == "health_timeout") {
      rules.has_check = true;
      rules.check_timeout = ParseDuration(value);
    }
    if (key == "health_unknown") rules.refuses_unknown = value == "refuse";
    if (key == "max_node_failures") {
      rules.max_failures = std::atoi(value.c_str());
      rules.failure_rounds = std::atoi(value.c_str() + value.find(':') + 1);
    }
    if (key == "quarantine") rules.quarantine = ParseDuration(value);
    if (key == "max_bad_nodes") rules.max_bad_nodes = std::atoi(value.c_str());
  }
}

Policy ParsePolicy(const Options& options) {
  Policy policy;
  policy.run_id = "job1";
  ParseBadNodes(options, policy.bad_nodes);
  for (const auto& [key, value] : options) {
    if (key == "min") policy.min_nodes = std::atoi(value.c_str());
    if (key == "max") policy.max_nodes = std::atoi(value.c_str());
    if (key == "max_restarts") policy.max_restarts = std::atoi(value.c_str());
    if (key == "max_same_failure") policy.limits.max_same_failure = std::atoi(value.c_str());
    if (key == "max_node_losses") policy.limits.max_node_losses = std::atoi(value.c_str());
    if (key == "max_preemptions") policy.limits.max_preemptions = std::atoi(value.c_str());
    if (key == "backoff") policy.limits.backoff = ParseDuration(value);
    if (key == "budget_period") policy.limits.budget_period = ParseDuration(value);
    if (key == "last_call") policy.last_call = ParseDuration(value);
    if (key == "scale_up") policy.scale_up = ParseScaleUp(value);
    if (key == "join_timeout") policy.join_timeout = ParseDuration(value);
    if (key == "orphan_timeout") policy.orphan_timeout = ParseDuration(value);
    if (key == "evict_after") policy.evict_after = ParseDuration(value);
    if (key == "static") {
      policy.is_static = true;
      policy.static_master_addr = "head";
      policy.static_master_port = 29500;
    }
  }
  return policy;
}

class Runner {
 public:
  // What came of one command.
  std::vector<std::string> Run(const std::string& line) {
    const Words words = Split(line);
    const std::string& verb = words[0];
    if (verb == "policy") {
      const Options options = ParseOptions(words, 1);
      Beginning beginning{.epoch = Epoch{1}, .instance = {7, 1}, .verdict = {}};
      if (options.contains("record_limit")) {
        beginning.record_limit = ParseDuration(options.at("record_limit"));
      }
      job_ = std::make_unique<FakeJob>(ParsePolicy(options), beginning);
      return {};
    }
    if (job_ == nullptr) return {"!! the first command must be policy"};
    if (!RunTime(words) && !(words.size() > 1 && (RunJoining(words) || RunWords(words, line)))) {
      return {"!! unknown command: " + line};
    }
    std::vector<std::string> lines = job_->TakeLines();
    if (verb == "explain") lines.push_back(Explain(job_->machine(), job_->now()));
    if (verb == "state") {
      std::istringstream state(RenderState(job_->machine(), job_->now()));
      for (std::string row; std::getline(state, row);) lines.push_back(row);
    }
    for (; broken_seen_ < job_->broken().size(); ++broken_seen_) {
      lines.push_back("!! " + job_->broken()[broken_seen_]);
    }
    return lines;
  }

 private:
  bool RunTime(const Words& words) {
    if (words[0] == "explain" || words[0] == "state") return true;
    if (words[0] == "restart") {
      job_->Restart(words.size() < 2 || words[1] != "forget");
      return true;
    }
    if (words[0] == "hang_disk") {
      job_->HangDisk();
      return true;
    }
    if (words.size() < 2) return false;
    if (words[0] == "tick") {
      job_->Pass(ParseDuration(words[1]));
    } else if (words[0] == "stall") {
      job_->Stall(ParseDuration(words[1]));
    } else {
      return false;
    }
    return true;
  }

  bool RunJoining(const Words& words) {
    const std::string& name = words[1];
    if (words[0] == "set") {
      Set(job_->node(name), ParseOptions(words, 2));
    } else if (words[0] == "join") {
      job_->Join(name, false, words.size() > 2 && words[2] == "new");
    } else if (words[0] == "attach") {
      job_->Join(name, true, true);
    } else if (words[0] == "stamp" && words.size() > 2) {
      const size_t dot = words[2].find('.');
      job_->node(name).assignment.instance = {7, words.size() > 3 && words[3] == "other" ? 9u : 1u};
      job_->node(name).joined = job_->node(name).assignment.instance;
      job_->node(name).assignment.epoch = Epoch{std::strtoull(words[2].c_str(), nullptr, 10)};
      job_->node(name).assignment.round =
          Round{std::strtoull(words[2].c_str() + dot + 1, nullptr, 10)};
    } else if (words[0] == "break" || words[0] == "close") {
      job_->Break(name, words[0] == "close");
    } else if (words[0] == "silent" || words[0] == "talk") {
      job_->node(name).is_silent = words[0] == "silent";
    } else if (words[0] == "held" && words.size() > 3 && words[2] == "as") {
      Hold(name, job_->node(words[3]).assignment, ParseOptions(words, 4));
    } else {
      return false;
    }
    return true;
  }

  bool RunWords(const Words& words, const std::string& line) {
    FakeNode& node = job_->node(words[1]);
    if (words[0] == "beat") {
      job_->Feed(HeartbeatReceived{node.stamp()});
    } else if (words[0] == "first_ok") {
      const Options options = ParseOptions(words, 2);
      FirstWorkerSucceeded event{.stamp = node.stamp(), .rank = node.first_rank};
      if (options.contains("rank")) event.rank = std::atoi(options.at("rank").c_str());
      if (options.contains("age")) event.age = ParseDuration(options.at("age"));
      job_->Feed(event);
    } else if (words[0] == "ok") {
      const Options options = ParseOptions(words, 2);
      WorkersSucceeded event{node.stamp()};
      if (options.contains("read")) {
        event.stop_read = options.at("read") == "to_end" ? StopRead::kToEnd : StopRead::kToScaleUp;
      }
      job_->Feed(event);
    } else if (words[0] == "health" && words.size() > 2) {
      const std::string said = words.size() > 3 ? words[3] : "";
      job_->Feed(HealthChecked{node.stamp(), {ParseHealth(words[2]), said}});
    } else if (words[0] == "ack") {
      job_->Feed(VerdictAcked{node.stamp()});
    } else if (words[0] == "stop") {
      const bool is_after_step = words.size() > 2 && words[2] == "after_step";
      const bool is_now = words.size() > 2 && words[2] == "now";
      job_->Feed(StopOrdered{node.stamp(),
                             is_after_step ? StopHow::kAfterStep
                             : is_now      ? StopHow::kNow
                                           : StopHow::kGracefully,
                             "ddprun stop on node " + words[1]});
    } else if (words[0] == "fail") {
      job_->Feed(Failure(node, ParseOptions(words, 2)));
    } else if (words[0] == "leave" || words[0] == "preempt") {
      const size_t reason = words[0].size() + 1 + words[1].size();
      job_->Leave(words[1], reason < line.size() ? line.substr(reason + 1) : "",
                  words[0] == "preempt");
    } else {
      return false;
    }
    return true;
  }

  // The node claims the place of another one, more or less.
  void Hold(const std::string& name, Assignment held, const Options& options) {
    for (const auto& [key, value] : options) {
      const int number = std::atoi(value.c_str());
      if (key == "node_rank") held.node_rank = number;
      if (key == "first_rank") held.first_rank = number;
      if (key == "world_size") held.world_size = number;
      if (key == "node_count") held.node_count = number;
      if (key == "round") held.round = Round{static_cast<uint64_t>(number)};
    }
    job_->node(name).assignment = held;
    job_->Join(name, true, true);
  }

  static void Set(FakeNode& node, const Options& options) {
    NodeInfo& info = node.hello.node;
    ParseBadNodes(options, node.hello.policy.bad_nodes);
    for (const auto& [key, value] : options) {
      const int number = std::atoi(value.c_str());
      if (key == "workers") info.local_world_size = number;
      if (key == "role") info.role = value;
      if (key == "rank") info.node_rank = number;
      if (key == "addr") info.advertised_addr = value;
      if (key == "from") node.hello.source_addr = value;
      if (key == "accepted") node.hello.accepted_addr = value;
      if (key == "port") info.store_port = static_cast<uint16_t>(number);
      if (key == "host") info.host = value;
      if (key == "endpoint") info.is_endpoint_node = true;
      if (key == "health") info.health.health = ParseHealth(value);
      if (key == "line") info.health.line = value;
      if (key == "program") info.program = std::stoull(value);
      if (key == "slurm_job") info.cluster.job = "Slurm job " + value;
      if (key == "slurm_step") info.cluster.step = "Slurm step " + value;
      if (key == "slurm_nodes") info.cluster.nodes = number;
      if (key == "slurm_node") info.cluster.node = number;
      if (key == "run") node.hello.policy.run_id = value;
      if (key == "max_restarts") node.hello.policy.max_restarts = number;
      if (key == "max_same_failure") node.hello.policy.limits.max_same_failure = number;
      if (key == "max_node_losses") node.hello.policy.limits.max_node_losses = number;
      if (key == "backoff") node.hello.policy.limits.backoff = ParseDuration(value);
      if (key == "scale_up") node.hello.policy.scale_up = ParseScaleUp(value);
      if (key == "nnodes") {
        node.hello.policy.min_nodes = number;
        node.hello.policy.max_nodes = std::atoi(value.c_str() + value.find(':') + 1);
      }
    }
  }

  static WorkersFailed Failure(const FakeNode& node, const Options& options) {
    WorkersFailed event{.stamp = node.stamp(), .report = {}, .age = Duration(0)};
    FailureReport& report = event.report;
    report.node = node.hello.node.id;
    report.host = node.hello.node.host;
    report.rank = node.first_rank;
    for (const auto& [key, value] : options) {
      const int number = std::atoi(value.c_str());
      if (key == "rank") report.rank = number;
      if (key == "code") report.exit_code = number;
      if (key == "age") event.age = ParseDuration(value);
      if (key == "left_peer") report.left_peer = number;
      if (key == "own_cause") report.has_own_cause = true;
      if (key == "hang") report.is_hang = true;
      if (key == "step") report.step = number;
      if (key == "progress") report.progress = std::chrono::seconds(number);
      if (key == "says") report.error = WorkerError{.message = value};
      if (key == "signal") {
        report.signal = number;
        report.exit_code = 128 + number;
        report.message = "killed by signal " + value;
      }
    }
    return event;
  }

  std::unique_ptr<FakeJob> job_;
  size_t broken_seen_ = 0;
};

}  // namespace

std::string RunTranscript(const std::string& text) {
  Runner runner;
  std::string result;
  std::vector<std::string> seen;
  bool in_expectation = false;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line == "----") {
      result += "----\n";
      for (const std::string& what : seen) result += what + "\n";
      seen.clear();
      in_expectation = true;
    } else if (line.empty()) {
      in_expectation = false;
      result += "\n";
    } else if (!in_expectation) {
      result += line + "\n";
      if (line[0] == '#') continue;
      for (std::string& what : runner.Run(line)) seen.push_back(std::move(what));
    }
  }
  for (const std::string& what : seen) result += "!! not in a block: " + what + "\n";
  return result;
}

}  // namespace ddprun::rendezvous::testing
