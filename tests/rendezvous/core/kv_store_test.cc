#include "rendezvous/core/kv_store.h"

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace ddprun::rendezvous {

struct KvStoreInspector {
  // That the bookkeeping does not contradict itself.
  static void Check(const KvStore& store) {
    REQUIRE(store.bytes_ <= store.max_bytes_);
    for (const auto& [ticket, wait] : store.waits_) {
      REQUIRE(ticket != 0);
      REQUIRE(ticket <= store.last_ticket_);
      const auto list = store.waiting_.find(wait.keys.at(wait.missing));
      REQUIRE(list != store.waiting_.end());
      REQUIRE(list->second.contains(ticket));
    }
    size_t listed = 0;
    for (const auto& [key, tickets] : store.waiting_) {
      REQUIRE(!tickets.empty());
      listed += tickets.size();
    }
    REQUIRE(listed == store.waits_.size());
    for (const auto& [key, queue] : store.queues_) REQUIRE(!queue.empty());  // any order
    // Nobody waits for a value that is there.
    for (const auto& [ticket, wait] : store.waits_) {
      REQUIRE((wait.world_size.has_value() || !store.values_.contains(wait.keys.at(wait.missing))));
    }
  }
};

namespace {

constexpr size_t kPlenty = 1 << 20;

// The clients woken since the last call, in order.
std::vector<uint64_t> TakeClients(KvStore& store) {
  std::vector<KvStore::Woken> woken;
  store.TakeWoken(&woken);
  KvStoreInspector::Check(store);
  std::vector<uint64_t> clients;
  for (const KvStore::Woken& one : woken) clients.push_back(one.client);
  return clients;
}

using Clients = std::vector<uint64_t>;

TEST_CASE("kv_store: set replaces, append extends, delete removes once") {
  KvStore store(kPlenty);
  REQUIRE(store.Append("k", "a"));
  REQUIRE(store.Append("k", "b"));
  CHECK(*store.Get("k") == "ab");
  REQUIRE(store.Set("k", "c"));
  CHECK(*store.Get("k") == "c");
  CHECK(store.key_count() == 1);
  CHECK(store.Delete("k"));
  CHECK_FALSE(store.Delete("k"));
  CHECK(store.Get("k") == nullptr);
  CHECK(store.bytes() == 0);
}

TEST_CASE("kv_store: a counter starts at zero and is kept as decimal text") {
  KvStore store(kPlenty);
  CHECK(store.Add("n", 3) == 3);
  CHECK(store.Add("n", -10) == -7);
  CHECK(*store.Get("n") == "-7");
}

TEST_CASE("kv_store: add takes the number a value begins with, as PyTorch does") {
  struct Row {
    std::string value;
    std::optional<int64_t> sum;
  };
  // What PyTorch 2.13's server answered to an ADD of 1.
  const std::vector<Row> rows = {
      {"12abc", 13},
      {" 12", 13},
      {"+3", 4},
      {"-4", -3},
      {"", std::nullopt},
      {"x", std::nullopt},
      {"-", {}},
      {"+-3", {}},
      {"9223372036854775807", INT64_MIN},
      {"   ", {}},
      {"9223372036854775808", std::nullopt},
  };
  for (const Row& row : rows) {
    CAPTURE(row.value);
    KvStore store(kPlenty);
    REQUIRE(store.Set("n", row.value));
    CHECK(store.Add("n", 1) == row.sum);
    if (!row.sum.has_value()) CHECK(*store.Get("n") == row.value);
  }
}

TEST_CASE("kv_store: compare-set answers for an absent key what was expected") {
  KvStore store(kPlenty);
  CHECK(store.CompareSet("k", "old", "new") == "old");
  CHECK(store.Get("k") == nullptr);
  CHECK(store.CompareSet("k", "", "new") == "new");
  CHECK(store.CompareSet("k", "", "newer") == "new");
  CHECK(store.CompareSet("k", "new", "newer") == "newer");
  CHECK(*store.Get("k") == "newer");
}

TEST_CASE("kv_store: queues give items back in order and are no keys") {
  KvStore store(kPlenty);
  REQUIRE(store.QueuePush("q", "1"));
  REQUIRE(store.QueuePush("q", "2"));
  CHECK(store.QueueLength("q") == 2);
  CHECK(store.key_count() == 0);
  CHECK(store.HasAll({"q"}));
  CHECK_FALSE(store.Delete("q"));
  CHECK(store.QueuePop("q") == "1");
  CHECK(store.QueuePop("q") == "2");
  CHECK(store.QueuePop("q") == std::nullopt);
  CHECK_FALSE(store.HasAll({"q"}));
  CHECK(store.bytes() == 0);
}

TEST_CASE("kv_store: a wait for what is there parks nobody") {
  KvStore store(kPlenty);
  REQUIRE(store.Set("a", ""));
  CHECK(store.Wait(1, {"a", "a"}).ticket == 0);
  CHECK(store.Wait(1, {}).ticket == 0);
  CHECK(store.waiting_count() == 0);
}

TEST_CASE("kv_store: everything that makes a key wakes those who wait for it") {
  struct Row {
    const char* name;
    void (*make)(KvStore&);
  };
  const std::vector<Row> rows = {
      {"set", [](KvStore& s) { CHECK(s.Set("k", "v")); }},
      {"add", [](KvStore& s) { CHECK(s.Add("k", 0) == 0); }},
      {"append", [](KvStore& s) { CHECK(s.Append("k", "v")); }},
      {"compare-set", [](KvStore& s) { CHECK(s.CompareSet("k", "", "v") == "v"); }},
      {"queue push", [](KvStore& s) { CHECK(s.QueuePush("k", "v")); }},
      {"barrier", [](KvStore& s) { CHECK(s.Barrier(9, "k", 1).ticket == 0); }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    KvStore store(kPlenty);
    CHECK(store.Wait(7, {"k"}).ticket != 0);
    CHECK(TakeClients(store) == Clients{});
    row.make(store);
    CHECK(TakeClients(store) == Clients{7});
    CHECK(store.waiting_count() == 0);
  }
}

TEST_CASE("kv_store: a compare-set that stores nothing wakes nobody") {
  KvStore store(kPlenty);
  CHECK(store.Wait(7, {"k"}).ticket != 0);
  CHECK(store.CompareSet("k", "other", "v") == "other");
  CHECK(TakeClients(store) == Clients{});
}

TEST_CASE("kv_store: a set wakes all waiters in the order they came, a push wakes the first") {
  KvStore store(kPlenty);
  for (const uint64_t client : {30, 10, 20}) CHECK(store.Wait(client, {"k"}).ticket != 0);
  REQUIRE(store.QueuePush("k", "item"));
  CHECK(TakeClients(store) == Clients{30});
  REQUIRE(store.Set("k", "v"));
  CHECK(TakeClients(store) == Clients{10, 20});
}

TEST_CASE("kv_store: a pushed item is for the first whose only wish it is") {
  KvStore store(kPlenty);
  CHECK(store.Wait(1, {"a", "k"}).ticket != 0);
  CHECK(store.Wait(2, {"k", "a"}).ticket != 0);
  CHECK(store.Wait(3, {"k"}).ticket != 0);
  REQUIRE(store.QueuePush("k", "item"));
  CHECK(TakeClients(store) == Clients{3});
  REQUIRE(store.Set("a", "v"));
  CHECK(TakeClients(store) == Clients{1, 2});
}

TEST_CASE("kv_store: a wait for several keys ends when all of them are there at once") {
  KvStore store(kPlenty);
  REQUIRE(store.Set("a", "1"));
  CHECK(store.Wait(1, {"a", "b", "c", "b"}).ticket != 0);
  REQUIRE(store.Set("b", "1"));
  CHECK(TakeClients(store) == Clients{});
  SUBCASE("and the last one comes") {
    REQUIRE(store.Set("c", "1"));
    CHECK(TakeClients(store) == Clients{1});
  }
  SUBCASE("but one has gone again") {
    CHECK(store.Delete("b"));
    REQUIRE(store.Set("c", "1"));
    CHECK(TakeClients(store) == Clients{});
    REQUIRE(store.Set("b", "1"));
    CHECK(TakeClients(store) == Clients{1});
  }
}

TEST_CASE("kv_store: a cancelled wait is not woken, and a woken one cannot be cancelled") {
  KvStore store(kPlenty);
  const auto cancelled = store.Wait(1, {"k", "l"}).ticket;
  const auto woken = store.Wait(2, {"k"}).ticket;
  CHECK(store.Cancel(cancelled));
  CHECK_FALSE(store.Cancel(cancelled));
  REQUIRE(store.Set("k", "v"));
  CHECK_FALSE(store.Cancel(woken));
  CHECK(TakeClients(store) == Clients{2});
}

TEST_CASE("kv_store: a barrier opens for all when the last arrives") {
  KvStore store(kPlenty);
  CHECK(store.Barrier(1, "b", 3).ticket != 0);
  CHECK(store.Barrier(2, "b", 3).ticket != 0);
  CHECK(TakeClients(store) == Clients{});
  CHECK(store.Barrier(3, "b", 3).ticket == 0);
  CHECK(TakeClients(store) == Clients{1, 2});
  CHECK(*store.Get("b") == "3");
}

TEST_CASE("kv_store: a barrier's counter counts on after a cancel, and ADD counts too") {
  KvStore store(kPlenty);
  const auto ticket = store.Barrier(1, "b", 3).ticket;
  CHECK(store.Cancel(ticket));
  CHECK(store.Barrier(2, "b", 3).ticket != 0);
  CHECK(store.Add("b", 1) == 3);
  CHECK(TakeClients(store) == Clients{2});
}

TEST_CASE("kv_store: a counter below a barrier's size is waited for, whatever their signs") {
  KvStore store(kPlenty);
  REQUIRE(store.Set("b", "-5"));
  CHECK(store.Barrier(1, "b", -3).ticket != 0);
  REQUIRE(store.Set("b", "-4"));
  CHECK(TakeClients(store) == Clients{});
  CHECK(store.Add("b", 1) == -3);
  CHECK(TakeClients(store) == Clients{1});
}

TEST_CASE("kv_store: a barrier on a value that is no number is refused") {
  KvStore store(kPlenty);
  REQUIRE(store.Set("b", "text"));
  CHECK(store.Barrier(1, "b", 2).is_refused);
  CHECK(store.waiting_count() == 0);
}

TEST_CASE("kv_store: what exceeds the memory bound is refused and changes nothing") {
  KvStore store(2000);
  const std::string half(900, 'x');
  REQUIRE(store.Set("a", half));
  CHECK_FALSE(store.Set("b", half));
  CHECK(store.Get("b") == nullptr);
  CHECK_FALSE(store.Append("a", std::string(1100, 'x')));
  CHECK(*store.Get("a") == half);
  CHECK_FALSE(store.Set("a", std::string(3000, 'x')));
  CHECK(*store.Get("a") == half);
  CHECK_FALSE(store.QueuePush("q", half));
  CHECK(store.QueueLength("q") == 0);
  CHECK(store.Wait(1, {std::string_view(half)}).is_refused);
  CHECK(store.waiting_count() == 0);
  REQUIRE(store.Delete("a"));
  CHECK(store.Set("b", half));
  KvStoreInspector::Check(store);
}

TEST_CASE("kv_store: parked waits count against the bound until they end") {
  KvStore store(100'000);
  const std::string key(1000, 'k');
  std::vector<KvStore::Ticket> tickets;
  while (true) {
    const auto parked = store.Wait(1, {key});
    if (parked.is_refused) break;
    tickets.push_back(parked.ticket);
    REQUIRE(tickets.size() < 100);
  }
  for (const auto ticket : tickets) CHECK(store.Cancel(ticket));
  CHECK(store.bytes() == 0);
}

TEST_CASE("kv_store: listed keys come sorted") {
  KvStore store(kPlenty);
  for (const char* key : {"b", "init/", "a"}) REQUIRE(store.Set(key, "1"));
  REQUIRE(store.QueuePush("q", "1"));
  CHECK(store.SortedKeys() == std::vector<std::string_view>{"a", "b", "init/"});
}

// The promise of a wait, written the slow and obvious way.
struct Model {
  std::set<std::string> values;
  std::map<std::string, int> queues;
  std::map<KvStore::Ticket, std::set<std::string>> waits;
  bool Has(const std::string& key) const { return values.contains(key) || queues.contains(key); }
};

// Random commands; after each, nobody waits whose keys are all there, except for queue items that
// an earlier waiter was woken for.
void RunRandom(uint32_t seed) {
  std::minstd_rand random(seed);
  KvStore store(kPlenty);
  Model model;
  const auto key = [&] { return std::string(1, static_cast<char>('a' + random() % 5)); };
  for (int step = 0; step < 400; ++step) {
    const std::string k = key();
    switch (random() % 6) {
      case 0:
        REQUIRE(store.Set(k, "v"));
        model.values.insert(k);
        break;
      case 1:
        CHECK(store.Delete(k) == (model.values.erase(k) > 0));
        break;
      case 2:
        REQUIRE(store.QueuePush(k, "i"));
        ++model.queues[k];
        break;
      case 3:
        CHECK(store.QueuePop(k).has_value() == model.queues.contains(k));
        if (model.queues.contains(k) && --model.queues[k] == 0) model.queues.erase(k);
        break;
      case 4: {
        const std::string other = key();
        const auto parked = store.Wait(1, {k, other});
        CHECK((parked.ticket == 0) == (model.Has(k) && model.Has(other)));
        if (parked.ticket != 0) model.waits[parked.ticket] = {k, other};
        break;
      }
      case 5:
        if (model.waits.empty()) break;
        CHECK(store.Cancel(model.waits.begin()->first));
        model.waits.erase(model.waits.begin());
        break;
    }
    std::vector<KvStore::Woken> woken;
    store.TakeWoken(&woken);
    for (const auto& one : woken) {
      for (const std::string& wanted : model.waits.at(one.ticket)) CHECK(model.Has(wanted));
      model.waits.erase(one.ticket);
    }
    KvStoreInspector::Check(store);
    CHECK(store.waiting_count() == model.waits.size());
    for (const auto& [ticket, keys] : model.waits) {
      bool has_all_values = true;
      for (const std::string& wanted : keys) has_all_values &= model.values.contains(wanted);
      CHECK_FALSE(has_all_values);
    }
  }
}

TEST_CASE("kv_store: random commands wake exactly those whose keys are there") {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    RunRandom(seed);
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
