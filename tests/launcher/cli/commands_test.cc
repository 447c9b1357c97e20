// The command lines of ddprun's commands.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/cli/cli.h"
#include "launcher/cli/option_table.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

absl::StatusOr<ParseResult> Parse(const Words& words) {
  std::vector<const char*> argv = {"ddprun"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), {});
}

absl::StatusOr<ParseResult> Parse(Words words, const std::string& command) {
  words.insert(words.begin(), command);
  return Parse(words);
}

DoctorOptions Doctor(const Words& words) {
  const auto result = Parse(words, "doctor");
  REQUIRE_MESSAGE(result.ok(), result.status().ToString());
  return std::get<DoctorOptions>(*result);
}

TEST_CASE("doctor options: each may be given or not, in any order") {
  CHECK_FALSE(Doctor({}).requires_cuda);
  CHECK_FALSE(Doctor({}).is_json);
  CHECK(Doctor({"--require", "cuda"}).requires_cuda);
  CHECK(Doctor({"--require=cuda"}).requires_cuda);
  CHECK(Doctor({"--json", "--require", "cuda"}).is_json);
  CHECK(Doctor({"--json", "--require", "cuda"}).requires_cuda);
  CHECK(Doctor({"--js", "--req=cuda"}).requires_cuda);
}

TEST_CASE("doctor options: what is wrong is quoted with what is right") {
  struct Row {
    Words words;
    std::string quoted;
    std::string accepted;
  };
  const std::vector<Row> rows = {
      {{"--bogus"}, "'--bogus'", "--require cuda, --json"},
      {{"--json=1"}, "--json '1'", "takes no value"},
      {{"now"}, "'now'", "./doctor"},
      {{""}, "''", "--json"},
      {{"doctor"}, "'doctor'", "./doctor"},
      {{"--", "now"}, "'now'", "./doctor"},
      {{"--nnodes=1"}, "'--nnodes=1'", "--json"},
      {{"-x"}, "'-x'", "--json"},
      {{"--requires=cuda"}, "'--requires'", "did you mean --require?"},
      {{"--require"}, "'--require'", "--require=cuda"},
      {{"--require="}, "''", "expected cuda"},
      {{"--require", "foo"}, "'foo'", "expected cuda"},
      {{"--require", "CUDA"}, "'CUDA'", "expected cuda"},
      {{"--require=a\nb"}, "'a\\nb'", "expected cuda"},
      {{"--require", "cuda", "--require=rocm"}, "'rocm'", "expected cuda"},
  };
  for (const Row& row : rows) {
    const absl::Status status = Parse(row.words, "doctor").status();
    const std::string message(status.message());
    CAPTURE(message);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(message.rfind("doctor: ", 0) == 0);
    CHECK(message == Contains(row.quoted));
    CHECK(message == Contains(row.accepted));
    CHECK(message != Contains("\n"));
  }
}

TEST_CASE("coordinator options: where it listens, and for which run") {
  const auto coordinator = [](const Words& words) {
    const auto result = Parse(words, "coordinator");
    REQUIRE_MESSAGE(result.ok(), result.status().ToString());
    return std::get<CoordinatorOptions>(*result);
  };
  CHECK(coordinator({}).bind == Endpoint{.host = "", .port = 29400});
  CHECK(coordinator({}).run_id.empty());
  CHECK(coordinator({"--bind=:0"}).bind == Endpoint{.host = "", .port = 0});
  CHECK(coordinator({"--bind", "10.0.0.1"}).bind == Endpoint{.host = "10.0.0.1", .port = 29400});
  CHECK(coordinator({"--bind=[::1]:7"}).bind == Endpoint{.host = "::1", .port = 7});
  CHECK(coordinator({"--rdzv-id", "job 1"}).run_id == "job 1");
}

