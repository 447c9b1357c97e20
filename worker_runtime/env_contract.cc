#include "worker_runtime/env_contract.h"

#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"

namespace ddp::internal {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();

// Reads variables and keeps the first complaint.
class Reader {
 public:
  explicit Reader(const EnvLookup& lookup) : lookup_(lookup) {}

  // In [low, high]; `fallback` where unset. Decimal digits only: SimpleAtoi would take blanks.
  template <typename Int>
  Int Number(const char* name, Int fallback, Int low, Int high) {
    const char* text = lookup_(name);
    if (text == nullptr) return fallback;
    Int value = 0;
    bool is_digits = *text != '\0' &&
                     std::string_view(text).find_first_not_of("0123456789") == std::string::npos;
    if (is_digits && absl::SimpleAtoi(text, &value) && value >= low && value <= high) return value;
    Fail(absl::StrCat(name, "=\"", ddprun::EscapeControl(text), "\": expected a whole number from ",
                      low, " to ", high));
    return fallback;
  }

  std::string Text(const char* name, const char* fallback) {
    const char* text = lookup_(name);
    return text != nullptr ? text : fallback;
  }

  bool IsSet(const char* name) { return lookup_(name) != nullptr; }

  void Require(const char* name, const char* why) {
    if (!IsSet(name)) Fail(absl::StrCat(name, " is not set: ", why));
  }

  void Fail(std::string message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
  }

  const absl::Status& status() const { return status_; }

 private:
  const EnvLookup& lookup_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::optional<WorkerEnv>> ParseWorkerEnv(const EnvLookup& lookup) {
  Reader reader(lookup);
  if (!reader.IsSet(kRankVar)) return std::optional<WorkerEnv>();
  WorkerEnv env;
  reader.Require(kWorldSizeVar, "a launcher that sets RANK sets it too");
  env.world_size = reader.Number(kWorldSizeVar, 1, 1, kMaxInt);
  env.rank = reader.Number(kRankVar, 0, 0, env.world_size - 1);
  env.local_world_size = reader.Number(kLocalWorldSizeVar, 1, 1, env.world_size);
  // Under torchrun's --virtual-local-rank every LOCAL_RANK is 0, so it is bounded but not compared.
  env.local_rank = reader.Number(kLocalRankVar, 0, 0, kMaxInt);
  env.group_rank = reader.Number(kGroupRankVar, 0, 0, kMaxInt);
  env.group_world_size = reader.Number(kGroupWorldSizeVar, 1, 1, kMaxInt);
  env.role_name = reader.Text(kRoleNameVar, "default");
  env.role_rank = reader.Number(kRoleRankVar, env.rank, 0, kMaxInt);
  env.role_world_size = reader.Number(kRoleWorldSizeVar, env.world_size, 1, kMaxInt);
  env.master_addr = reader.Text(kMasterAddrVar, "");
  env.master_port = static_cast<uint16_t>(reader.Number(kMasterPortVar, 0, 1, 65535));
  env.own_address = reader.Text(kNodeAddressVar, "");
  env.restart_count = reader.Number(kRestartCountVar, 0, 0, kMaxInt);
  env.max_restarts = reader.Number(kMaxRestartsVar, 0, 0, kMaxInt);
  env.run_id = reader.Text(kRunIdVar, "");
  // torchrun compares with Python's spelling, so only that one is true.
  env.use_agent_store = reader.Text(kUseAgentStoreVar, "") == "True";
  env.error_file = reader.Text(kErrorFileVar, "");
  if (!reader.Text(kRoundKeyVar, "").empty()) {
    env.round_key_fd = reader.Number(kRoundKeyVar, -1, 0, kMaxInt);
  }
  constexpr uint64_t kMaxStamp = std::numeric_limits<uint64_t>::max();
  if (reader.IsSet(kRoundVar)) env.round = reader.Number<uint64_t>(kRoundVar, 0, 0, kMaxStamp);
  if (reader.IsSet(kEpochVar)) env.epoch = reader.Number<uint64_t>(kEpochVar, 0, 0, kMaxStamp);
  env.job_mark = reader.Text(kJobMarkVar, "");
  if (env.world_size > 1) {
    if (env.master_addr.empty())
      reader.Fail("MASTER_ADDR is not set or empty: where is the store?");
    reader.Require(kMasterPortVar, "where is the store?");
    // Nobody would listen there: PyTorch's rank 0 does, we are clients only.
    if (reader.Text(kUseAgentStoreVar, "") == "False") {
      reader.Fail(
          absl::StrCat(kUseAgentStoreVar,
                       " is False: the launcher leaves the store to the workers, which only "
                       "PyTorch's can do; start it without "
                       "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"));
    }
  }
  if (!reader.status().ok()) return reader.status();
  return std::optional<WorkerEnv>(std::move(env));
}

std::string KeysOfRound(uint64_t epoch, uint64_t round) {
  return absl::StrCat("ddp/", epoch, ".", round);
}

std::vector<std::pair<std::string, std::string>> FormatWorkerEnv(const WorkerEnv& env) {
  std::vector<std::pair<std::string, std::string>> block = {
      {kRankVar, absl::StrCat(env.rank)},
      {kWorldSizeVar, absl::StrCat(env.world_size)},
      {kLocalRankVar, absl::StrCat(env.local_rank)},
      {kLocalWorldSizeVar, absl::StrCat(env.local_world_size)},
      {kGroupRankVar, absl::StrCat(env.group_rank)},
      {kGroupWorldSizeVar, absl::StrCat(env.group_world_size)},
      {kRoleNameVar, env.role_name},
      {kRoleRankVar, absl::StrCat(env.role_rank)},
      {kRoleWorldSizeVar, absl::StrCat(env.role_world_size)},
      {kRestartCountVar, absl::StrCat(env.restart_count)},
      {kMaxRestartsVar, absl::StrCat(env.max_restarts)},
      {kRunIdVar, env.run_id},
      {kUseAgentStoreVar, env.use_agent_store ? "True" : "False"},
      {kErrorFileVar, env.error_file},
  };
  if (!env.master_addr.empty()) block.emplace_back(kMasterAddrVar, env.master_addr);
  if (env.master_port != 0) block.emplace_back(kMasterPortVar, absl::StrCat(env.master_port));
  if (!env.own_address.empty()) block.emplace_back(kNodeAddressVar, env.own_address);
  if (env.round_key_fd >= 0) block.emplace_back(kRoundKeyVar, absl::StrCat(env.round_key_fd));
  if (env.round) block.emplace_back(kRoundVar, absl::StrCat(*env.round));
  if (env.epoch) block.emplace_back(kEpochVar, absl::StrCat(*env.epoch));
  if (!env.job_mark.empty()) block.emplace_back(kJobMarkVar, env.job_mark);
  return block;
}

}  // namespace ddp::internal
