#include "worker_runtime/spawn/rank_news.h"

#include <doctest/doctest.h>

namespace ddp::internal {
namespace {

TEST_CASE("spawn mark: what was written is read, and nothing else is a mark") {
  const SpawnMark mark{.call = 2, .rank = 3, .caller = 4567, .pipe = 8, .pipe_inode = ~0ULL};
  CHECK(ParseSpawnMark(FormatSpawnMark(mark)) == mark);
  for (const char* text : {"", "1 2 3 4", "1 2 3 4 5 6", "1 2 3 4 -5", "1 2 x 4 5"}) {
    CAPTURE(text);
    CHECK(ParseSpawnMark(text) == std::nullopt);
  }
}

TEST_CASE("rank news: every part is read") {
  CHECK(ParseRankNews("") == RankNews());
  CHECK(ParseRankNews(BegunNews()) == RankNews{.has_begun = true});
  CHECK(ParseRankNews(BegunNews() + ReturnedNews(7)) == RankNews{.has_begun = true, .returned = 7});
  CHECK(ParseRankNews(BegunNews() + ExceptionNews("a\nb")) ==
        RankNews{.has_begun = true, .exception = "a\\nb"});
  CHECK(ParseRankNews(BegunNews() + ExceptionNews("")) ==
        RankNews{.has_begun = true, .exception = ""});
}

TEST_CASE("rank news: what is no news says nothing, and a long exception is cut") {
  CHECK(ParseRankNews("garbage") == RankNews());
  CHECK(ParseRankNews(BegunNews() + "rx") == RankNews{.has_begun = true});
  CHECK(ExceptionNews(std::string(5000, 'x')).size() == 1025);
  CHECK(ParseRankNews(BegunNews() + "e" + std::string(5000, 'x')).exception ==
        std::string(1024, 'x'));
}

}  // namespace
}  // namespace ddp::internal
