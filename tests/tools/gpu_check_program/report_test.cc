#include "tools/gpu_check_program/report.h"

#include <limits>

#include <doctest/doctest.h>

namespace ddprun::gpu_check {
namespace {

TEST_CASE("report: a row is a line of the table") {
  CHECK(Line({"overlap", {Verdict::kMissed, "12 %"}}) == "overlap              missed   12 %");
  CHECK(Line({"torch_job", NotRun("no python3")}) == "torch_job            not run  no python3");
}

TEST_CASE("report: JSON holds any text and no number that it has not") {
  Result result{Verdict::kFailed,
                "said \"no\"\n\xff",
                {{"a", 1.5}, {"b", std::numeric_limits<double>::infinity()}},
                "log"};
  CHECK(ToJson({{"driver", "CUDA 13.0"}}, {{"row", result, 2}}, 1) ==
        "{\n  \"exit_code\": 1,\n  \"machine\": {\"driver\": \"CUDA 13.0\"},\n  \"rows\": [\n"
        "    {\"name\": \"row\", \"verdict\": \"FAILED\", \"seconds\": 2,\n"
        "     \"text\": \"said \\\"no\\\"\\u000a?\",\n"
        "     \"values\": {\"a\": 1.5, \"b\": null},\n     \"log\": \"log\"}\n  ]\n}\n");
}

}  // namespace
}  // namespace ddprun::gpu_check
