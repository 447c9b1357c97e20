// What this agent and those of other nodes ask each other.
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/agent/worker_end.h"
#include "launcher/control/control_plane.h"
#include "launcher/report/job_reporter.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/core/question_desk.h"

namespace ddprun::launcher {
namespace {

using nlohmann::json;

constexpr Duration kLogPatience = std::chrono::milliseconds(500);
// A little more than a node takes at the longest.
constexpr Duration kStackPatience = Stacks::kPatience + std::chrono::seconds(5);

std::string ErrorText(const std::string& text) { return json{{"error", text}}.dump(); }

// What the user's own program wrote, for another process: bytes that are not UTF-8 become U+FFFD.
std::string Dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// "0,3"; false: it is none.
bool ParseRanks(const std::string& text, Stacks::Ranks& ranks) {
  for (const absl::string_view word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int rank = 0;
    if (!absl::SimpleAtoi(word, &rank) || rank < 0) return false;
    ranks.insert(rank);
  }
  return true;
}

// "2025-01-31T12:00:00.123Z" as a part of a folder's name.
std::string TimeInName(int64_t unix_ms) {
  std::string text = UtcText(unix_ms, 'T');
  std::erase_if(text, [](char c) { return c == ':' || c == '-' || c == '.'; });
  return text;
}

std::string NamePart(const std::string& text) {
  std::string name = text.substr(0, 60);
  for (char& c : name) {
    const bool is_plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!is_plain && c != '-' && c != '_') c = '_';
  }
  return name;
}

}  // namespace

void ControlPlane::AskNodeOf(int rank, const std::string& body, Duration patience,
                             std::function<void(std::optional<std::string>)> then) {
  watch_.Look([=, this](const std::shared_ptr<const JobSnapshot>& snapshot) {
    if (snapshot == nullptr || has_ended_) return then(std::nullopt);
    for (const NodeView& node : snapshot->job.nodes) {
      for (const RankView& view : node.ranks) {
        if (view.rank != rank) continue;
        return AskNodes(node.id, body, patience, [then](Answers answers) {
          then(answers.empty() ? std::nullopt : std::optional(answers.front().body));
        });
      }
    }
    then(ErrorText(
        absl::StrCat("there is no rank ", rank, " in this job, or its node does not answer")));
  });
}

void ControlPlane::AskNodes(const std::string& node_id, const std::string& body, Duration patience,
                            std::function<void(Answers)> then) {
  const uint64_t id = ++last_id_;
  Asking& asking = asking_[id];
  asking.then = std::move(then);
  // The coordinator gives what it has when its own time is over: a moment before ours.
  constexpr Duration kWay = std::chrono::seconds(1);
  const Duration time = std::max(patience, rendezvous::QuestionDesk::kPatience) + kWay;
  asking.timer = std::make_unique<boost::asio::steady_timer>(io_, time);
  asking.timer->async_wait([this, id](const boost::system::error_code& error) {
    if (error) return;
    const auto asked = asking_.extract(id);
    if (!asked.empty()) asked.mapped().then(std::move(asked.mapped().answers));
  });
  hooks_.ask({.id = id, .to = NodeId{node_id}, .body = body, .patience = patience});
}

void ControlPlane::Answered(const rendezvous::GiveAnswers& part) {
  const auto found = asking_.find(part.id);
  if (found == asking_.end()) return watch_.Answered(part);
  Answers& answers = found->second.answers;
  answers.insert(answers.end(), part.answers.begin(), part.answers.end());
  if (!part.is_last) return;
  auto asked = asking_.extract(found);
  asked.mapped().then(std::move(asked.mapped().answers));
}

void ControlPlane::Asked(uint64_t id, const std::string& body) {
  if (has_ended_) return;
  if (body == rendezvous::kPublicQuestion) return watch_.Asked(id, false);
  if (body == kPrivateQuestion) return watch_.Asked(id, true);
  AnswerHere(body, [this, id](const std::string& answer) { hooks_.answer(id, answer); });
}

void ControlPlane::AnswerHere(const std::string& body, std::function<void(std::string)> then) {
  const std::vector<std::string> words = absl::StrSplit(body, ' ');
  int rank = 0;
  uint64_t from = 0;
  Stacks::Ranks ranks;
  if (words.size() == 3 && words[0] == "logs" && absl::SimpleAtoi(words[1], &rank) && rank >= 0 &&
      absl::SimpleAtoi(words[2], &from)) {
    return AnswerLogs(rank, from, std::move(then));
  }
  if (words.size() >= 2 && words[0] == "stacks" && ParseRanks(words[1], ranks)) {
    // Our own question to all: the dump has them.
    if (words.size() == 3 && words[2] == watch_.record().node_id()) return then("[]");
    return stacks_.Read(ranks, [then](std::optional<std::vector<RankStack>> stacks) {
      then(StacksToJson(stacks.value_or(std::vector<RankStack>{})));
    });
  }
  then(ErrorText("this node's ddprun does not know that"));
}

