// What --event_log_handler=console writes: which events, in which order, and what each says.
#include <algorithm>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/conformance/scenario.h"
#include "tests/support/json.h"

namespace ddprun::testing {
namespace {

std::string Joined(const std::set<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : " | ") + text;
  return all;
}

std::string Text(const Json& json, const std::string& name) {
  return json.get<std::string>(name, kAbsent);
}

// The element of a list of one; what is no list as it stands.
std::string Only(const Json& json, const std::string& name) {
  const auto value = json.get_child_optional(name);
  if (!value) return kAbsent;
  return value->size() == 1 ? value->front().second.data() : value->data();
}

// Of a pid or a time, which are another in every run: whether there is one.
std::string Presence(const std::string& number) {
  const bool is_number =
      !number.empty() && number.find_first_not_of("0123456789.e-") == number.npos;
  return is_number ? "{number}" : number;
}

std::string ErrorOf(const Json& facts) {
  const std::string raw = Text(facts, "raw_error");
  if (raw == "null") return "no error";
  const auto error = ParseJson(raw);
  if (!error) return raw;
  // A recorded exception's stands one level deeper.
  const std::string said = Text(*error, "message.message");
  return (said == kAbsent ? Text(*error, "message") : said) + ", category " +
         Text(*error, "errorTraits.category");
}

// One event: whose and which; whom it is about; how that one ended.
void ObserveEvent(Run& run, const std::string& field, const Json& event, const Json& details) {
  const Json& facts = event.get_child("metadata");
  const std::string state = Text(facts, "state");
  CHECK(Text(event, "name") == "torchelastic.worker.status." + state);
  CHECK(Presence(Text(event, "timestamp")) == "{number}");
  CHECK(Presence(Text(facts, "total_run_time")) == "{number}");
  run.Observe(field, Text(event, "source") + " " + state + ", restart " +
                         Text(facts, "agent_restarts") + ", duration " +
                         Presence(Text(facts, "duration_ms")));
  run.Observe(field + ".node",
              Text(facts, "group_rank") + " of " + Text(details, "group_world_size"));
  run.Observe(field + ".worker",
              "rank " + Text(facts, "global_rank") + ", local " + Only(details, "local_rank") +
                  ", role " + Only(details, "role_rank") + " of " +
                  Only(details, "role_world_size") + ", pid " + Presence(Text(facts, "worker_id")));
  run.Observe(field + ".end", "exit code " + Only(details, "exit_code") + " of pid " +
                                  Presence(Only(details, "worker_pid")) + ", " + ErrorOf(facts));
}

// event.N and what belongs to it; what is alike in all of them; which is the agent's last word.
void ObserveEvents(Run& run) {
  std::set<std::string> jobs, programs;
  std::string ends;
  int count = 0;
  std::stringstream lines(run.node(0).err());
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("{\"name\"", 0) != 0) continue;
    const auto event = ParseJson(line);
    REQUIRE_MESSAGE(event, line);
    const Json& facts = event->get_child("metadata");
    const auto details = ParseJson(Text(facts, "metadata"));
    REQUIRE_MESSAGE(details, line);
    ObserveEvent(run, "event." + std::to_string(count++), *event, *details);
    jobs.insert(Text(facts, "run_id") + " " + Text(facts, "role") + " " +
                Text(facts, "rdzv_backend") + ", host " +
                (Text(facts, "hostname").empty() ? "none" : "named"));
    programs.insert(Text(*details, "entry_point"));
    const std::string told = Text(*event, "source") + " " + Text(facts, "state");
    if (told == "AGENT SUCCEEDED" || told == "AGENT FAILED") ends += "(" + told + ")";
  }
  run.Observe("events", std::to_string(count));
  run.Observe("events.job", Joined(jobs));
  run.Observe("events.program", Joined(programs));
  run.Observe("events.ends", ends);
}

Scenario Telling(const std::string& workers, std::vector<std::string> more,
                 std::vector<std::string> command) {
  std::vector<std::string> options = {"--event_log_handler=console", "--rdzv_id=job1",
                                      "--role=trainer", "--nproc_per_node=" + workers};
  options.insert(options.end(), more.begin(), more.end());
  return {.options = options, .command = std::move(command), .after = ObserveEvents};
}

const std::vector<std::string> kScript = {"--master_addr=localhost", "--master_port={port}"};
const std::vector<std::string> kProgram = {"--master_addr=localhost", "--master_port={port}",
                                           "--no_python"};

TEST_CASE("conformance: the events of a job that succeeds") {
  Scenario scenario = Telling("2", kProgram, {"{toy}"});
  scenario.name = "events";
  Compare(scenario);
}

TEST_CASE("conformance: the events of a job that is restarted") {
  std::vector<std::string> options = kProgram;
  options.push_back("--max_restarts=1");
  Scenario scenario = Telling("1", options, {"{toy}", "exit:3#0"});
  scenario.name = "events_restart";
  Compare(scenario);
}

TEST_CASE("conformance: a worker's failure is one event of its own and one end of the agent") {
  Scenario scenario = Telling(
      "2", kProgram, {"{toy}", "touch:up{rank}", "until:up0", "until:up1", "exit:3@1", "wait"});
  scenario.name = "events_failure";
  Compare(scenario);
}

TEST_CASE("conformance: the event of a recorded exception says what it was") {
  Scenario scenario = Telling("2", kScript, {"{programs}/recorded.py"});
  scenario.name = "events_record";
  scenario.needs_torch = true;
  Compare(scenario);
}

TEST_CASE("conformance: the events of a rendezvous to which nobody else came") {
  Scenario scenario = Telling("1",
                              {"--nnodes=2", "--rdzv_backend=c10d", "--no_python",
                               "--rdzv_endpoint=localhost:{port}", "--rdzv_conf=join_timeout=2"},
                              {"/bin/true"});
  scenario.name = "events_alone";
  Compare(scenario);
}

}  // namespace
}  // namespace ddprun::testing
