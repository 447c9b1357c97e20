// N simulated ranks do with a TCPStore server what PyTorch's init_process_group does, all at once:
// connect, VALIDATE and PING, count in `init/`, publish an address, wait for rank 0's and read it,
// then PyTorch's store-based barrier. Tells how long it took until the last rank was through, and
// what a rank cost the server. One thread; a rank has one request under way.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tools/bench/store/client.h"

namespace {

using ddprun::UniqueFd;
using ddprun::bench::Encode;
using ddprun::bench::Fail;
using ddprun::rendezvous::kStoreMagic;
using ddprun::rendezvous::StoreOp;
using std::chrono::steady_clock;

constexpr char kUsage[] = "init_bench --port=N [--host=H] [--ranks=N] [--server_pid=PID]";
// As long as the largest that PyTorch's workers publish.
constexpr size_t kAddressBytes = 170;
constexpr int kSilenceMs = 60'000;

struct Options {
  std::string host = "127.0.0.1";
  std::string port;
  int ranks = 64;
  int server_pid = 0;
};

// The requests of a rank, in order; each ends with one that has a reply.
enum Stage { kGreet, kCount, kPublish, kRead, kArrive, kLook, kLeave, kDone };

struct Rank {
  UniqueFd fd;
  Stage stage = kGreet;
  std::string reply;
};

class Ranks {
 public:
  explicit Ranks(const Options& options)
      : options_(options),
        // A second run against the same server finds none of the first one's keys.
        prefix_("/run" + std::to_string(getpid()) + "/"),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        ranks_(static_cast<size_t>(options.ranks)) {}

  // Until every rank is through.
  void Run() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i].fd = ddprun::bench::Connect(options_.host, options_.port);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = i;
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, ranks_[i].fd.get(), &event);
      Ask(i);
      // While others still connect, those that have an answer go on, as processes would.
      Answer(0);
    }
    while (done_ < ranks_.size()) {
      if (Answer(kSilenceMs) == 0) Fail("no answer for a minute");
    }
  }

 private:
  int Answer(int timeout_ms) {
    epoll_event events[256];
    const int count = epoll_wait(epoll_.get(), events, 256, timeout_ms);
    for (int i = 0; i < count; ++i) Receive(events[i].data.u64);
    return count;
  }

  void Receive(size_t index) {
    Rank& rank = ranks_[index];
    char bytes[512];
    const ssize_t count = recv(rank.fd.get(), bytes, sizeof(bytes), 0);
    if (count <= 0) Fail("receive");
    rank.reply.append(bytes, static_cast<size_t>(count));
    if (rank.reply.size() > ReplyBytes(rank.stage)) Fail("a reply too long");
    if (rank.reply.size() < ReplyBytes(rank.stage)) return;
    int64_t number = 0;
    std::memcpy(&number, rank.reply.data(), std::min(rank.reply.size(), sizeof(number)));
    is_last_ = rank.stage == kLook && number == options_.ranks;
    rank.reply.clear();
    rank.stage = static_cast<Stage>(rank.stage + 1);
    if (rank.stage == kDone) {
      ++done_;
    } else {
      Ask(index);
    }
  }

  void Ask(size_t index) {
    ddprun::bench::SendAll(ranks_[index].fd.get(), Request(index, ranks_[index].stage));
  }

  std::string Request(size_t index, Stage stage) const {
    const std::string address(kAddressBytes, 'a');
    const std::string first = prefix_ + "0", last = prefix_ + "last";
    switch (stage) {
      case kGreet:
        return Encode({StoreOp::kValidate, kStoreMagic, 0, {}}) +
               Encode({StoreOp::kPing, static_cast<uint32_t>(index), 0, {}});
      case kCount:
        return Encode({StoreOp::kAdd, 0, 1, {"init/"}});
      case kPublish: {
        const std::string own = prefix_ + std::to_string(index);
        return Encode({StoreOp::kSet, 0, 0, {own, address}}) +
               Encode({StoreOp::kWait, 0, 0, {first}});
      }
      case kRead:
        return Encode({StoreOp::kGet, 0, 0, {first}});
      case kArrive:
        return Encode({StoreOp::kAdd, 0, 1, {prefix_ + "barrier"}});
      case kLook:
        return Encode({StoreOp::kAdd, 0, 0, {prefix_ + "barrier"}});
      case kLeave: {
        // Who finds all there tells the others.
        const std::string tell = is_last_ ? Encode({StoreOp::kSet, 0, 0, {last, "1"}}) : "";
        return tell + Encode({StoreOp::kWait, 0, 0, {last}});
      }
      case kDone:
        break;
    }
    Fail("no such stage");
  }

  static size_t ReplyBytes(Stage stage) {
    switch (stage) {
      case kGreet:
        return sizeof(uint32_t);
      case kCount:
      case kArrive:
      case kLook:
        return sizeof(int64_t);
      case kRead:
        return sizeof(uint64_t) + kAddressBytes;
      case kPublish:
      case kLeave:
      case kDone:
        return 1;
    }
    Fail("no such stage");
  }

  const Options& options_;
  const std::string prefix_;
  const UniqueFd epoll_;
  std::vector<Rank> ranks_;
  size_t done_ = 0;
  bool is_last_ = false;  // Of the rank whose reply was read last.
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  ddprun::bench::ParseArguments(
      argc, argv, {{"--host", &options.host}, {"--port", &options.port}},
      {{"--ranks", &options.ranks}, {"--server_pid", &options.server_pid}}, kUsage);
  if (options.port.empty() || options.ranks < 1) {
    std::fprintf(stderr, "init_bench: --port is needed, --ranks is positive\n");
    return 2;
  }
  ddprun::bench::RaiseDescriptorLimit();
  const int64_t cpu_before = ddprun::bench::CpuTime(options.server_pid);
  const auto begin = steady_clock::now();
  Ranks ranks(options);
  ranks.Run();
  const std::chrono::duration<double, std::milli> wall = steady_clock::now() - begin;
  const int64_t cpu = ddprun::bench::CpuTime(options.server_pid) - cpu_before;
  std::printf("{\"ranks\": %d, \"milliseconds\": %.3f, \"server_cpu_us_per_rank\": %.3f}\n",
              options.ranks, wall.count(),
              static_cast<double>(cpu) / 1000.0 / static_cast<double>(options.ranks));
  return 0;
}
