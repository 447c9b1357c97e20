#include "launcher/doctor/doctor_options.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

DoctorOptions Parsed(const Words& words) {
  const auto options = ParseDoctorOptions(words);
  REQUIRE(options.ok());
  return *options;
}

TEST_CASE("doctor options: each may be given or not, in any order") {
  CHECK_FALSE(Parsed({}).requires_cuda);
  CHECK_FALSE(Parsed({}).is_json);
  CHECK(Parsed({"--require", "cuda"}).requires_cuda);
  CHECK(Parsed({"--require=cuda"}).requires_cuda);
  CHECK(Parsed({"--json", "--require", "cuda"}).is_json);
  CHECK(Parsed({"--json", "--require", "cuda"}).requires_cuda);
  CHECK(Parsed({"--help"}).is_help);
  CHECK(Parsed({"-h", "--bogus"}).is_help);
}

TEST_CASE("doctor options: what is wrong is quoted with what is right") {
  struct Row {
    Words words;
    std::string quoted;
    std::string accepted;
  };
  const std::vector<Row> rows = {
      {{"--bogus"}, "'--bogus'", "--require cuda or --json"},
      {{"--json=1"}, "'--json=1'", "--json"},
      {{"now"}, "'now'", "./doctor"},
      {{""}, "''", "--json"},
      {{"-x"}, "'-x'", "--json"},
      {{"--requires=cuda"}, "'--requires=cuda'", "--require cuda"},
      {{"--require"}, "'--require'", "--require cuda"},
      {{"--require="}, "''", "expected cuda"},
      {{"--require", "foo"}, "'foo'", "expected cuda"},
      {{"--require", "CUDA"}, "'CUDA'", "expected cuda"},
      {{"--require=a\nb"}, "'a\\nb'", "expected cuda"},
      {{"--require", "cuda", "--require=rocm"}, "'rocm'", "expected cuda"},
  };
  for (const Row& row : rows) {
    const absl::Status status = ParseDoctorOptions(row.words).status();
    const std::string message(status.message());
    CAPTURE(message);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(message.rfind("doctor: ", 0) == 0);
    CHECK(message.find(row.quoted) != std::string::npos);
    CHECK(message.find(row.accepted) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace ddprun::launcher
