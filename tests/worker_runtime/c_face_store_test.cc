// Groups of ddp/c.h over stores: functions of the program's own, and one at an address.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddp/c.h"
#include "ddp/store.h"
#include "tests/support/rank_processes.h"
#include "tests/worker_runtime/c_face_processes.h"
#include "tests/worker_runtime/c_face_ranks.h"

namespace ddp::testing {
namespace {

using ddprun::testing::RankProcesses;

// As processes that no launcher has started, but for the port of the store.
RankProcesses::Options StrayRanks(int world_size, int ranks_per_host = 4) {
  RankProcesses::Options options = Ranks(world_size, ranks_per_host);
  options.env = {{"RANK", ""},         {"LOCAL_RANK", ""},
                 {"WORLD_SIZE", ""},   {"LOCAL_WORLD_SIZE", ""},
                 {"DDPRUN_ROUND", ""}, {"DDPRUN_EPOCH", ""}};
  return options;
}

// What a program puts behind a ddp_store: here the client of a server that all ranks reach.
struct Behind {
  std::mutex mutex;
  std::unique_ptr<Store> store;
  std::thread::id maker = std::this_thread::get_id();
  std::atomic<int> calls_of_others = 0;  // from threads that are not the maker

  bool Connect() {
    auto connected = Store::Connect("127.0.0.1", StorePort(), std::chrono::seconds(60));
    if (connected.ok()) store = *std::move(connected);
    return connected.ok();
  }
};

// Locks what is behind `context` while a function is called.
class Called {
 public:
  explicit Called(void* context) : behind_(*static_cast<Behind*>(context)), lock_(behind_.mutex) {
    if (std::this_thread::get_id() != behind_.maker) ++behind_.calls_of_others;
  }
  Store& store() { return *behind_.store; }

