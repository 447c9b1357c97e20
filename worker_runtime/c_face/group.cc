// Groups and communicators of ddp/c.h.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp/c.h"
#include "ddp/process_group.h"
#include "ddp/store.h"
#include "worker_runtime/c_face/callback_store.h"
#include "worker_runtime/c_face/convert.h"

namespace ddp::internal {
namespace {

static_assert(static_cast<int>(DeviceChoice::kCpu) == DDP_DEVICE_CPU);
static_assert(static_cast<int>(DeviceChoice::kCuda) == DDP_DEVICE_CUDA);
static_assert(static_cast<int>(DeviceChoice::kAuto) == DDP_DEVICE_AUTO);
static_assert(static_cast<int>(Backend::kAuto) == DDP_BACKEND_AUTO);
static_assert(static_cast<int>(Backend::kShm) == DDP_BACKEND_SHM);
static_assert(static_cast<int>(Backend::kTcp) == DDP_BACKEND_TCP);
static_assert(static_cast<int>(Backend::kNccl) == DDP_BACKEND_NCCL);

ProcessGroup* GroupOf(ddp_group* handle) { return reinterpret_cast<ProcessGroup*>(handle); }
const ProcessGroup* GroupOf(const ddp_group* handle) {
  return reinterpret_cast<const ProcessGroup*>(handle);
}

// Of a group over a store; 0 ranks otherwise.
absl::StatusOr<ProcessGroupOptions> OptionsOf(const ddp_group_options* given, int ranks) {
  ProcessGroupOptions options;
  if (given == nullptr) return options;
  if (given->job_ranks != nullptr && ranks > 0) {
    options.job_ranks.assign(given->job_ranks, given->job_ranks + ranks);
  }
  if (given->timeout_ms != 0) {
    const auto timeout = TimeoutOf(given->timeout_ms);
    if (!timeout.ok()) return timeout.status();
    options.timeout = *timeout;
  }
  const auto device = ChoiceOf("device", given->device, DDP_DEVICE_AUTO);
  if (!device.ok()) return device.status();
  const auto backend = ChoiceOf("backend", given->backend, DDP_BACKEND_NCCL);
  if (!backend.ok()) return backend.status();
  options.device = static_cast<DeviceChoice>(*device);
  options.backend = static_cast<Backend>(*backend);
  return options;
}

// Calls `form(options)`, which returns a group or an error, for a function with these arguments.
template <typename Form>
ddp_code Formed(const char* call, const ddp_group_options* given, int ranks, ddp_group** group,
                const Form& form) {
  return Guarded([&]() -> absl::Status {
    if (absl::Status status = CheckPointers(call, {{"group", group}}); !status.ok()) return status;
    *group = nullptr;
    const auto options = OptionsOf(given, ranks);
    if (!options.ok()) return options.status();
    absl::StatusOr<std::unique_ptr<ProcessGroup>> formed = form(*options);
    if (!formed.ok()) return formed.status();
    *group = reinterpret_cast<ddp_group*>(formed->release());
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> OverTcpStore(const char* host, uint16_t port,
                                                           const char* prefix, int rank,
                                                           int world_size,
                                                           const ProcessGroupOptions& options) {
  auto store = Store::Connect(host, port, options.timeout);
  if (!store.ok()) return store.status();
  if (prefix == nullptr) return ProcessGroup::New(**store, rank, world_size, options);
  return ProcessGroup::New(PrefixStore(prefix, **store), rank, world_size, options);
}

}  // namespace
}  // namespace ddp::internal

using ddp::internal::CheckPointers;
using ddp::internal::CommunicatorOf;
using ddp::internal::Formed;
using ddp::internal::GroupOf;
using ddp::internal::Guarded;

ddp_code ddp_group_from_env(const ddp_group_options* options, ddp_group** group) {
  return Formed(__func__, options, 0, group, [](const ddp::ProcessGroupOptions& checked) {
    return ddp::ProcessGroup::FromEnv(checked);
  });
}

ddp_code ddp_group_from_tcp_store(const char* host, uint16_t port, const char* prefix, int rank,
                                  int world_size, const ddp_group_options* options,
                                  ddp_group** group) {
  using Result = absl::StatusOr<std::unique_ptr<ddp::ProcessGroup>>;
  return Formed(__func__, options, world_size, group,
                [&](const ddp::ProcessGroupOptions& checked) -> Result {
                  absl::Status status = CheckPointers("ddp_group_from_tcp_store", {{"host", host}});
                  if (!status.ok()) return status;
                  return ddp::internal::OverTcpStore(host, port, prefix, rank, world_size, checked);
                });
}

ddp_code ddp_group_from_store(const ddp_store* store, int rank, int world_size,
                              const ddp_group_options* options, ddp_group** group) {
  using Result = absl::StatusOr<std::unique_ptr<ddp::ProcessGroup>>;
  return Formed(
      __func__, options, world_size, group, [&](const ddp::ProcessGroupOptions& checked) -> Result {
        constexpr char kCall[] = "ddp_group_from_store";
        absl::Status status = CheckPointers(kCall, {{"store", store}});
        if (status.ok()) {
          status = CheckPointers(kCall, {{"set", reinterpret_cast<const void*>(store->set)},
                                         {"get", reinterpret_cast<const void*>(store->get)},
                                         {"check", reinterpret_cast<const void*>(store->check)}});
        }
        if (!status.ok()) return status;
        const ddp::internal::CallbackStore::Use use;
        return ddp::ProcessGroup::New(ddp::internal::CallbackStore(*store), rank, world_size,
                                      checked);
      });
}

ddp_code ddp_group_subgroup(ddp_group* group, const int* ranks, size_t count,
                            ddp_group** subgroup) {
  return Guarded([&]() -> absl::Status {
    constexpr char kCall[] = "ddp_group_subgroup";
    absl::Status status = CheckPointers(kCall, {{"subgroup", subgroup}});
    if (!status.ok()) return status;
    *subgroup = nullptr;
    status = CheckPointers(kCall, {{"group", group}});
    if (status.ok() && count > 0) status = CheckPointers(kCall, {{"ranks", ranks}});
    if (!status.ok()) return status;
    const ddp::internal::CallbackStore::Use use;
    auto formed = GroupOf(group)->Subgroup(std::vector<int>(ranks, ranks + count));
    if (!formed.ok()) return formed.status();
    *subgroup = reinterpret_cast<ddp_group*>(formed->release());
    return absl::OkStatus();
  });
}

int ddp_group_rank(const ddp_group* group) {
  return group == nullptr ? -1 : GroupOf(group)->rank();
}

int ddp_group_world_size(const ddp_group* group) {
  return group == nullptr ? -1 : GroupOf(group)->world_size();
}

int ddp_group_local_rank(const ddp_group* group) {
  return group == nullptr ? -1 : GroupOf(group)->local_rank();
}

int ddp_group_local_world_size(const ddp_group* group) {
  return group == nullptr ? -1 : GroupOf(group)->local_world_size();
}

int ddp_group_restart_count(const ddp_group* group) {
  return group == nullptr ? -1 : GroupOf(group)->restart_count();
}

int ddp_group_gpu(const ddp_group* group) { return group == nullptr ? -1 : GroupOf(group)->gpu(); }

const char* ddp_group_description(const ddp_group* group) {
  return group == nullptr ? "" : GroupOf(group)->description().c_str();
}

ddp_communicator* ddp_group_communicator(ddp_group* group) {
  if (group == nullptr) return nullptr;
  return reinterpret_cast<ddp_communicator*>(&GroupOf(group)->communicator());
}

ddp_communicator* ddp_group_host_communicator(ddp_group* group) {
  if (group == nullptr) return nullptr;
  return reinterpret_cast<ddp_communicator*>(&GroupOf(group)->communicator().host());
}

ddp_code ddp_group_shutdown(ddp_group* group) {
  return Guarded([&] {
    absl::Status status = CheckPointers("ddp_group_shutdown", {{"group", group}});
    return status.ok() ? GroupOf(group)->Shutdown() : status;
  });
}

ddp_code ddp_group_should_stop(ddp_group* group, int* should_stop) {
  return Guarded([&] {
    absl::Status status =
        CheckPointers("ddp_group_should_stop", {{"group", group}, {"should_stop", should_stop}});
    if (!status.ok()) return status;
    const auto asked = GroupOf(group)->ShouldStop();
    if (asked.ok()) *should_stop = *asked ? 1 : 0;
    return asked.status();
  });
}

void ddp_group_free(ddp_group* group) { delete GroupOf(group); }

const char* ddp_communicator_backend(const ddp_communicator* communicator) {
  return communicator == nullptr ? "" : CommunicatorOf(communicator)->backend();
}

ddp_code ddp_communicator_set_timeout(ddp_communicator* communicator, int64_t timeout_ms) {
  return Guarded([&] {
    absl::Status status =
        CheckPointers("ddp_communicator_set_timeout", {{"communicator", communicator}});
    if (!status.ok()) return status;
    const auto timeout = ddp::internal::TimeoutOf(timeout_ms);
    if (timeout.ok()) CommunicatorOf(communicator)->SetTimeout(*timeout);
    return timeout.status();
  });
}

ddp_code ddp_communicator_abort(ddp_communicator* communicator, const char* reason) {
  return Guarded([&] {
    absl::Status status = CheckPointers("ddp_communicator_abort", {{"communicator", communicator}});
    if (status.ok()) CommunicatorOf(communicator)->Abort(reason == nullptr ? "" : reason);
    return status;
  });
}

ddp_code ddp_communicator_error(const ddp_communicator* communicator) {
  return Guarded([&] {
    absl::Status status = CheckPointers("ddp_communicator_error", {{"communicator", communicator}});
    return status.ok() ? CommunicatorOf(communicator)->error() : status;
  });
}

ddp_code ddp_communicator_dump_operations(ddp_communicator* communicator, const char** path) {
  return Guarded([&] {
    absl::Status status = CheckPointers("ddp_communicator_dump_operations",
                                        {{"communicator", communicator}, {"path", path}});
    if (!status.ok()) return status;
    static thread_local std::string last;
    auto written = CommunicatorOf(communicator)->DumpOperations();
    if (!written.ok()) return written.status();
    last = *std::move(written);
    *path = last.c_str();
    return absl::OkStatus();
  });
}
