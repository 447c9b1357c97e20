#include "launcher/dump/shown_environment.h"

#include <string>

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

// As /proc has it: a zero byte behind each.
std::string Zeroed(std::string text) {
  for (char& byte : text) {
    if (byte == '|') byte = '\0';
  }
  return text;
}

TEST_CASE("environment: what steers the job is shown, secrets are not, others by name") {
  CHECK(ShownEnvironment(Zeroed("RANK=3|HOME=/home/ann|NCCL_DEBUG=INFO|AWS_SECRET_ACCESS_KEY=abc|"
                                "SLURM_JWT=eyJ|DB_PASS=x|MASTER_ADDR=10.0.0.1|SLURM_JOB_ID=7|"
                                "DDPRUN_URL=http://ann:word@h/|=odd|scribble|")) ==
        R"(AWS_SECRET_ACCESS_KEY=set
DB_PASS=set
DDPRUN_URL=http://ann:set@h/
MASTER_ADDR=10.0.0.1
NCCL_DEBUG=INFO
RANK=3
SLURM_JOB_ID=7
SLURM_JWT=set

set as well, values not shown:
HOME
)");
  CHECK(ShownEnvironment("") == "");
}

TEST_CASE("environment: hostile and huge values are escaped and cut") {
  CHECK(ShownEnvironment("RANK=\x1b[31m\n") == "RANK=\\x1b[31m\\n\n");
  CHECK(ShownEnvironment("NCCL_X=" + std::string(100'000, 'y')).size() < 5000);
}

TEST_CASE("command: secrets are masked") {
  CHECK(ShownCommand(Zeroed("python3|train.py|--token|abc|--lr=1|")) ==
        "python3 train.py --token set --lr=1");
  CHECK(ShownCommand("") == "");
}

}  // namespace
}  // namespace ddprun::launcher
