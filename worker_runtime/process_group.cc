#include "ddp/process_group.h"

#include <atomic>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/form_group.h"
#include "worker_runtime/comm/host_key.h"
#include "worker_runtime/env_contract.h"
#include "worker_runtime/group_from_env.h"
#include "worker_runtime/session.h"
#include "worker_runtime/stop_flag.h"

namespace ddp {
namespace {

using internal::WorkerEnv;

// A connection of its own together with the prefix before its keys.
class OwnedStore {
 protected:
  explicit OwnedStore(std::unique_ptr<Store> store) : owned_(std::move(store)) {}
  const std::unique_ptr<Store> owned_;
};
class OwningPrefixStore final : private OwnedStore, public PrefixStore {
 public:
  OwningPrefixStore(const std::string& prefix, std::unique_ptr<Store> store)
      : OwnedStore(std::move(store)), PrefixStore(prefix, *owned_) {}
};

// The keys of the group that is now formed. A round has one key space, so a process that ends its
// group and makes another one in the same round must not find the ports and plans of the first. All
// ranks make their groups in the same order, as they do everything else that is collective.
std::string NextGroupName() {
  static std::atomic<int> groups{0};
  return absl::StrCat("group/", ++groups);
}

class ProcessGroupImpl final : public ProcessGroup {
 public:
  ProcessGroupImpl(WorkerEnv env, std::unique_ptr<Store> store, std::unique_ptr<Store> session,
                   internal::FormedGroup group)
      : env_(std::move(env)),
        store_(std::move(store)),
        session_(std::move(session)),
        group_(std::move(group)) {}

  int rank() const override { return env_.rank; }
  int world_size() const override { return env_.world_size; }
  int local_rank() const override { return env_.local_rank; }
  int local_world_size() const override { return env_.local_world_size; }
  int restart_count() const override { return env_.restart_count; }
  const std::string& description() const override { return group_.description; }
  Communicator& communicator() override { return *group_.communicator; }
  int gpu() const override { return group_.gpu; }
  Store* store() override { return session_.get(); }

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
  const WorkerEnv env_;
  const std::unique_ptr<Store> store_;    // the whole key space; null without a launcher
  const std::unique_ptr<Store> session_;  // this round's part of it
  const internal::FormedGroup group_;
  bool should_stop_ = false;
  bool is_shut_down_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::FromEnv(
    const ProcessGroupOptions& options) {
  return internal::GroupFromEnv(options, "");
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> internal::GroupFromEnv(
    const ProcessGroupOptions& options, const std::string& key_space) {
  auto parsed = internal::ParseWorkerEnv([](const char* name) { return std::getenv(name); });
  if (!parsed.ok()) return parsed.status();
  if (options.timeout.count() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the group's timeout is ", options.timeout.count(), " ms: it must be above 0"));
  }
  WorkerEnv env = parsed->value_or(WorkerEnv());
  internal::GroupMember member;
  member.rank = env.rank;
  member.world_size = env.world_size;
  member.local_rank = env.local_rank;
  member.error_file = env.error_file;
  member.timeout = options.timeout;
  member.capabilities.backend = options.backend;
  member.capabilities.device = options.device;
  if (env.world_size == 1 && (env.master_addr.empty() || env.master_port == 0)) {
    auto group = internal::FormLocalGroup(member);
    if (!group.ok()) return group.status();
    return std::unique_ptr<ProcessGroup>(
        new ProcessGroupImpl(std::move(env), nullptr, nullptr, *std::move(group)));
  }
  auto store = Store::Connect(env.master_addr, env.master_port, options.timeout);
  if (!store.ok()) return store.status();
  std::unique_ptr<Store> beside;
  if (!key_space.empty()) beside = std::make_unique<PrefixStore>(key_space, **store);
  auto prefix = internal::AgreeOnSession(beside ? *beside : **store, env, options.timeout);
  if (!prefix.ok()) return prefix.status();
  if (!key_space.empty()) *prefix = absl::StrCat(key_space, "/", *prefix);
  auto session = std::make_unique<PrefixStore>(*prefix, **store);
  internal::FormedGroup formed;
  if (env.world_size == 1) {
    auto group = internal::FormLocalGroup(member);
    if (!group.ok()) return group.status();
    formed = *std::move(group);
  } else {
    member.capabilities.host = internal::HostKey();
    member.capabilities.address = internal::LocalAddressToward(env.master_addr, env.master_port);
    const std::string address = env.master_addr;
    const uint16_t port = env.master_port;
    // A session by echo is new each time, and ranks need not have made the same number before.
    const std::string group_name = env.round.has_value() ? NextGroupName() : "group";
    const std::string group_prefix = absl::StrCat(*prefix, "/", group_name);
    member.connect_store =
        [address, port, group_prefix](
            std::chrono::milliseconds timeout) -> absl::StatusOr<std::unique_ptr<Store>> {
      auto connected = Store::Connect(address, port, timeout);
      if (!connected.ok()) return connected.status();
      return std::unique_ptr<Store>(new OwningPrefixStore(group_prefix, std::move(*connected)));
    };
    PrefixStore group_store(group_name, *session);
    auto group = internal::FormGroup(group_store, member);
    if (!group.ok()) return group.status();
    formed = std::move(*group);
  }
  return std::unique_ptr<ProcessGroup>(new ProcessGroupImpl(std::move(env), std::move(*store),
                                                            std::move(session), std::move(formed)));
}

}  // namespace ddp
