#include "worker_runtime/spawn/rank_news.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/plain_text.h"

namespace ddp::internal {
namespace {

constexpr size_t kMaxWhatBytes = 1024;
constexpr char kBegun = 'b';
constexpr char kReturned = 'r';
constexpr char kException = 'e';

}  // namespace

std::string FormatSpawnMark(const SpawnMark& mark) {
  return absl::StrCat(mark.call, " ", mark.rank, " ", mark.caller, " ", mark.pipe, " ",
                      mark.pipe_inode);
}

std::optional<SpawnMark> ParseSpawnMark(std::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ' ');
  SpawnMark mark;
  if (parts.size() != 5 || !absl::SimpleAtoi(parts[0], &mark.call) ||
      !absl::SimpleAtoi(parts[1], &mark.rank) || !absl::SimpleAtoi(parts[2], &mark.caller) ||
      !absl::SimpleAtoi(parts[3], &mark.pipe) || !absl::SimpleAtoi(parts[4], &mark.pipe_inode)) {
    return std::nullopt;
  }
  return mark;
}

RankNews ParseRankNews(std::string_view text) {
  RankNews news;
  if (text.empty() || text[0] != kBegun) return news;
  news.has_begun = true;
  text.remove_prefix(1);
  if (text.empty()) return news;
  const std::string_view rest = text.substr(1);
  int code = 0;
  if (text[0] == kReturned && absl::SimpleAtoi(std::string(rest), &code)) news.returned = code;
  // The process may have written anything: it is escaped here, on the side that shows it.
  if (text[0] == kException) {
    news.exception =
        ddprun::EscapeControl(rest.substr(0, ddprun::CharacterStart(rest, kMaxWhatBytes)));
  }
  return news;
}

std::string BegunNews() { return std::string(1, kBegun); }
std::string ReturnedNews(int code) { return absl::StrCat(std::string(1, kReturned), code); }
std::string ExceptionNews(std::string_view what) {
  const std::string_view start = what.substr(0, ddprun::CharacterStart(what, kMaxWhatBytes));
  return absl::StrCat(std::string(1, kException), std::string(start));
}

}  // namespace ddp::internal
