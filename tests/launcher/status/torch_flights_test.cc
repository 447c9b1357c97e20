#include "launcher/status/torch_flights.h"

#include <doctest/doctest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kNow = 1'795'681'600'000'000'000;

// An entry as PyTorch 2.13 writes it, created so many seconds ago.
std::string Entry(int group, const std::string& names, int number, double age_s,
                  const std::string& more = "") {
  const auto created = kNow - static_cast<int64_t>(age_s * 1e9);
  return absl::StrCat(R"({"collective_seq_id":)", number,
                      R"(,"input_sizes":[[4,[5]]],"is_p2p":false,"pg_id":)", group,
                      R"(,"process_group":)", names, R"(,"profiling_name":"nccl:all_reduce",)",
                      R"("state":"scheduled","time_created_ns":)", created, more, "}");
}

std::string Document(const std::string& entries, const std::string& status,
                     const std::string& config = "") {
  return absl::StrCat(R"({"comm_lib_version":"","entries":[)", entries, R"(],"pg_config":{)",
                      config, R"(},"pg_status":{)", status, R"(},"version":"2.10"})");
}

constexpr char kDefault[] = R"(["0","default_pg"])";

std::string Status(int group, const std::string& called, const std::string& done) {
  return absl::StrCat("\"", group, R"(":{"last_completed_collective":")", done,
                      R"(","last_enqueued_collective":")", called,
                      R"(","last_started_collective":"-1"})");
}

TEST_CASE("torch flights: the default group has all ranks, and waits in its oldest collective") {
  const std::string json = Document(
      Entry(0, kDefault, 5, 60) + "," + Entry(0, kDefault, 6, 42) + "," + Entry(0, kDefault, 7, 41),
      Status(0, "7", "5"));
  const auto groups = GroupsOfFlights(json, 1, 4, kNow);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].name == "default_pg (nccl)");
  CHECK(groups[0].rank == 1);
  CHECK(groups[0].size == 4);
  CHECK(groups[0].called == 7);
  CHECK(groups[0].done == 5);
  CHECK(groups[0].op == "all-reduce");
  CHECK(groups[0].waiting_s == doctest::Approx(42));
  CHECK(groups[0].quiet_s == doctest::Approx(41));
  // The same group on another rank has the same key.
  CHECK(GroupsOfFlights(json, 3, 4, kNow).at(0).key == groups[0].key);
  // Its other backend counts operations of its own.
  const std::string gloo = absl::StrReplaceAll(json, {{"nccl:", "gloo:"}});
  CHECK(GroupsOfFlights(gloo, 1, 4, kNow).at(0).key != groups[0].key);
}

TEST_CASE("torch flights: a rank that has done all waits for nobody, since its last word") {
  const std::string json =
      Document(Entry(0, kDefault, 5, 60,
                     absl::StrCat(R"(,"time_discovered_completed_ns":)", kNow - 59'000'000'000)),
               Status(0, "5", "5"));
  const auto groups = GroupsOfFlights(json, 0, 2, kNow);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].waiting_s == 0);
  CHECK(groups[0].quiet_s == doctest::Approx(59));
}

TEST_CASE("torch flights: another group has the ranks that its configuration tells") {
  const std::string names = R"(["3","tensor"])";
  const std::string entries = Entry(2, names, 9, 10);
  CHECK(GroupsOfFlights(Document(entries, Status(2, "9", "8")), 5, 8, kNow).empty());
  const std::string config = R"("3":{"name":"3","desc":"tensor","ranks":"[4, 5, 7]"})";
  const std::string json = Document(entries, Status(2, "9", "8"), config);
  const auto groups = GroupsOfFlights(json, 5, 8, kNow);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].rank == 1);
  CHECK(groups[0].size == 3);
  CHECK(groups[0].name == "tensor (nccl)");
  CHECK(GroupsOfFlights(json, 0, 8, kNow).empty());
}

TEST_CASE("torch flights: messages are no collectives, and a forgotten one is no group") {
  std::string message = Entry(0, kDefault, 6, 42);
  message.replace(message.find("false"), 5, "true");
  CHECK(GroupsOfFlights(Document(message, Status(0, "6", "5")), 0, 2, kNow).empty());
  // The recorder keeps the newest of all groups together.
  CHECK(GroupsOfFlights(Document(Entry(0, kDefault, 4, 42), Status(0, "6", "5")), 0, 2, kNow)
            .empty());
  CHECK(GroupsOfFlights(Document("", Status(0, "0", "0")), 0, 2, kNow).empty());
}

TEST_CASE("torch flights: what is no such answer has no groups") {
  for (const char* json :
       {"", "[]", "7", "{", R"({"entries":7,"pg_status":[1]})", R"({"pg_status":{"0":7}})",
        R"({"entries":[7,{"pg_id":"x"},{"pg_id":0}],"pg_status":{"0":{}},"pg_config":3})"}) {
    CAPTURE(json);
    CHECK(GroupsOfFlights(json, 0, 2, kNow).empty());
  }
  std::string odd = Entry(0, kDefault, 6, 42);
  odd.replace(odd.find("false"), 5, "7");
  CHECK(GroupsOfFlights(Document(odd, Status(0, "6", "5")), 0, 2, kNow).size() == 1);
  std::string whole = Document(Entry(0, kDefault, 6, 42), Status(0, "6", "5"));
  for (size_t i = 0; i < whole.size(); ++i) {
    CHECK(GroupsOfFlights(whole.substr(0, i), 0, 2, kNow).empty());
    std::string broken = whole;
    broken[i] = static_cast<char>(broken[i] ^ 0x55);
    for (const GroupView& group : GroupsOfFlights(broken, 0, 2, kNow)) {
      CHECK(group.called >= group.done);
    }
  }
  const std::string deep(100'000, '[');
  CHECK(GroupsOfFlights(R"({"entries":)" + deep, 0, 2, kNow).empty());
}

}  // namespace
}  // namespace ddprun::launcher
