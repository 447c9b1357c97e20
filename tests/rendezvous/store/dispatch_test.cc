#include "rendezvous/store/dispatch.h"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace ddprun::rendezvous {
namespace {

constexpr size_t kPlenty = 1 << 20;

// A store with one greeted session per number below.
struct Fixture {
  bool Do(StoreSession& session, StoreOp op, std::vector<std::string_view> fields = {}) {
    reply.clear();
    return DispatchStoreCommand({op, kStoreMagic, 1, fields}, kPlenty, &session, &store, &reply);
  }
  KvStore store{kPlenty};
  StoreSession waiter{.client = 1, .is_validated = true};
  StoreSession other{.client = 2, .is_validated = true};
  std::string reply;
};

TEST_CASE("dispatch: a wait cancelled after it was woken, but before the news, is told both") {
  Fixture f;
  CHECK(f.Do(f.waiter, StoreOp::kWait, {"k"}));
  CHECK(f.waiter.ticket != 0);
  const KvStore::Ticket ticket = f.waiter.ticket;
  CHECK(f.Do(f.other, StoreOp::kSet, {"k", "v"}));
  CHECK(f.Do(f.waiter, StoreOp::kCancelWait));
  CHECK(f.reply == std::string{kStopWaiting, kWaitCanceled});
  // The news comes now, and is old.
  f.reply.clear();
  CHECK_FALSE(StopWaiting(ticket, &f.waiter, &f.reply));
  CHECK(f.reply.empty());
}

TEST_CASE("dispatch: news of an earlier wait do not end the present one") {
  Fixture f;
  CHECK(f.Do(f.waiter, StoreOp::kWait, {"k"}));
  CHECK(f.waiter.ticket != 0);
  const KvStore::Ticket first = f.waiter.ticket;
  CHECK(f.Do(f.waiter, StoreOp::kCancelWait));
  CHECK(f.Do(f.waiter, StoreOp::kWait, {"l"}));
  CHECK(f.waiter.ticket != 0);
  f.reply.clear();
  CHECK_FALSE(StopWaiting(first, &f.waiter, &f.reply));
  CHECK(StopWaiting(f.waiter.ticket, &f.waiter, &f.reply));
  CHECK(f.reply == std::string{kStopWaiting});
  CHECK_FALSE(StopWaiting(0, &f.waiter, &f.reply));
}

TEST_CASE("dispatch: nothing is carried out before the greeting, which comes once") {
  Fixture f;
  StoreSession fresh{.client = 3};
  CHECK_FALSE(f.Do(fresh, StoreOp::kSet, {"k", "v"}));
  CHECK(f.store.key_count() == 0);
  CHECK(f.Do(fresh, StoreOp::kValidate));
  CHECK_FALSE(f.Do(fresh, StoreOp::kValidate));
}

TEST_CASE("dispatch: a reply beyond its bound closes") {
  Fixture f;
  CHECK(f.Do(f.other, StoreOp::kSet, {"k", std::string(1000, 'v')}));
  f.reply.clear();
  CHECK_FALSE(DispatchStoreCommand({StoreOp::kMultiGet, 0, 0, {"k", "k", "k"}}, 2500, &f.other,
                                   &f.store, &f.reply));
}

}  // namespace
}  // namespace ddprun::rendezvous
