#include "tests/support/rank_threads.h"

#include <doctest/doctest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/store_server.h"

namespace ddprun::testing {
namespace {

using ddp::Store;
using ddp::internal::FormedGroup;
using ddp::internal::FormGroup;
using ddp::internal::GroupMember;

constexpr std::chrono::seconds kStoreTimeout(30);

std::vector<absl::StatusOr<FormedGroup>> Form(const std::vector<GroupMember>& members,
                                              const std::function<void(ddp::Communicator&)>& body) {
  const auto server = StartStoreServer();
  const uint16_t port = server->port();
  std::vector<absl::StatusOr<FormedGroup>> formed(members.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      GroupMember member = members[i];
      member.connect_store = [port](std::chrono::milliseconds timeout) {
        return Store::Connect("127.0.0.1", port, timeout);
      };
      auto store = Store::Connect("127.0.0.1", port, kStoreTimeout);
      if (!store.ok()) {
        formed[i] = store.status();
        return;
      }
      formed[i] = FormGroup(**store, member);
      if (formed[i].ok() && body) body(*formed[i]->communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return formed;
}

}  // namespace

void RunRankThreads(const RankThreadsOptions& options,
                    const std::function<void(ddp::Communicator&)>& body) {
  std::vector<GroupMember> members;
  for (size_t node = 0; node < options.nodes.size(); ++node) {
    for (int i = 0; i < options.nodes[node]; ++i) {
      GroupMember member;
      member.rank = static_cast<int>(members.size());
      member.timeout = options.timeout;
      member.round_key = options.round_key;
      member.capabilities.backend = options.use_tcp ? ddp::Backend::kTcp : ddp::Backend::kAuto;
      member.capabilities.host = absl::StrCat("host", node);
      member.capabilities.address = "127.0.0.1";
      members.push_back(member);
    }
  }
  for (GroupMember& member : members) member.world_size = static_cast<int>(members.size());
  for (auto& group : Form(members, body)) {
    INFO(group.status().ToString());
    CHECK(group.ok());
  }
}

std::vector<absl::Status> FormRankThreads(const std::vector<GroupMember>& members) {
  std::vector<absl::Status> statuses;
  for (auto& group : Form(members, nullptr)) statuses.push_back(group.status());
  return statuses;
}

}  // namespace ddprun::testing
