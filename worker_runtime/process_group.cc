#include "ddp/process_group.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/base/fnv1a.h"
#include "rendezvous/base/steady_clock.h"
#include "worker_runtime/comm/form_group.h"
#include "worker_runtime/comm/host_key.h"
#include "worker_runtime/env_contract.h"
#include "worker_runtime/group_from_env.h"
#include "worker_runtime/returned_ranks.h"
#include "worker_runtime/round_key.h"
#include "worker_runtime/session.h"
#include "worker_runtime/stop_flag.h"

namespace ddp {
namespace {

using internal::WorkerEnv;

// torch.distributed's, with its values.
constexpr char kDebugVar[] = "TORCH_DISTRIBUTED_DEBUG";

// The keys of the group that is now formed. A round has one key space, so a process that ends its
// group and makes another one in the same round must not find the ports and plans of the first. All
// ranks make their groups in the same order, as they do everything else that is collective.
std::string NextGroupName() {
  static std::atomic<int> groups{0};
  return absl::StrCat("group/", ++groups);
}

// The options with what the environment adds to them. InvalidArgument for what they cannot be.
absl::StatusOr<ProcessGroupOptions> Checked(ProcessGroupOptions options) {
  if (options.timeout.count() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the group's timeout is ", options.timeout.count(), " ms: it must be above 0"));
  }
  const char* text = std::getenv(kDebugVar);
  const std::string level = absl::AsciiStrToUpper(text == nullptr ? "" : text);
  if (level == "DETAIL") {
    options.debug_level = DebugLevel::kDetail;
  } else if (!level.empty() && level != "OFF" && level != "INFO") {
    return absl::InvalidArgumentError(
        absl::StrCat(kDebugVar, " is \"", text, "\": it is OFF, INFO or DETAIL"));
  }
  return options;
}

absl::StatusOr<WorkerEnv> WorkerEnvOfThisProcess() {
  auto parsed = internal::ParseWorkerEnv([](const char* name) { return std::getenv(name); });
  if (!parsed.ok()) return parsed.status();
  return parsed->value_or(WorkerEnv());
}

// `ranks` are in ascending order.
absl::Status CheckSubgroup(const std::vector<int>& ranks, int world_size) {
  const std::string what = absl::StrCat("subgroup of ranks {", absl::StrJoin(ranks, ", "),
                                        "} in a group of ", world_size, " ranks: ");
  if (ranks.empty()) return absl::InvalidArgumentError(what + "it has no ranks");
  if (ranks.front() < 0 || ranks.back() >= world_size) {
    const int wrong = ranks.front() < 0 ? ranks.front() : ranks.back();
    return absl::InvalidArgumentError(absl::StrCat(what, "there is no rank ", wrong));
  }
  const auto twice = std::adjacent_find(ranks.begin(), ranks.end());
  if (twice == ranks.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, "rank ", *twice, " is named twice"));
}

// What a group is formed of.
struct Parts {
  WorkerEnv env;
  std::vector<int> job_ranks;  // by rank of the group; empty: the same
  ProcessGroupOptions options;
  // The keys of the group's users; null without a launcher. Shared with what asks it for a further
  // connection when something went wrong, on whichever thread.
  std::shared_ptr<Store> store;
  std::string name;          // before the group's own keys among these
  bool is_of_spawn = false;  // of all ranks of a ddp::Spawn
};

absl::StatusOr<std::unique_ptr<ProcessGroup>> Form(Parts parts);

class ProcessGroupImpl final : public ProcessGroup {
 public:
  ProcessGroupImpl(Parts parts, internal::FormedGroup group)
      : env_(std::move(parts.env)),
        job_ranks_(std::move(parts.job_ranks)),
        options_(parts.options),
        store_(std::move(parts.store)),
        name_(std::move(parts.name)),
        group_(std::move(group)) {}

  int rank() const override { return env_.rank; }
  int world_size() const override { return env_.world_size; }
  int local_rank() const override { return env_.local_rank; }
  int local_world_size() const override { return env_.local_world_size; }
  int restart_count() const override { return env_.restart_count; }
  const std::string& description() const override { return group_.description; }
  Communicator& communicator() override { return *group_.communicator; }
  int gpu() const override { return group_.gpu; }
  Store* store() override { return store_.get(); }

