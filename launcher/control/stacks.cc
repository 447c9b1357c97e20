#include "launcher/control/stacks.h"

#include <sys/stat.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/dump/process_reading.h"
#include "launcher/dump/stack_reader.h"
#include "launcher/report/whole_file.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {
namespace {

using nlohmann::json;

// The tools' own deadline is kPatience; a process that the kernel keeps may take longer to be read.
constexpr Duration kThreadPatience = Stacks::kPatience + std::chrono::seconds(4);
constexpr size_t kMaxStackBytes = 16 * 1024;  // of one rank
constexpr size_t kMaxStacks = 4096;           // of one node

std::string Cut(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, CharacterStart(text, most)) + "\n[cut]\n";
}

json ToJson(const RankStack& stack, size_t most) {
  return {{"rank", stack.rank},
          {"where", Cut(stack.where, 500)},
          {"unknown_why", Cut(stack.unknown_why, 500)},
          {"is_waiting", stack.is_waiting},
          {"stack", Cut(stack.stack, most)}};
}

std::string TextIn(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Each line made harmless: another node's words.
std::string PlainLines(const std::string& text) {
  std::string plain;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    absl::StrAppend(&plain, EscapeControl(text.substr(begin, end - begin)), "\n");
    begin = end + 1;
  }
  return plain;
}

}  // namespace

Stacks::Stacks(boost::asio::io_context& io, Options options, const NodeRecord& record)
    : options_(std::move(options)), record_(record), thread_(io) {}

std::vector<DumpProcess> Stacks::Processes(const Ranks& ranks) const {
  std::vector<DumpProcess> processes;
  for (const auto& [local_rank, worker] : record_.workers()) {
    const int rank = record_.assignment().first_rank + local_rank;
    const bool is_wanted = ranks.empty() || ranks.contains(rank);
    if (!is_wanted || (worker.pid <= 0 && !worker.ended_at)) continue;
    // The number of one that has ended may be another process's by now.
    processes.push_back(
        {.rank = rank, .local_rank = local_rank, .pid = worker.ended_at ? 0 : worker.pid});
  }
  return processes;
}

void Stacks::Read(const Ranks& ranks,
                  std::function<void(std::optional<std::vector<RankStack>>)> then) {
  thread_.Start();
  // The work would be done here.
  if (!thread_.has_thread()) return then(std::nullopt);
  thread_.Ask<std::vector<RankStack>>(
      "stacks", "the workers' stacks", kThreadPatience,
      [processes = Processes(ranks), path = options_.tool_path,
       deadline = SteadyNow() + kPatience] {
        std::vector<pid_t> pids;
        for (const DumpProcess& process : processes) pids.push_back(process.pid);
        const std::vector<ProcessReading> read =
            ReadProcesses(pids, deadline, {.tools = {.path = path}});
        std::vector<RankStack> stacks;
        for (size_t i = 0; i < read.size(); ++i) {
          stacks.push_back(ToRankStack(processes[i].rank, read[i].stack));
        }
        return stacks;
      },
      std::move(then));
}

void Stacks::Dump(const std::string& path, const Ranks& ranks,
                  std::function<void(std::optional<DumpResult>)> then) {
  thread_.Start();
  if (!thread_.has_thread()) return then(std::nullopt);
  DumpRequest request{.folder = path,
                      .other_places = options_.other_places,
                      .run_id = options_.run_id,
                      .host = options_.host,
                      .processes = Processes(ranks),
                      .tools = {.path = options_.tool_path},
                      .flight_folder = options_.flight_folder,
                      .deadline = SteadyNow() + kPatience};
  thread_.Ask<DumpResult>(
      "dump", path, kThreadPatience, [request = std::move(request)] { return WriteDump(request); },
      std::move(then));
}

void Stacks::Complete(const Ranks& ranks, DumpResult own, std::vector<std::string> others,
                      std::function<void(std::optional<Whole>)> then) {
  Ranks wanted = ranks;
  for (int rank = 0; ranks.empty() && rank < record_.assignment().world_size; ++rank) {
    wanted.insert(rank);
  }
  const std::string path = own.folder;
  thread_.Ask<Whole>(
      "dump", path, kThreadPatience,
      [path, wanted = std::move(wanted), own = std::move(own),
       others = std::move(others)]() mutable {
        absl::Status status = own.status;
        std::vector<RankStack> all = std::move(own.ranks);
        const size_t own_count = all.size();
        for (const std::string& text : others) {
          for (RankStack& stack : StacksFromJson(text)) all.push_back(std::move(stack));
        }
        for (size_t i = own_count; i < all.size() && !path.empty(); ++i) {
          const RankStack& stack = all[i];
          const std::string folder = absl::StrCat(path, "/rank-", stack.rank);
          if (mkdir(folder.c_str(), 0700) != 0) continue;  // this node has told of it
          status.Update(WriteWholeFile(
              folder + "/stack.txt", stack.stack.empty() ? stack.unknown_why + "\n" : stack.stack));
        }
        for (const RankStack& stack : all) wanted.erase(stack.rank);
        for (const int rank : wanted) {
          all.push_back({.rank = rank, .where = "", .unknown_why = "its node has not answered"});
        }
        const std::vector<RankGroup> groups = GroupRanks(std::move(all));
        if (!path.empty() && (!others.empty() || !wanted.empty())) {
          status.Update(WriteWholeFile(path + "/roll_call.txt", RollCallText(groups)));
        }
        return Whole{std::string(status.message()), RollCallSentence(groups)};
      },
      std::move(then));
}

std::string StacksToJson(const std::vector<RankStack>& stacks) {
  for (size_t most = kMaxStackBytes;; most /= 2) {
    json list = json::array();
    for (const RankStack& stack : stacks) list.push_back(ToJson(stack, most));
    std::string text = list.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() <= rendezvous::kMaxAnswerBytes) return text;
    if (most < 256) return "[]";
  }
}

std::vector<RankStack> StacksFromJson(const std::string& text) {
  std::vector<RankStack> stacks;
  const json list = json::parse(text, nullptr, false);
  if (!list.is_array()) return stacks;
  for (const json& object : list) {
    if (!object.is_object() || stacks.size() == kMaxStacks) break;
    const auto rank = object.find("rank"), waiting = object.find("is_waiting");
    // Compared as what it is: with an int, nlohmann's would be negative from 2^63 on.
    constexpr uint64_t kMaxRank = 1 << 24;
    if (rank == object.end() || !rank->is_number_unsigned()) continue;
    if (rank->get<uint64_t>() > kMaxRank) continue;
    stacks.push_back({.rank = rank->get<int>(),
                      .where = EscapeControl(TextIn(object, "where")),
                      .unknown_why = EscapeControl(TextIn(object, "unknown_why")),
                      .is_waiting = waiting != object.end() && *waiting == true,
                      .stack = PlainLines(Cut(TextIn(object, "stack"), kMaxStackBytes))});
  }
  return stacks;
}

}  // namespace ddprun::launcher