 private:
  Behind& behind_;
  const std::lock_guard<std::mutex> lock_;
};

ddp_code CodeOf(const absl::Status& status, ddp_answer* answer) {
  if (!status.ok()) ddp_answer_error(answer, std::string(status.message()).c_str());
  return static_cast<ddp_code>(status.code());
}

ddp_code CodeOf(const absl::StatusOr<std::string>& value, ddp_answer* answer) {
  if (value.ok()) ddp_answer_value(answer, value->data(), value->size());
  return CodeOf(value.status(), answer);
}

std::string Bytes(const void* value, size_t size) {
  return std::string(static_cast<const char*>(value), size);
}

extern "C" {

ddp_code SetKey(void* context, const char* key, const void* value, size_t size,
                ddp_answer* answer) {
  return CodeOf(Called(context).store().Set(key, Bytes(value, size)), answer);
}

ddp_code GetKey(void* context, const char* key, int64_t timeout_ms, ddp_answer* answer) {
  return CodeOf(Called(context).store().Get(key, std::chrono::milliseconds(timeout_ms)), answer);
}

ddp_code CheckKeys(void* context, const char* const* keys, size_t count, int* are_there,
                   ddp_answer* answer) {
  const auto found = Called(context).store().Check(std::vector<std::string>(keys, keys + count));
  *are_there = found.value_or(false) ? 1 : 0;
  return CodeOf(found.status(), answer);
}

ddp_code SetKeyIfAbsent(void* context, const char* key, const void* desired, size_t size,
                        ddp_answer* answer) {
  return CodeOf(Called(context).store().CompareSet(key, "", Bytes(desired, size)), answer);
}

}  // extern "C"

ddp_store StoreOf(Behind& behind, bool is_for_any_thread) {
  return {.context = &behind,
          .set = SetKey,
          .get = GetKey,
          .check = CheckKeys,
          .set_if_absent = SetKeyIfAbsent,
          .address = "127.0.0.1",
          .is_for_any_thread = is_for_any_thread ? 1 : 0};
}

int UseGroup(ddp_group* group, int rank, int world_size) {
  EXPECT_C(ddp_group_rank(group) == rank && ddp_group_world_size(group) == world_size);
  EXPECT_C(CheckCollectives(ddp_group_communicator(group), rank, world_size) == 0);
  if (world_size == 4) EXPECT_C(CheckSubgroups(group) == 0);
  EXPECT_C(ddp_group_shutdown(group) == DDP_OK);
  ddp_group_free(group);
  return 0;
}

TEST_CASE("c store: a group over functions of the program's own, on one host and on several") {
  for (const int world_size : {1, 2, 4}) {
    for (const int ranks_per_host : {4, 1}) {
      CAPTURE(world_size);
      CAPTURE(ranks_per_host);
      CheckRanks(StrayRanks(world_size, ranks_per_host), [&](int rank) {
        Behind behind;
        EXPECT_C(behind.Connect());
        ddp_store store = StoreOf(behind, false);
        std::string address = store.address;
        store.address = address.c_str();
        ddp_group* group = nullptr;
        EXPECT_C(ddp_group_from_store(&store, rank, world_size, &kOptions, &group) == DDP_OK);
        address.assign(address.size(), '?');  // the struct was copied, and what it points to
        store = {};
        EXPECT_C(UseGroup(group, rank, world_size) == 0);
        EXPECT_C(behind.calls_of_others == 0);
        return 0;
      });
    }
  }
}

TEST_CASE("c store: between hosts a rank that dies is named, if need be without the functions") {
  // Whether the functions are for any thread, and whether the store has set_if_absent.
  for (const auto& [is_for_any_thread, has_set_if_absent] :
       {std::pair(true, true), std::pair(false, true), std::pair(true, false)}) {
    CAPTURE(is_for_any_thread);
    CAPTURE(has_set_if_absent);
    RankProcesses ranks(StrayRanks(3, 1), [&, is_for_any_thread = is_for_any_thread,
                                           has_set_if_absent = has_set_if_absent](int rank) {
      Behind behind;
      EXPECT_C(behind.Connect());
      ddp_store store = StoreOf(behind, is_for_any_thread);
      if (!has_set_if_absent) store.set_if_absent = nullptr;
      ddp_group* group = nullptr;
      EXPECT_C(ddp_group_from_store(&store, rank, 3, &kOptions, &group) == DDP_OK);
      ddp_communicator* all = ddp_group_communicator(group);
      EXPECT_C(ddp_complete(ddp_barrier(all)) == DDP_OK);
      RankProcesses::Say("ready");
      if (rank == 1) pause();
      // Large enough for the library's own thread to meet it.
      static float data[1 << 20];
      ddp_work* work = ddp_all_reduce(all, data, 1 << 20, DDP_FLOAT32, DDP_SUM, nullptr);
      while (ddp_work_is_done(work) == 0) std::this_thread::yield();
      const ddp_code code = ddp_complete(work);
      RankProcesses::Say(absl::StrCat(ddp_code_name(code), ": ", ddp_error_text()));
      ddp_group_free(group);
      EXPECT_C((behind.calls_of_others > 0) == is_for_any_thread);
      return 0;
    });
    CheckDeadRankIsNamed(ranks);
  }
}

TEST_CASE("c store: a group at an address, beside another one under a prefix") {
  for (const int world_size : {1, 2, 4}) {
    CheckRanks(StrayRanks(world_size), [&](int rank) {
      ddp_group *plain = nullptr, *prefixed = nullptr;
      EXPECT_C(ddp_group_from_tcp_store("127.0.0.1", StorePort(), nullptr, rank, world_size,
                                        &kOptions, &plain) == DDP_OK);
      EXPECT_C(ddp_group_from_tcp_store("127.0.0.1", StorePort(), "beside", rank, world_size,
                                        &kOptions, &prefixed) == DDP_OK);
      Behind behind;
      EXPECT_C(behind.Connect());
      EXPECT_C(behind.store->Check({"ddp/session", "beside/ddp/session"}).value_or(false));
      EXPECT_C(UseGroup(prefixed, rank, world_size) == 0);
      return UseGroup(plain, rank, world_size);
    });
  }
}

TEST_CASE("c store: ranks that do not come, and ranks that are none, are named") {
  CheckRanks(StrayRanks(1), [](int) {
    ddp_group* group = nullptr;
    const ddp_group_options soon = {.timeout_ms = 200, .device = 0, .backend = 0};
    EXPECT_C(ddp_group_from_tcp_store("127.0.0.1", StorePort(), "a", 0, 2, &soon, &group) ==
             DDP_DEADLINE_EXCEEDED);
    EXPECT_C(group == nullptr);
    EXPECT_C(std::string(ddp_error_text()).find("rank 1 did not come") != std::string::npos);
    EXPECT_C(ddp_group_from_tcp_store("127.0.0.1", StorePort(), "a", 2, 2, &soon, &group) ==
             DDP_INVALID_ARGUMENT);
    EXPECT_C(std::string(ddp_error_text()).find("as rank 2 of 2") != std::string::npos);
    Behind behind;
    EXPECT_C(behind.Connect());
    const ddp_store store = StoreOf(behind, false);
    EXPECT_C(ddp_group_from_store(&store, 1, 2, &soon, &group) == DDP_DEADLINE_EXCEEDED);
    EXPECT_C(std::string(ddp_error_text()).find("rank 0 did not come") != std::string::npos);
    return 0;
  });
}

// What `set` answers is the end of the group's forming.
ddp_code CodeWith(decltype(ddp_store::set) set) {
  const ddp_store store = {
      .context = nullptr,
      .set = set,
      .get = [](void*, const char*, int64_t, ddp_answer*) -> ddp_code { return DDP_NOT_FOUND; },
      .check = [](void*, const char* const*, size_t, int* are_there, ddp_answer*) -> ddp_code {
        *are_there = 0;
        return DDP_OK;
      },
      .set_if_absent = nullptr,
      .address = nullptr,
      .is_for_any_thread = 0};
  ddp_group* group = nullptr;
  const ddp_code code = ddp_group_from_store(&store, 0, 2, &kOptions, &group);
  CHECK(group == nullptr);
  return code;
}

TEST_CASE("c store: the functions' own errors come out with their words") {
  using namespace std::literals;
  CHECK(CodeWith([](void*, const char*, const void*, size_t, ddp_answer* answer) {
          ddp_answer_error(answer, "the disk is full");
          return ddp_code{DDP_RESOURCE_EXHAUSTED};
        }) == DDP_RESOURCE_EXHAUSTED);
  CHECK(ddp_error_text() == "the program's store: set \"ddp/session\": the disk is full"s);
  CHECK(CodeWith([](void*, const char*, const void*, size_t, ddp_answer*) {
          return ddp_code{DDP_UNAVAILABLE};
        }) == DDP_UNAVAILABLE);
  CHECK(ddp_error_text() == "the program's store: set \"ddp/session\": UNAVAILABLE"s);
  CHECK(CodeWith([](void*, const char*, const void*, size_t, ddp_answer*) {
          return ddp_code{-3};
        }) == DDP_UNKNOWN);
  CHECK(ddp_error_text() == "the program's store: set \"ddp/session\": code -3"s);
  CHECK(CodeWith([](void*, const char*, const void*, size_t, ddp_answer*) -> ddp_code {
          throw std::runtime_error("out of paper");
        }) == DDP_INTERNAL);
  CHECK(ddp_error_text() ==
        "the program's store: set \"ddp/session\": an exception: out of paper"s);
  CHECK(CodeWith([](void*, const char*, const void*, size_t, ddp_answer*) -> ddp_code {
          throw std::bad_alloc();
        }) == DDP_RESOURCE_EXHAUSTED);
  CHECK(ddp_error_text() == "the program's store: set \"ddp/session\": there is no memory left"s);
  CHECK(CodeWith([](void*, const char*, const void*, size_t, ddp_answer*) -> ddp_code {
          throw 7;
        }) == DDP_INTERNAL);
  CHECK(ddp_error_text() ==
        "the program's store: set \"ddp/session\": an exception of an unknown type"s);
  CHECK(CodeWith([](void*, const char*, const void*, size_t, ddp_answer* answer) {
          ddp_answer_value(answer, "x", static_cast<size_t>(-1));
          return ddp_code{DDP_OK};
        }) == DDP_INTERNAL);
  CHECK(std::string(ddp_error_text())
            .starts_with("the program's store: set \"ddp/session\": its answer could not be taken: "
                         "an exception: "));
  // Where `set` is well, `get` is next.
  CHECK(CodeWith([](void*, const char*, const void*, size_t, ddp_answer*) {
          return ddp_code{DDP_OK};
        }) == DDP_NOT_FOUND);
}

TEST_CASE("c store: a thread that ends in a function of the program ends, and no process does") {
  bool is_over = false;
  std::thread thread([&is_over] {
    struct Over {
      ~Over() { is_over = true; }
      bool& is_over;
    } over{is_over};
    CodeWith([](void*, const char*, const void*, size_t, ddp_answer*) -> ddp_code {
      pthread_exit(nullptr);
    });
    FAIL_CHECK("it went on");
  });
  thread.join();
  CHECK(is_over);
}

}  // namespace
}  // namespace ddp::testing