  absl::StatusOr<std::unique_ptr<ProcessGroup>> Subgroup(std::vector<int> ranks) override {
    std::sort(ranks.begin(), ranks.end());
    absl::Status status = CheckSubgroup(ranks, world_size());
    if (status.ok()) status = AgreeOnList(ranks);
    if (!status.ok()) return status;
    // All ranks count, so that all mean the same keys by it.
    const std::string key_space = absl::StrCat(name_, "/sub/", ++subgroups_);
    const auto place = std::find(ranks.begin(), ranks.end(), rank());
    if (place == ranks.end()) return std::unique_ptr<ProcessGroup>();
    Parts parts{
        .env = env_, .job_ranks = ranks, .options = options_, .store = nullptr, .name = "group"};
    for (int& rank : parts.job_ranks) {
      if (!job_ranks_.empty()) rank = job_ranks_[static_cast<size_t>(rank)];
    }
    parts.env.rank = static_cast<int>(place - ranks.begin());
    parts.env.world_size = static_cast<int>(ranks.size());
    if (store_ != nullptr) {
      auto connected = store_->Clone(options_.timeout);
      if (!connected.ok()) return connected.status();
      parts.store = std::make_shared<PrefixStore>(key_space, *std::move(connected));
    }
    return Form(std::move(parts));
  }

  absl::StatusOr<bool> ShouldStop() override {
    if (should_stop_) return true;
    const internal::StopFlag& flag = internal::StopFlag::OfThisProcess();
    int32_t asked = flag.IsRequested() ? 1 : 0;  // then: how many ranks were
    if (env_.world_size > 1) {
      absl::Status status =
          communicator().host().AllReduce(&asked, 1, DType::kInt32, ReduceOp::kSum)->Wait();
      if (!status.ok()) return status;
    }
    should_stop_ = asked > 0;
    if (should_stop_) flag.MarkHeard();
    return should_stop_;
  }

  absl::Status Shutdown() override {
    if (is_shut_down_) return absl::OkStatus();
    is_shut_down_ = true;
    absl::Status status = group_.communicator->Barrier()->Wait();
    group_.communicator->Leave();
    return status;
  }

 private:
  absl::Status AgreeOnList(const std::vector<int>& ranks) {
    ddprun::Fnv1a hash;
    hash.Add(ranks.data(), ranks.size() * sizeof ranks[0]);
    // The largest and the smallest of all ranks'.
    const int64_t mine = static_cast<int64_t>(hash.value() >> 1);
    int64_t all[] = {mine, -mine};
    absl::Status status =
        communicator().host().AllReduce(all, 2, DType::kInt64, ReduceOp::kMax)->Wait();
    if (!status.ok() || all[0] == -all[1]) return status;
    return absl::InvalidArgumentError(
        absl::StrCat("subgroup of ranks {", absl::StrJoin(ranks, ", "),
                     "}: not all ranks of the group have asked for these"));
  }

