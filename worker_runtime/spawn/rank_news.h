// What the two sides of a Spawn tell each other: the mark in a rank's environment, and the news
// that it writes to its pipe. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_RANK_NEWS_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_RANK_NEWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::internal {

inline constexpr char kSpawnVar[] = "DDPRUN_SPAWN";

// Which process is which rank of which call. A process that inherits the variable from a rank is
// none: it has another parent, or not that pipe.
struct SpawnMark {
  int call = 0;  // the how manieth of the program, from 1 on
  int rank = 0;
  int caller = 0;  // its pid
  int pipe = -1;   // the news go there
  uint64_t pipe_inode = 0;
  friend bool operator==(const SpawnMark&, const SpawnMark&) = default;
};
std::string FormatSpawnMark(const SpawnMark& mark);
std::optional<SpawnMark> ParseSpawnMark(std::string_view text);

// All that a rank has written. An empty text: it has not come to the call.
struct RankNews {
  bool has_begun = false;
  std::optional<int> returned{};           // by fn
  std::optional<std::string> exception{};  // that fn threw, in words fit for a line
  friend bool operator==(const RankNews&, const RankNews&) = default;
};
RankNews ParseRankNews(std::string_view text);

// The parts of that text, in the order in which they are written. Together they fit into a pipe.
std::string BegunNews();
std::string ReturnedNews(int code);
std::string ExceptionNews(std::string_view what);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_RANK_NEWS_H_
