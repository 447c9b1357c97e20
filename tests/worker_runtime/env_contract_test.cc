#include "worker_runtime/env_contract.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/support/contains.h"

namespace ddp::internal {
namespace {

using Block = std::map<std::string, std::string>;

absl::StatusOr<std::optional<WorkerEnv>> Parse(const Block& block) {
  return ParseWorkerEnv([&](const char* name) -> const char* {
    auto found = block.find(name);
    return found == block.end() ? nullptr : found->second.c_str();
  });
}

Block TwoRanks() {
  return {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
}

TEST_CASE("env contract: what is formatted is read back equal") {
  WorkerEnv env;
  env.rank = 5;
  env.world_size = 8;
  env.local_rank = 1;
  env.local_world_size = 4;
  env.group_rank = 1;
  env.group_world_size = 2;
  env.role_name = "trainer";
  env.role_rank = 2;
  env.role_world_size = 3;
  env.master_addr = "fd00::1";
  env.master_port = 65535;
  env.restart_count = 2;
  env.max_restarts = 3;
  env.run_id = "job 1";
  env.use_agent_store = true;
  env.error_file = "/tmp/x/error.json";
  env.round_key_fd = 199;
  env.round = 18446744073709551615ull;
  env.epoch = 7;
  env.job_mark = "abc";
  auto pairs = FormatWorkerEnv(env);
  auto parsed = Parse(Block(pairs.begin(), pairs.end()));
  REQUIRE(parsed.ok());
  REQUIRE(parsed->has_value());
  CHECK(**parsed == env);

  pairs = FormatWorkerEnv(WorkerEnv{});
  parsed = Parse(Block(pairs.begin(), pairs.end()));
  REQUIRE(parsed.ok());
  REQUIRE(parsed->has_value());
  CHECK(**parsed == WorkerEnv{});
}

TEST_CASE("env contract: without RANK no launcher started this process") {
  auto parsed = Parse({{"WORLD_SIZE", "nonsense"}});
  REQUIRE(parsed.ok());
  CHECK_FALSE(parsed->has_value());
}

TEST_CASE("env contract: the variables PyTorch needs are enough") {
  auto parsed = Parse(TwoRanks());
  REQUIRE(parsed.ok());
  CHECK((*parsed)->rank == 1);
  CHECK((*parsed)->local_world_size == 1);
  CHECK((*parsed)->role_world_size == 2);
  CHECK_FALSE((*parsed)->round.has_value());
  CHECK_FALSE((*parsed)->use_agent_store);
}

TEST_CASE("env contract: a bad value is named with its variable and what is accepted") {
  struct Row {
    const char* name;
    const char* value;
    const char* message;
  };
  const Row rows[] = {
      {"RANK", "2", "RANK=\"2\": expected a whole number from 0 to 1"},
      {"RANK", "-1", "RANK=\"-1\": expected a whole number from 0 to 1"},
      {"RANK", " 1", "RANK=\" 1\": expected a whole number from 0 to 1"},
      {"RANK", "1\x1b[2J", "RANK=\"1\\x1b[2J\": expected a whole number from 0 to 1"},
      {"RANK", "", "RANK=\"\": expected a whole number from 0 to 1"},
      {"WORLD_SIZE", "0", "WORLD_SIZE=\"0\": expected a whole number from 1 to 2147483647"},
      {"WORLD_SIZE", "99999999999",
       "WORLD_SIZE=\"99999999999\": expected a whole number from 1 to 2147483647"},
      {"LOCAL_WORLD_SIZE", "3", "LOCAL_WORLD_SIZE=\"3\": expected a whole number from 1 to 2"},
      {"MASTER_PORT", "65536", "MASTER_PORT=\"65536\": expected a whole number from 1 to 65535"},
      {"MASTER_PORT", "0", "MASTER_PORT=\"0\": expected a whole number from 1 to 65535"},
      {"MASTER_ADDR", "", "MASTER_ADDR is not set or empty: where is the store?"},
      {"DDPRUN_ROUND", "x",
       "DDPRUN_ROUND=\"x\": expected a whole number from 0 to 18446744073709551615"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    CAPTURE(row.value);
    Block block = TwoRanks();
    block[row.name] = row.value;
    auto parsed = Parse(block);
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.status().message() == row.message);
  }
}

TEST_CASE("env contract: a missing variable is named") {
  for (const char* name : {"WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR"}) {
    CAPTURE(name);
    Block block = TwoRanks();
    block.erase(name);
    if (std::string(name) == "WORLD_SIZE") block["RANK"] = "0";
    auto parsed = Parse(block);
    REQUIRE_FALSE(parsed.ok());
    CHECK(parsed.status().message() == Contains(name));
  }
}

TEST_CASE("env contract: only Python's True means that the agent serves the store") {
  Block block = TwoRanks();
  for (const char* value : {"true", "1", ""}) {
    block["TORCHELASTIC_USE_AGENT_STORE"] = value;
    CHECK_FALSE((*Parse(block))->use_agent_store);
  }
  block["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  CHECK((*Parse(block))->use_agent_store);
}

TEST_CASE("env contract: a store that only PyTorch's rank 0 would serve is refused at once") {
  Block block = TwoRanks();
  block["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  const auto parsed = Parse(block);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.status().message() == Contains("TORCH_DISABLE_SHARE_RDZV_TCP_STORE"));
}

}  // namespace
}  // namespace ddp::internal