TEST_CASE("coordinator options: what is wrong is quoted with what is right") {
  const std::string listen =
      "expected HOST:PORT, or :PORT (on all interfaces), with a port from 0, a free one, to 65535";
  const std::vector<std::pair<Words, std::string>> rows = {
      {{"--bind=:65536"}, "--bind ':65536': " + listen},
      {{"--bind=:x"}, "--bind ':x': " + listen},
      {{"--bind=29400"}, "--bind '29400': expected HOST:PORT, or :29400 (on all interfaces)"},
      {{"--bind=:"}, "--bind ':': " + listen},
      {{"--bind="}, "--bind '': " + listen},
      {{"--bind=a b:1"}, "--bind 'a b:1': " + listen},
      {{"--bind"}, "'--bind' needs a value: --bind=[HOST]:PORT"},
      {{"--rdzv-id=a\nb"}, "--rdzv-id 'a\\nb': expected printable characters"},
      {{"--rdzv-id=caf\xe9"}, "--rdzv-id 'caf\\xe9': expected printable characters in UTF-8"},
      {{"--nnodes=2"}, "unknown option '--nnodes=2'; expected --bind [HOST]:PORT, --rdzv-id ID"},
      {{"./train"}, "unexpected argument './train'; expected --bind"},
      {{"--bind=:0", "extra"},
       "unexpected argument 'extra'; expected --bind [HOST]:PORT, --rdzv-id ID, --token-file FILE, "
       "--tls-cert FILE, --tls-key FILE, --tls-ca FILE, --on-bad-node CMD, "
       "--help (if you mean the program coordinator: ./coordinator)"},
      {{"--", "extra"}, "unexpected argument 'extra'; expected --bind"},
      {{"--rdzv-id="}, "--rdzv-id '': expected an id; without the option it is that of the first"},
  };
  for (const auto& [words, message] : rows) {
    const absl::Status status = Parse(words, "coordinator").status();
    CAPTURE(status.message());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(std::string(status.message()).find("coordinator: " + message) == 0);
  }
}

TEST_CASE("bench options: what is measured, for how long, and which files are written") {
  const auto bench = [](Words words) {
    words.insert(words.begin(), "dp-ddp");
    const auto result = Parse(words, "bench");
    REQUIRE_MESSAGE(result.ok(), result.status().ToString());
    return std::get<BenchOptions>(*result);
  };
  CHECK(bench({}).ranks == std::vector<int>{1, 2, 4});
  CHECK(bench({}).seconds_per_row == std::chrono::seconds(3));
  CHECK(bench({}).json_file.empty());
  CHECK(bench({"--world-sizes=4,2,2"}).ranks == std::vector<int>{1, 2, 4});
  CHECK(bench({"--world-sizes", "64"}).ranks == std::vector<int>{1, 64});
  CHECK(bench({"--seconds=0.5"}).seconds_per_row == std::chrono::milliseconds(500));
  CHECK(!bench({}).is_on_gpus);
  CHECK(!bench({"--device=cpu"}).is_on_gpus);
  CHECK(bench({"--device", "cuda"}).is_on_gpus);
  CHECK_FALSE(bench({}).is_json);
  CHECK(bench({"--json", "--html=b.html"}).is_json);
  CHECK(bench({"--json", "--html=b.html"}).json_file.empty());
  CHECK(bench({"--json", "--html=b.html"}).html_file == "b.html");
  CHECK(bench({"--json", "--output", "a.json"}).is_json);
  CHECK(bench({"--output", "a.json"}).json_file == "a.json");
  CHECK(bench({"--output", "a.json"}).warnings.empty());
}

TEST_CASE("bench options: old names are taken, each with a line that says what to write") {
  for (const Words& words :
       {Words{"bench", "dp-ddp", "--json", "a.json"},
        Words{"bench", "--json", "a.json", "--seconds=1"}, Words{"bench", "--js=a.json"}}) {
    const auto result = Parse(words);
    REQUIRE_MESSAGE(result.ok(), result.status().ToString());
    const BenchOptions& bench = std::get<BenchOptions>(*result);
    CHECK(bench.json_file == "a.json");
    CHECK_FALSE(bench.is_json);
    CHECK(bench.warnings ==
          Words{"--json is an old name: instead of bench --json=FILE write bench --output=FILE "
                "(deprecated since ddprun 0.1.0)"});
  }
  const BenchOptions ranks = std::get<BenchOptions>(*Parse({"bench", "--ranks=2"}));
  CHECK(ranks.ranks == std::vector<int>{1, 2});
  CHECK(ranks.warnings.size() == 1);
  CHECK(Parse({"bench", "--ranks=x"}).status().message() == Contains("bench: --ranks 'x': "));
}

