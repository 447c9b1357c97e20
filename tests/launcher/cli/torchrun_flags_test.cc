// The installed torchrun's own parser is asked for its options: each of them is in our table.
#include <doctest/doctest.h>

#include <chrono>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/cli/cli.h"
#include "launcher/cli/option_table.h"
#include "tests/support/subprocess.h"
#include "tests/support/torch_python.h"

namespace ddprun::launcher {
namespace {

// One line an option: what it stores to, "flag" or "value", "variable" or "-", its spellings.
constexpr char kListOptions[] = R"(
from torch.distributed.argparse_util import check_env, env
from torch.distributed.run import get_args_parser

for action in get_args_parser()._actions:
    if action.option_strings:
        print(action.dest, "flag" if action.nargs == 0 else "value",
              "variable" if isinstance(action, (env, check_env)) else "-",
              *action.option_strings)
)";

TEST_CASE(
    "torchrun's flags: each is ours, in its spellings, with a value or not, with PET_ or not") {
  const std::string& python = testing::FindTorchPython().python;
  if (python.empty()) return testing::SkipWithoutTorch();
  testing::Subprocess lister({python, "-c", kListOptions});
  REQUIRE_MESSAGE(lister.Wait(std::chrono::minutes(5)) == 0, lister.Describe());

  std::istringstream lines(lister.out());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CAPTURE(line);
    std::istringstream words(line);
    std::string name, kind, variable;
    words >> name >> kind >> variable;
    const OptionRow* row = FindOption(name);
    REQUIRE(row != nullptr);
    CHECK(row->is_flag() == (kind == "flag"));
    CHECK(row->has_variable == (variable == "variable"));
    for (std::string spelling; words >> spelling;) {
      const std::vector<std::string> use = row->is_flag()
                                               ? std::vector<std::string>{spelling, "p"}
                                               : std::vector<std::string>{spelling, "0", "p"};
      const auto read = ReadCommandLine(use);
      CAPTURE(spelling);
      REQUIRE_MESSAGE(read.ok(), read.status().ToString());
      CHECK((!read->print.empty() || read->given.contains(row->name)));
    }
  }
  CHECK(count >= 30);
}

}  // namespace
}  // namespace ddprun::launcher
