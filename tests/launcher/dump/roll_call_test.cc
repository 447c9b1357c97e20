#include "launcher/dump/roll_call.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace ddprun::launcher {
namespace {

RankStack At(int rank, const std::string& where, const std::string& stack, bool is_waiting = true) {
  return {.rank = rank, .where = where, .is_waiting = is_waiting, .stack = stack};
}

std::string SentenceOf(const std::vector<RankStack>& ranks) {
  return RollCallSentence(GroupRanks(ranks));
}

TEST_CASE("roll call: ranks at the same place are one group, and the stack is printed once") {
  const std::vector<RankGroup> groups =
      GroupRanks({At(3, "in X", "x\nmain\n"), At(1, "in Y", "y\nmain\n", false),
                  At(0, "in X", "x\nmain\n"), At(2, "in X", "x\nmain\n")});
  CHECK(RollCallText(groups) == R"(3 of 4 ranks (0, 2-3) wait in X; rank 1 is in Y

ranks 0, 2-3:
    x
    main

rank 1:
    y
    main
)");
}

TEST_CASE("roll call: all ranks, one rank, none") {
  CHECK(SentenceOf({At(0, "in X", "x"), At(1, "in X", "x")}) == "all 2 ranks wait in X");
  CHECK(SentenceOf({At(0, "in X", "x")}) == "rank 0 waits in X");
  CHECK(SentenceOf({At(0, "in X", "x", false), At(1, "in X", "x", false)}) ==
        "all 2 ranks are in X");
  CHECK(SentenceOf({}) == "");
  CHECK(RollCallText({}) == "");
}

TEST_CASE("roll call: those that have ended stand last") {
  const std::vector<RankGroup> groups = GroupRanks({{.rank = 0, .unknown_why = kHasEnded},
                                                    {.rank = 1, .unknown_why = kHasEnded},
                                                    At(2, "in Y", "y", false)});
  CHECK(RollCallText(groups) == R"(rank 2 is in Y; ranks 0-1 have ended

rank 2:
    y

ranks 0-1:
    (no stack) the process has ended
)");
}

TEST_CASE("roll call: what is not known is told with the reason") {
  CHECK(SentenceOf({{.rank = 0, .unknown_why = kHasEnded},
                    {.rank = 1, .unknown_why = "stack: not permitted"},
                    At(2, "stopped in Y", "y", false)}) ==
        "rank 2 is stopped in Y; rank 0 has ended; rank 1 is not known: stack: not permitted");
  CHECK(SentenceOf({{.rank = 0, .unknown_why = kHasEnded},
                    {.rank = 1, .unknown_why = kHasEnded}}) == "all 2 ranks have ended");
}

TEST_CASE(
    "roll call: frames that differ below the same place are groups of their own, named once") {
  const std::vector<RankGroup> groups =
      GroupRanks({At(0, "in X", "x\na"), At(1, "in X", "x\nb"), At(2, "in Z", "z", false)});
  CHECK(groups.size() == 3);
  CHECK(RollCallSentence(groups) == "2 of 3 ranks (0-1) wait in X; rank 2 is in Z");
}

TEST_CASE("roll call: addresses and thread numbers do not part what is together") {
  const char* const first = "TID 7:\n#0  0x1 pause\n#1  0x2 step\n";
  const char* const second = "TID 8:\n#0  0x3 pause\n#1  0x4 step\nTID 9:\n#0  0x5 poll\n";
  const std::vector<RankGroup> groups =
      GroupRanks({MakeRankStack(0, ParseStack(kEuStack, first, 7)),
                  MakeRankStack(1, ParseStack(kEuStack, second, 8))});
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].stack == "pause\nstep\n");
  CHECK(RollCallSentence(groups) == "all 2 ranks wait in step");
}

TEST_CASE("roll call: a thousand ranks are told in a line") {
  std::vector<RankStack> ranks;
  for (int rank = 0; rank < 1000; ++rank) {
    const std::string place = rank % 2 == 0 ? "X" : std::to_string(rank);
    ranks.push_back(At(rank, "in " + place, place, rank % 2 == 0));
  }
  const std::vector<RankGroup> groups = GroupRanks(ranks);
  CHECK(RollCallSentence(groups) ==
        "500 of 1000 ranks (0, 2, 4, 6, 8, 10, 12, 14 and 492 more) wait in X; rank 1 is "
        "in 1; rank 3 is in 3; rank 5 is in 5; ranks 7, 9, 11, 13, 15, 17, 19, 21 and 489 more are "
        "at 497 other places");
  const std::string text = RollCallText(groups);
  CHECK(text.ends_with("\nand 469 more, of ranks 63, 65, 67, 69, 71, 73, 75, 77 and 461 more\n"));
  CHECK(text.size() < 4096);
}

TEST_CASE("roll call: ranks are told in ranges") {
  CHECK(RankListText({}) == "");
  CHECK(RankListText({0, 1, 2, 5, 7, 8}) == "0-2, 5, 7-8");
}

}  // namespace
}  // namespace ddprun::launcher
