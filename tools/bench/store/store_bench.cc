// Loads a TCPStore server (ours or PyTorch's) and tells how many requests it answers per second and
// what one costs the server's process. One thread, one request under way per connection.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/bench/store/client.h"

namespace {

using ddprun::UniqueFd;
using ddprun::bench::Connect;
using ddprun::bench::CpuTime;
using ddprun::bench::Encode;
using ddprun::bench::Fail;
using ddprun::bench::SendAll;
using ddprun::rendezvous::kStoreMagic;
using ddprun::rendezvous::StoreOp;
using std::chrono::steady_clock;

struct Options {
  std::string host = "127.0.0.1";
  std::string port;
  std::string mix = "mixed";
  int connections = 64;
  int milliseconds = 3000;
  int server_pid = 0;
};

// What a connection sends and how many bytes answer it. Then comes the next step, in a circle.
struct Step {
  std::string bytes;
  size_t reply_bytes = 0;
  int requests = 1;
};

struct Connection {
  UniqueFd fd;
  size_t step = 0;
  size_t awaited = 0;
};

constexpr size_t kValueBytes = 64;
constexpr int kSilenceMs = 60'000;

// A SET has no answer; the PING behind it tells that it was carried out.
std::vector<Step> StepsOf(const std::string& mix) {
  const std::string value(kValueBytes, 'v');
  const std::string ping = Encode({StoreOp::kPing, 1, 0, {}});
  const std::string set = Encode({StoreOp::kSet, 0, 0, {"/bench/value", value}});
  const Step get{Encode({StoreOp::kGet, 0, 0, {"/bench/value"}}), 8 + kValueBytes};
  const Step add{Encode({StoreOp::kAdd, 0, 1, {"/bench/count"}}), 8};
  const Step wait{Encode({StoreOp::kWait, 0, 0, {"/bench/value"}}), 1};
  const Step check{Encode({StoreOp::kCheck, 0, 0, {"/bench/value"}}), 1};
  const Step set_ping{set + ping, 4, 2};
  std::string sets;
  for (int i = 0; i < 16; ++i) sets += set;
  if (mix == "get") return {get};
  if (mix == "add") return {add};
  if (mix == "wait") return {wait};
  if (mix == "set") return {{sets + ping, 4, 17}};
  // As PyTorch's workers do in start-up: a read is two WAITs and a GET.
  if (mix == "mixed") return {add, set_ping, wait, wait, get, check};
  std::fprintf(stderr, "store_bench: --mix=%s: get, set, add, wait or mixed\n", mix.c_str());
  std::exit(2);
}

class Load {
 public:
  explicit Load(const Options& options)
      : options_(options), steps_(StepsOf(options.mix)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    std::string greeting = Encode({StoreOp::kValidate, kStoreMagic, 0, {}});
    greeting += Encode({StoreOp::kSet, 0, 0, {"/bench/value", std::string(kValueBytes, 'v')}});
    greeting += Encode({StoreOp::kPing, 1, 0, {}});
    connections_.resize(static_cast<size_t>(options.connections));
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      connection.fd = Connect(options.host, options.port);
      SendAll(connection.fd.get(), greeting);
      // PyTorch's server may take seconds for an accepted connection: it looks up its name.
      uint32_t pong = 0;
      if (recv(connection.fd.get(), &pong, sizeof(pong), MSG_WAITALL) != sizeof(pong)) {
        Fail("greet");
      }
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = i;
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.fd.get(), &event);
      connection.step = i % steps_.size();
    }
    for (Connection& connection : connections_) Start(connection);
  }

  // Requests answered in that time.
  int64_t RunFor(std::chrono::milliseconds time) {
    answered_ = 0;
    const auto end = steady_clock::now() + time;
    epoll_event events[256];
    while (steady_clock::now() < end) {
      const int count = epoll_wait(epoll_.get(), events, 256, kSilenceMs);
      if (count == 0) Fail("no answer for a minute");
      for (int i = 0; i < count; ++i) Receive(connections_[events[i].data.u64]);
    }
    return answered_;
  }

 private:
  void Start(Connection& connection) {
    const Step& step = steps_[connection.step];
    connection.awaited = step.reply_bytes;
    SendAll(connection.fd.get(), step.bytes);
  }

  void Receive(Connection& connection) {
    char bytes[4096];
    const ssize_t count = recv(connection.fd.get(), bytes, sizeof(bytes), 0);
    if (count <= 0 || static_cast<size_t>(count) > connection.awaited) Fail("receive");
    connection.awaited -= static_cast<size_t>(count);
    if (connection.awaited > 0) return;
    answered_ += steps_[connection.step].requests;
    connection.step = (connection.step + 1) % steps_.size();
    Start(connection);
  }

  const Options& options_;
  const std::vector<Step> steps_;
  const UniqueFd epoll_;
  std::vector<Connection> connections_;
  int64_t answered_ = 0;
};

constexpr char kUsage[] =
    "store_bench --port=N [--host=H] [--connections=N] [--milliseconds=N]\n"
    "         [--mix=get|set|add|wait|mixed] [--server_pid=PID]";

Options ParseOptions(int argc, char** argv) {
  Options options;
  ddprun::bench::ParseArguments(
      argc, argv, {{"--host", &options.host}, {"--port", &options.port}, {"--mix", &options.mix}},
      {{"--connections", &options.connections},
       {"--milliseconds", &options.milliseconds},
       {"--server_pid", &options.server_pid}},
      kUsage);
  if (options.port.empty() || options.connections < 1 || options.milliseconds < 1) {
    std::fprintf(stderr, "store_bench: --port is needed, numbers are positive\n");
    std::exit(2);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  ddprun::bench::RaiseDescriptorLimit();
  Load load(options);
  load.RunFor(std::chrono::milliseconds(300));  // Warm.
  const int64_t cpu_before = CpuTime(options.server_pid);
  const auto begin = steady_clock::now();
  const int64_t answered = load.RunFor(std::chrono::milliseconds(options.milliseconds));
  const std::chrono::duration<double> wall = steady_clock::now() - begin;
  const int64_t cpu = CpuTime(options.server_pid) - cpu_before;
  std::printf(
      "{\"mix\": \"%s\", \"connections\": %d, \"requests\": %lld, \"requests_per_second\": %.0f, "
      "\"server_cpu_us_per_request\": %.3f}\n",
      options.mix.c_str(), options.connections, static_cast<long long>(answered),
      static_cast<double>(answered) / wall.count(),
      static_cast<double>(cpu) / 1000.0 / static_cast<double>(answered));
  return 0;
}