void ControlPlane::AnswerLogs(int rank, uint64_t from, std::function<void(std::string)> then) {
  const int local_rank = rank - watch_.record().assignment().first_rank;
  thread_.Ask<RecentOutput>(
      "recent output", "the workers' output", 2 * kLogPatience,
      [&logs = logs_, local_rank, from] { return logs.Recent(local_rank, from, kLogPatience); },
      [rank, then,
       round = watch_.record().assignment().round.value](std::optional<RecentOutput> output) {
        if (!output) return then(ErrorText("the log thread does not answer"));
        json answer = {{"rank", rank},
                       {"round", round},
                       {"offset", output->end},
                       {"is_kept", output->is_kept},
                       {"has_stdout", output->has_stdout},
                       {"text", output->text}};
        std::string written = Dumped(answer);
        // A control character takes six bytes.
        while (written.size() > rendezvous::kMaxAnswerBytes) {
          output->text.erase(0, CharacterStart(output->text, output->text.size() / 2));
          answer["text"] = output->text;
          written = Dumped(answer);
        }
        then(std::move(written));
      });
}

void ControlPlane::AskWhere(int rank, std::function<void(std::string)> then) {
  const auto tell = [rank, then](std::optional<std::string> answer) {
    for (const RankStack& stack : StacksFromJson(answer.value_or(""))) {
      if (stack.rank == rank) return then(stack.where.empty() ? stack.unknown_why : stack.where);
    }
    then("");
  };
  const rendezvous::Assignment& here = watch_.record().assignment();
  const std::string body = absl::StrCat("stacks ", rank);
  if (watch_.record().workers().contains(rank - here.first_rank)) return AnswerHere(body, tell);
  AskNodeOf(rank, body, kStackPatience, tell);
}

void ControlPlane::GiveDump(const HttpRequest& request, HttpServer::Answer answer) {
  Stacks::Ranks ranks;
  const auto given = request.query.find("ranks"), directory = request.query.find("dir");
  if (given != request.query.end() && !ParseRanks(given->second, ranks)) {
    return answer({.status = 400, .type = "application/json", .body = ErrorText("wrong ranks")});
  }
  Dump(directory == request.query.end() ? "." : directory->second, ranks,
       [answer](const DumpDone& done) {
         answer({.type = "application/json",
                 .body = Dumped({{"folder", done.folder},
                                 {"why_there", done.why_there},
                                 {"sentence", done.sentence},
                                 {"error", done.error}}) +
                         "\n"});
       });
}

void ControlPlane::Dump(const std::string& directory, const Stacks::Ranks& ranks,
                        std::function<void(DumpDone)> then) {
  if (watch_.record().assignment().round == Round{}) {
    return then({.error = "the job has no ranks yet: it forms its first round"});
  }
  if (std::exchange(is_dumping_, true)) {
    return then({.error = "another dump is under way; try again in some seconds"});
  }
  struct Parts {
    std::optional<DumpResult> own;
    bool has_own = false, has_others = false;
    std::vector<std::string> others;  // as the nodes have written them
  };
  const auto parts = std::make_shared<Parts>();
  const std::string path = absl::StrCat(
      directory, "/ddprun-dump-", NamePart(options_.stacks.run_id), "-", TimeInName(UnixTimeMs()));
  const auto finish = [this, parts, ranks, then] {
    if (!parts->has_own || !parts->has_others) return;
    if (!parts->own) {
      is_dumping_ = false;
      return then({.error = "this node's stacks cannot be read in time"});
    }
    const std::string folder = parts->own->folder, why_there = parts->own->why_there;
    stacks_.Complete(ranks, *std::move(parts->own), std::move(parts->others),
                     [this, folder, why_there, then](std::optional<Stacks::Whole> whole) {
                       is_dumping_ = false;
                       if (!whole) whole = {.error = "the file system does not answer"};
                       then({folder, why_there, EscapeControl(whole->sentence), whole->error});
                     });
  };
  stacks_.Dump(path, ranks, [parts, finish](std::optional<DumpResult> own) {
    parts->own = std::move(own);
    parts->has_own = true;
    finish();
  });
  if (options_.is_alone) {
    parts->has_others = true;
    return;
  }
  const std::string body =
      absl::StrCat("stacks ", absl::StrJoin(ranks, ","), " ", watch_.record().node_id());
  AskNodes("", body, kStackPatience, [parts, finish](const Answers& answers) {
    for (const rendezvous::NodeAnswer& answer : answers) {
      parts->others.push_back(answer.body);
    }
    parts->has_others = true;
    finish();
  });
}

}  // namespace ddprun::launcher