  const WorkerEnv env_;
  const std::vector<int> job_ranks_;  // see Parts
  const ProcessGroupOptions options_;
  const std::shared_ptr<Store> store_;  // see Parts
  const std::string name_;
  const internal::FormedGroup group_;
  int subgroups_ = 0;  // that were asked for
  bool should_stop_ = false;
  bool is_shut_down_ = false;
};

absl::StatusOr<std::unique_ptr<ProcessGroup>> Form(Parts parts) {
  internal::GroupMember member;
  member.rank = parts.env.rank;
  member.world_size = parts.env.world_size;
  member.local_rank = parts.env.local_rank;
  member.error_file = parts.env.error_file;
  member.job_ranks = parts.job_ranks;
  member.timeout = parts.options.timeout;
  member.capabilities.backend = parts.options.backend;
  member.capabilities.device = parts.options.device;
  member.capabilities.debug_level = parts.options.debug_level;
  absl::StatusOr<internal::FormedGroup> formed;
  if (member.world_size == 1) {
    formed = internal::FormLocalGroup(member);
  } else {
    if (parts.env.round_key_fd >= 0) {
      auto key = internal::ReadRoundKey(parts.env.round_key_fd);
      if (!key.ok()) return key.status();
      member.round_key = *std::move(key);
    }
    member.capabilities.host = internal::HostKey();
    member.capabilities.address =
        parts.env.own_address.empty() ? parts.store->LocalAddress() : parts.env.own_address;
    member.connect_store =
        [store = parts.store, name = parts.name](
            std::chrono::milliseconds timeout) -> absl::StatusOr<std::unique_ptr<Store>> {
      auto connected = store->Clone(timeout);
      if (!connected.ok()) return connected.status();
      return std::unique_ptr<Store>(new PrefixStore(name, *std::move(connected)));
    };
    std::unique_ptr<Store> own_keys =
        parts.is_of_spawn ? std::make_unique<internal::KeysOfSpawn>(parts.name, *parts.store)
                          : std::make_unique<PrefixStore>(parts.name, *parts.store);
    formed = internal::FormGroup(*own_keys, member);
  }
  if (!formed.ok()) return formed.status();
  return std::unique_ptr<ProcessGroup>(new ProcessGroupImpl(std::move(parts), *std::move(formed)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::FromEnv(
    const ProcessGroupOptions& options) {
  return internal::GroupFromEnv(options, "");
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::New(const Store& store, int rank,
                                                                int world_size,
                                                                const ProcessGroupOptions& wanted) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a process group as rank ", rank, " of ", world_size));
  }
  if (!wanted.job_ranks.empty() && wanted.job_ranks.size() != static_cast<size_t>(world_size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a process group of ", world_size, " ranks with ", wanted.job_ranks.size(), " job_ranks"));
  }
  const auto options = Checked(wanted);
  if (!options.ok()) return options.status();
  auto env = WorkerEnvOfThisProcess();
  if (!env.ok()) return env.status();
  env->rank = rank;
  env->world_size = world_size;
  env->round.reset();  // its keys are the launcher's groups': here the ranks agree on their own
  if (wanted.job_ranks.empty()) env->error_file.clear();  // the launcher would know no rank of it
  auto own = store.Clone(options->timeout);
  if (!own.ok()) return own.status();
  auto prefix = internal::AgreeOnSession(**own, *env, options->timeout, ddprun::SteadyClock());
  if (!prefix.ok()) return prefix.status();
  return Form({.env = *std::move(env),
               .job_ranks = wanted.job_ranks,
               .options = *options,
               .store = std::make_shared<PrefixStore>(*prefix, *std::move(own)),
               .name = "group"});
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> internal::GroupFromEnv(
    const ProcessGroupOptions& wanted, const std::string& key_space) {
  auto env = WorkerEnvOfThisProcess();
  if (!env.ok()) return env.status();
  const auto options = Checked(wanted);
  if (!options.ok()) return options.status();
  if (env->world_size == 1 && (env->master_addr.empty() || env->master_port == 0)) {
    return Form({.env = *std::move(env),
                 .job_ranks = {},
                 .options = *options,
                 .store = nullptr,
                 .name = "group"});
  }
  auto connected = Store::Connect(env->master_addr, env->master_port, options->timeout);
  if (!connected.ok()) return connected.status();
  std::unique_ptr<Store> store = *std::move(connected);
  if (!key_space.empty()) store = std::make_unique<PrefixStore>(key_space, std::move(store));
  auto prefix = internal::AgreeOnSession(*store, *env, options->timeout, ddprun::SteadyClock());
  if (!prefix.ok()) return prefix.status();
  // A session by echo is new each time, and ranks need not have made the same number before.
  std::string name = env->round.has_value() && env->world_size > 1 ? NextGroupName() : "group";
  const bool is_of_spawn = env->run_id == internal::kSpawnRunId && env->round.has_value();
  return Form({.env = *std::move(env),
               .job_ranks = {},
               .options = *options,
               .store = std::make_shared<PrefixStore>(*prefix, std::move(store)),
               .name = std::move(name),
               .is_of_spawn = is_of_spawn});
}

}  // namespace ddp