TEST_CASE("bench options: what is wrong is quoted with what is right") {
  const std::string ranks = "expected numbers of ranks from 1 to 64 separated by commas, as in";
  const std::string seconds = "expected seconds from 0.1 to 60";
  const std::vector<std::pair<Words, std::string>> rows = {
      {{"ddp"}, "unexpected argument 'ddp'; expected dp-ddp, --world-sizes N,..."},
      {{"--world-sizes=2", "dp-ddp"}, "unexpected argument 'dp-ddp'; expected --world-sizes N,..."},
      {{"dp-ddp", "dp-ddp"}, "unexpected argument 'dp-ddp'; expected --world-sizes N,..."},
      {{"dp-ddp", "--bogus"}, "unknown option '--bogus'; expected dp-ddp, --world-sizes N,..."},
      {{"dp-ddp", "--device=gpu"}, "--device 'gpu': expected cpu or cuda"},
      {{"dp-ddp", "--world-sizes=0"}, "--world-sizes '0': " + ranks},
      {{"dp-ddp", "--world-sizes=x"}, "--world-sizes 'x': " + ranks},
      {{"dp-ddp", "--world-sizes="}, "--world-sizes '': " + ranks},
      {{"dp-ddp", "--world-sizes=1,,2"}, "--world-sizes '1,,2': " + ranks},
      {{"dp-ddp", "--world-sizes=65"}, "--world-sizes '65': " + ranks},
      {{"dp-ddp", "--world-sizes=-1"}, "--world-sizes '-1': " + ranks},
      {{"dp-ddp", "--world-sizes=2,3,4,5,6,7"},
       "--world-sizes '2,3,4,5,6,7': expected at most 6 different"},
      {{"dp-ddp", "--seconds=0"}, "--seconds '0': " + seconds},
      {{"dp-ddp", "--seconds=61"}, "--seconds '61': " + seconds},
      {{"dp-ddp", "--seconds=fast"}, "--seconds 'fast': " + seconds},
      {{"dp-ddp", "--output="}, "--output '': expected a file's path"},
      {{"dp-ddp", "--json="}, "--json '': expected a file's path"},
      {{"--json", "dp-ddp"}, "unexpected argument 'dp-ddp'; expected --world-sizes N,..."},
      {{"--json=a", "--output=b"}, "--output is given by its old name, too: expected one of them"},
  };
  for (const auto& [words, message] : rows) {
    const absl::Status status = Parse(words, "bench").status();
    CAPTURE(status.message());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(std::string(status.message()).find("bench: " + message) == 0);
    CHECK(status.message() != Contains("\n"));
  }
}

TEST_CASE("commands: each is one as the first word alone") {
  const auto program = [](const Words& words) {
    const auto result = Parse(words);
    REQUIRE_MESSAGE(result.ok(), result.status().ToString());
    return std::get<LaunchConfig>(*result).program;
  };
  for (const CommandRow& command : CommandTable()) {
    const std::string name = command.name;
    Words words = {name};
    if (command.subject != nullptr) words.push_back(ChoicesIn(command.subject)[0]);
    if (name == "logs") words.push_back("--rank=0");
    CHECK_FALSE(std::holds_alternative<LaunchConfig>(*Parse(words)));
    CHECK(program({"--", name}) == name);
    CHECK(program({"--standalone", name}) == name);
    CHECK(program({"./" + name}) == "./" + name);
  }
}

std::string Printed(const Words& words) {
  const auto result = Parse(words);
  REQUIRE_MESSAGE(result.ok(), result.status().ToString());
  return std::get<PrintText>(*result).text;
}

