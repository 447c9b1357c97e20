// The rendezvous machine alone with NODES agents that are only names, in virtual time:
//
//   machine_farm NODES [WIDTH]
//
// With WIDTH a relay stands between the machine and each so many nodes, and carries what they say
// within 50 ms, and what they are told within 50 ms, as one message. There are no relays in the
// product: this tells what they would save.
//
// Nothing is sent and no agent decides anything: what is counted is what the machine says, what
// that is on the wire, and what the machine itself takes of a processor. The network, gRPC and the
// agents come on top. Prints a line of JSON for each phase of a job.
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/core/rendezvous_machine.h"
#include "rendezvous/core/types.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::bench {
namespace {

using namespace rendezvous;  // of its words half are used here

double CpuTime_ms() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

int64_t Resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib;
  }
  return 0;
}

struct Node {
  NodeJoined hello;
  Assignment held;
};

class Farm {
 public:
  Farm(int count, int width)
      : width_(static_cast<size_t>(width)), nodes_(static_cast<size_t>(count)) {
    heard_in_.resize((nodes_.size() + width_ - 1) / width_);
    told_in_.resize(heard_in_.size());
    policy_ = {.run_id = "scale", .min_nodes = count, .max_nodes = count, .max_restarts = 10};
    Beginning beginning{.epoch = Epoch{1}, .instance = {.high = 1, .low = 1}, .verdict = {}};
    machine_.emplace(policy_, beginning, now_);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      NodeJoined& hello = nodes_[i].hello;
      hello.node = {.id = NodeId{"node-" + std::to_string(i)}, .host = "host-" + std::to_string(i)};
      hello.node.local_world_size = 8;
      hello.node.store_port = 29500;
      hello.policy = policy_;
      hello.source_addr = "10." + std::to_string(i >> 16) + "." + std::to_string(i >> 8 & 255) +
                          "." + std::to_string(i & 255);
      hello.accepted_addr = "10.255.0.1";
      hello.stamp.session = SessionId{i + 1};
    }
    before_kib_ = Resident_kib();
  }

  // `per_second`: how fast they come.
  void Join(const char* phase, int per_second) {
    Begin();
    const Duration step = std::chrono::microseconds(1'000'000 / per_second);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Tick(step);
      NodeJoined event = nodes_[i].hello;
      event.stamp = Stamp(i);
      Carry(event.stamp.session, heard_in_, heard_);
      Feed(event);
    }
    while (assignments_ < nodes_.size()) Tick(std::chrono::milliseconds(1));
    Tell(phase, nodes_.size());
  }
  // Each says one.
  void Beat() {
    Begin();
    const Duration step = Duration(std::chrono::seconds(1)) / static_cast<int64_t>(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Tick(step);
      Carry(Stamp(i).session, heard_in_, heard_);
      Feed(HeartbeatReceived{Stamp(i)});
    }
    Tell("a second of heartbeats", nodes_.size());
  }
  void Fail() {
    Begin();
    const size_t who = nodes_.size() / 2;
    FailureReport report{.node = nodes_[who].hello.node.id, .rank = nodes_[who].held.first_rank};
    Feed(WorkersFailed{.stamp = Stamp(who), .report = report});
    Tick(std::chrono::milliseconds(250));
    Feed(TimePassed{});
    Tell("a worker fails, all are told to stop", 1);
  }
  // The usual failure: a node dies, peers fail of it, and all others stop and wait for its end.
  void Die() {
    Begin();
    const size_t dead = nodes_.size() - 1;
    Feed(SessionBroken{nodes_[dead].hello.stamp.session, /*is_by_peer=*/true});
    for (size_t who = 0; who < dead && who < kPeers; ++who) {
      FailureReport report{.node = nodes_[who].hello.node.id,
                           .rank = nodes_[who].held.first_rank,
                           .left_peer = nodes_[dead].held.first_rank};
      Feed(WorkersFailed{.stamp = Stamp(who), .report = report});
    }
    const Duration step = Duration(std::chrono::seconds(1)) / static_cast<int64_t>(nodes_.size());
    const TimePoint end = now_ + policy_.evict_after + std::chrono::seconds(1);
    size_t events = 0;
    for (; now_ < end; ++events) {
      Tick(step);
      const size_t i = events % dead;
      if (events < dead) {
        NodeJoined again = nodes_[i].hello;
        again.stamp = Stamp(i);
        Feed(again);
      } else {
        Feed(HeartbeatReceived{Stamp(i)});
      }
    }
    Tell("a node dies, peers fail of it, the others join again", events);
  }
  // Another coordinator takes over, and the nodes come back to it, so many in a second, while those
  // that are back beat.
  void TakeOver(int per_second) {
    Begin();
    machine_.emplace(policy_, Beginning{.epoch = Epoch{2}, .instance = {2, 1}, .verdict = {}},
                     now_);
    const Duration step = Duration(std::chrono::seconds(1)) / per_second;
    Duration owed{0};
    size_t next = 0, beats = 0;
    for (size_t back = 1; back <= nodes_.size(); ++back) {
      Tick(step);
      NodeJoined event = nodes_[back - 1].hello;
      event.stamp = Stamp(back - 1);
      event.held = nodes_[back - 1].held;
      event.restart_count = event.held->restart_count;
      event.max_restarts = event.held->max_restarts;
      Feed(event);
      owed += static_cast<int64_t>(back) * step;
      for (; owed >= machine_->beat_interval(); owed -= machine_->beat_interval(), ++beats) {
        Feed(HeartbeatReceived{Stamp(next++ % back)});
      }
    }
    const bool is_kept = drains_ == 0 && machine_->Facts(now_).phase == "running" &&
                         machine_->Facts(now_).waiting_for.empty();
    Tell(is_kept ? "a new coordinator, the round is kept" : "a new coordinator, the round is LOST",
         nodes_.size() + beats);
  }
  void Lose() {
    Begin();
    Feed(SessionBroken{nodes_.back().hello.stamp.session, /*is_by_peer=*/true});
    // All others are heard each second, as while they live.
    const Duration step = Duration(std::chrono::seconds(1)) / static_cast<int64_t>(nodes_.size());
    size_t events = 0;
    for (; events < 60 * nodes_.size() && drains_ == 0; ++events) {
      Tick(step);
      Feed(HeartbeatReceived{Stamp(events % (nodes_.size() - 1))});
    }
    Tell("a node is lost, the others are told to stop", events);
  }

 private:
  rendezvous::Stamp Stamp(size_t i) const {
    const Node& node = nodes_[i];
    return {node.hello.stamp.session, node.held.epoch, node.held.round, node.held.instance};
  }
  // Lets time pass, with the steps that the driver would make in it.
  void Tick(Duration duration) {
    const TimePoint end = now_ + duration;
    while (const auto next = machine_->NextDeadline()) {
      if (*next > end) break;
      now_ = std::max(now_, *next);
      Feed(TimePassed{});
    }
    now_ = end;
  }
  void Feed(const Event& event) {
    for (const Action& action : machine_->Step(now_, event))
      std::visit([this](auto& a) { Hear(a); }, action);
  }
  // Counts the message that carries a word of or to that node, once in 50 ms.
  void Carry(SessionId session, std::vector<int64_t>& carried_in, size_t& messages) {
    const int64_t span = width_ == 1 ? ++spans_ : now_.time_since_epoch() / kSpan;
    int64_t& carried = carried_in[(session.value - 1) / width_];
    if (std::exchange(carried, span) != span) ++messages;
  }
  void Count(const Action& action, size_t kind) {
    ++said_;
    const SessionId session = std::visit(
        [](const auto& any) {
          if constexpr (requires { any.session; })
            return any.session;
          else
            return SessionId{1};
        },
        action);
    Carry(session, told_in_, told_);
    if (wire_bytes_.find(kind) == wire_bytes_.end()) {
      wire_bytes_[kind] = ToProto(action, machine_->current(), now_).ByteSizeLong();
    }
    bytes_ += wire_bytes_[kind];
  }
  template <typename Any>
  void Hear(const Any&) {}
  void Hear(const TellWaiting& wait) { Count(wait, 0); }
  void Hear(const Assign& assign) {
    Count(assign, 1);
    ++assignments_;
    nodes_[assign.session.value - 1].held = assign.assignment;
  }
  void Hear(const Drain& drain) {
    Count(drain, 2);
    ++drains_;
  }
  void Hear(const Conclude& conclude) { Count(conclude, 3); }

  void Begin() {
    heard_ = told_ = 0;
    said_ = bytes_ = drains_ = assignments_ = 0;
    wire_bytes_.clear();
    began_ = now_;
    began_cpu_ms_ = CpuTime_ms();
  }
  void Tell(const char* phase, size_t events) {
    const double cpu_ms = CpuTime_ms() - began_cpu_ms_;
    const auto nodes = static_cast<double>(nodes_.size());
    std::printf(R"({"phase": "%s", "nodes": %zu, "cpu_ms": %.3f, "us_an_event": %.3f, )", phase,
                nodes_.size(), cpu_ms, 1e3 * cpu_ms / static_cast<double>(events));
    std::printf(R"("virtual_ms": %.1f, "messages_a_node": %.3f, "bytes_a_node": %.0f, )",
                std::chrono::duration<double, std::milli>(now_ - began_).count(),
                static_cast<double>(said_) / nodes, static_cast<double>(bytes_) / nodes);
    std::printf(R"("connections": %zu, "heard": %zu, "told": %zu, )", heard_in_.size(), heard_,
                told_);
    std::printf(R"("kib_a_node": %.2f})"
                "\n",
                static_cast<double>(Resident_kib() - before_kib_) / nodes);
    std::fflush(stdout);
  }

  static constexpr size_t kPeers = 8;
  static constexpr Duration kSpan = std::chrono::milliseconds(50);
  const size_t width_;  // nodes behind a connection
  int64_t spans_ = 0;
  std::vector<int64_t> heard_in_, told_in_;  // by connection: the last span with a message
  size_t heard_ = 0, told_ = 0;              // messages

  Policy policy_;
  std::optional<RendezvousMachine> machine_;
  std::vector<Node> nodes_;
  TimePoint now_{std::chrono::seconds(1)};
  TimePoint began_{};
  double began_cpu_ms_ = 0;
  int64_t before_kib_ = 0;
  size_t said_ = 0, bytes_ = 0, drains_ = 0, assignments_ = 0;
  std::map<size_t, size_t> wire_bytes_;  // of one message of a kind
};

}  // namespace
}  // namespace ddprun::bench

int main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 0;
  const int width = argc > 2 ? std::atoi(argv[2]) : 1;
  if (nodes < 2 || width < 1) {
    std::fprintf(stderr, "machine_farm: see the beginning of machine_farm.cc\n");
    return 2;
  }
  ddprun::bench::Farm farm(nodes, width);
  // Within a part of the evict time: nobody beats while they come.
  const int per_second = std::max(10'000, nodes / 4);
  farm.Join("all join, the round is sealed", per_second);
  farm.Beat();
  farm.Fail();
  farm.Join("all join again, the next round is sealed", per_second);
  // As fast as 4,096 of the product's agents came back.
  farm.TakeOver(215);
  farm.Die();
  farm.Join("it is back, the next round is sealed", per_second);
  farm.Lose();
  return 0;
}
