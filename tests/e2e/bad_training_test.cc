// The trainer given what it cannot train on, under the real ddprun: one line says why, and the
// report carries that line, whichever rank it names.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"

namespace ddprun::testing {
namespace {

using Strings = std::vector<std::string>;

// What is wrong and how the trainer says so.
struct Row {
  Strings arguments;
  int exit_code;
  // All stand in the one line: the value as it was given, the cause, and what would be right.
  Strings says;
};

// Digits that can be trained on, in "digits", and what cannot be used beside them.
class Inputs {
 public:
  Inputs() {
    Subprocess draw({Runfile("tools/make_digits/make_digits"), dir_.File("digits"), "--train",
                     "600", "--test", "100"});
    REQUIRE_MESSAGE(draw.Wait() == 0, draw.Describe());
    std::filesystem::copy(dir_.File("digits"), dir_.File("short"));
    std::filesystem::resize_file(dir_.File("short/train-images-idx3-ubyte"), 1000);
    std::filesystem::create_directory(dir_.File("damaged"));
    std::ofstream(dir_.File("damaged/checkpoint-000001-step-5.ckpt")) << "garbage";
    std::ofstream(dir_.File("file")) << "in the way";
  }

  std::vector<Row> Rows() const {
    const std::string digits = dir_.File("digits");
    const std::string file = dir_.File("file");
    const std::string damaged = dir_.File("damaged");
    const std::string truncated = dir_.File("short");
    return {
        {{"--data", "nope"}, 120, {"\"nope/train-images-idx3-ubyte\"", "no such file"}},
        {{"--data", truncated},
         120,
         {truncated + "/train-images-idx3-ubyte", "truncated: it holds 984 of 470400"}},
        {{"--data", digits, "--checkpoint_dir", file},
         120,
         {"\"" + file, "Not a directory", "--checkpoint_dir takes a directory"}},
        {{"--data", digits, "--epochs", "none"}, 2, {"--epochs", "'none'", "from 1 to"}},
        {{"--data", digits, "--resume"}, 2, {"--resume", "--checkpoint_dir"}},
        {{"--data", digits, "--resume", "--checkpoint_dir", damaged},
         120,
         {"\"" + damaged + "\"", "no usable checkpoint", "remove them to start over"}},
    };
  }

 private:
  TempDir dir_;
};

Strings LinesOf(const std::string& text) {
  Strings lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool Says(const std::string& line, const Row& row) {
  return std::all_of(row.says.begin(), row.says.end(),
                     [&](const std::string& part) { return line.find(part) != std::string::npos; });
}

// The lines of ddprun's report that it took from the stderr of the rank that it names.
Strings QuotedLines(const std::string& err, int rank) {
  const size_t heading = err.find(" of rank " + std::to_string(rank) + "'s stderr:\n");
  if (heading == std::string::npos) return {};
  Strings quoted;
  for (const std::string& line : LinesOf(err.substr(err.find('\n', heading) + 1))) {
    if (line.rfind("  ", 0) != 0) break;
    quoted.push_back(line.substr(2));
  }
  return quoted;
}

TEST_CASE("bad training: one rank says why in one line, and ddprun's report carries it") {
  const Inputs inputs;
  for (const Row& row : inputs.Rows()) {
    Job job;
    Strings arguments = {"--standalone", "--nproc-per-node=1", Runfile("examples/train/train")};
    arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
    auto ddprun = job.RunRaw(arguments);
    REQUIRE_MESSAGE(ddprun->Wait() == row.exit_code, ddprun->Describe());
    CAPTURE(ddprun->Describe());
    const std::string err = ddprun->err();
    // Of its own the trainer writes what stands before the report.
    const Strings own = LinesOf(err.substr(0, err.find("\n\n=")));
    REQUIRE(own.size() == 1);
    CHECK(own[0].rfind("train: ", 0) == 0);
    CHECK(Says(own[0], row));
    CHECK(QuotedLines(err, 0) == own);
    CHECK(err == Contains("rank      : 0 (local_rank: 0)"));
    CHECK(err ==
          Contains("ddprun: exit code " + std::to_string(row.exit_code) + ": that of rank 0"));
    CHECK(job.IsGone());
  }
}

// Two ranks fail of the same thing at nearly the same time. Which of them ends first is made
// certain by a shell around each: that of `late` stays when its trainer has ended.
TEST_CASE("bad training: the report says why, whichever rank fails first") {
  const Inputs inputs;
  for (const Row& row : inputs.Rows()) {
    for (const int late : {0, 1}) {
      Job job;
      Strings arguments = {
          "--standalone",
          "--nproc-per-node=2",
          "/bin/sh",
          "-c",
          "\"$@\"; code=$?; test $RANK = $LATE && exec \"$WAITER\" wait; exit $code",
          "sh",
          Runfile("examples/train/train")};
      arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
      auto ddprun = job.RunRaw(arguments, {.env = {{"LATE", std::to_string(late)},
                                                   {"WAITER", Runfile("tests/e2e/toy_worker")}}});
      REQUIRE_MESSAGE(ddprun->Wait() == row.exit_code, ddprun->Describe());
      CAPTURE(ddprun->Describe());
      const int first = 1 - late;
      CHECK(ddprun->err() == Contains("rank      : " + std::to_string(first) + " "));
      const Strings quoted = QuotedLines(ddprun->err(), first);
      REQUIRE(quoted.size() == 1);
      CHECK(Says(quoted[0], row));
    }
  }
}

}  // namespace
}  // namespace ddprun::testing