std::string Refused(const Words& words) {
  const absl::Status status = Parse(words).status();
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("commands: help and version print what the options do") {
  CHECK(Printed({"help"}) == HelpText(nullptr));
  CHECK(Printed({"help", "stop"}) == HelpText(FindCommand("stop")));
  CHECK(Printed({"help", "stop"}) == Printed({"stop", "--help"}));
  CHECK(Printed({"version"}) == Printed({"--version"}));
  CHECK(Printed({"--help-all"}) == FullHelpText());
  CHECK(Refused({"help", "statsu"}) ==
        "help 'statsu': there is no such command; did you mean status?; ddprun help lists them");
  CHECK(Refused({"help", ""}) == "help '': expected the name of a command (an unset variable?)");
  CHECK(Refused({"help", "stop", "now"}) == Contains("unexpected argument 'now'"));
  CHECK(Refused({"version", "1"}) == Contains("unexpected argument '1'"));
}

TEST_CASE("commands: other launchers' words are refused with what is meant, whatever PATH has") {
  CHECK(Refused({"run", "train.py"}) ==
        "ddprun has no command 'run'; use ddprun [options] PROGRAM (a program of that name is "
        "./run, or -- run)");
  CHECK(Refused({"jobs"}) == Contains("use ddprun list"));
  for (const ForeignWord& foreign : ForeignWords()) {
    const std::string word = foreign.word;
    CHECK(FindCommand(word) == nullptr);
    CHECK(Refused({word}) == Contains("'" + word + "'"));
    CHECK(std::get<LaunchConfig>(*Parse({"--", word})).program == word);
    CHECK(std::get<LaunchConfig>(*Parse({"./" + word})).program == "./" + word);
    CHECK(std::get<LaunchConfig>(*Parse({"--standalone", word})).program == word);
  }
}

TEST_CASE("commands: the variables of options stand in for those of a command that has these") {
  const Environment environment{
      .variables = {"DDPRUN_TOKEN_FILE=/job.token", "PET_RDZV_ID=other", "PET_NNODES=none"}};
  const std::vector<const char*> words = {"ddprun", "coordinator", "--bind=:0"};
  const auto result = ParseCommandLine(3, words.data(), environment);
  REQUIRE(result.ok());
  const auto& options = std::get<CoordinatorOptions>(*result);
  CHECK(options.trust.token == "/job.token");
  CHECK(options.trust.token_source == "DDPRUN_TOKEN_FILE");
  CHECK(options.run_id == "other");
}

TEST_CASE("commands: what bench makes of its old --json is no name that a user could begin") {
  const auto bench = Parse({"bench", "--o=file"});
  REQUIRE(bench.ok());
  CHECK(std::get<BenchOptions>(*bench).json_file == "file");
}

TEST_CASE("commands: the only choice may be left out") {
  CHECK(std::holds_alternative<NewTokenOptions>(*Parse({"token"})));
  CHECK(std::get<BenchOptions>(*Parse({"bench", "--world-sizes=1,2"})).ranks ==
        std::vector<int>{1, 2});
  CHECK(Refused({"token", "old"}) == Contains("unexpected argument 'old'; expected new, "));
  CHECK(Refused({"completion"}) == "completion: expected ddprun completion bash|zsh|tcsh|fish");
  CHECK(Refused({"completion", "csh"}) ==
        "completion 'csh': expected ddprun completion bash|zsh|tcsh|fish");
}

TEST_CASE("commands: a port apart from the option that takes it is no program") {
  CHECK(Refused({"--metrics", "9400", "./train"}) ==
        "--metrics takes its port after '=': --metrics=9400");
  CHECK(Refused({"--dash", ":80", "./train"}) ==
        "--dashboard takes its port after '=': --dashboard=:80");
  CHECK(Refused({"--metrics", "0.0.0.0:9400"}) == Contains("--metrics=0.0.0.0:9400"));
  for (const Words& words : {Words{"--metrics", "./9400"}, Words{"--metrics=1", "9400"},
                             Words{"--nnodes=1", "9400"}, Words{"--metrics", "train:"}}) {
    CHECK(std::get<LaunchConfig>(*Parse(words)).program == words[1]);
  }
}

TEST_CASE("commands: a misspelt option is answered with the one that is near") {
  CHECK(Refused({"status", "--jsn"}) == "status: unknown option '--jsn'; did you mean --json?");
  CHECK(Refused({"logs", "--fallow"}) == "logs: unknown option '--fallow'; did you mean --follow?");
  CHECK(Refused({"status", "--bogus"}) == Contains("'--bogus'; expected --json, --coordinator"));
}

TEST_CASE("commands: --help of each ends the reading") {
  for (const CommandRow& command : CommandTable()) {
    for (const Words& words : {Words{"-h"}, Words{"--help", "--bogus"}, Words{"--he"}}) {
      const auto result = Parse(words, command.name);
      REQUIRE(result.ok());
      CHECK(std::holds_alternative<PrintText>(*result));
    }
  }
}

}  // namespace
}  // namespace ddprun::launcher
