// Hosts of a test's own whose cables misbehave: network namespaces, joined by a switch that is a
// thread of the test.
//
// Each host's eth0 is a tap device whose other end the test holds, so every packet passes through
// our hands and may be late, lost, doubled, overtaken or swallowed. The kernel's netem is missing
// from many machines, and a proxy for TCP cannot do the half of it.
#ifndef DDPRUN_TESTS_FAULTS_WIRE_H_
#define DDPRUN_TESTS_FAULTS_WIRE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::testing {

// What a host's cable does to each packet, to those that it sends as to those that it gets.
struct Cable {
  double loss = 0;         // 0 to 1
  double duplication = 0;  // likewise
  std::chrono::microseconds delay{0};
  // Each packet is late by up to this much more, and so may overtake another one.
  std::chrono::microseconds jitter{0};
  uint64_t bytes_per_second = 0;  // 0: no limit
  size_t largest_packet = 0;      // larger ones vanish, nobody is told; 0: no limit
  bool is_deaf = false;           // nothing gets to the host
  bool is_mute = false;           // nothing leaves it
  int side = 0;                   // hosts of two sides do not hear each other
};

// What has happened to packets so far.
struct PacketCounts {
  uint64_t carried = 0;
  uint64_t lost = 0;
  uint64_t doubled = 0;
  uint64_t overtaken = 0;
  uint64_t too_large = 0;
  uint64_t queued = 0;  // behind another one, at a cable with a limit
  uint64_t cut = 0;     // at a deaf or mute cable, or between sides
};

class Wire {
 public:
  // `count` hosts with addresses 10.77.0.1, 10.77.0.2, ... Null, with the reason in `why`, where
  // this machine does not permit it. Chance is the same in each run.
  static std::unique_ptr<Wire> Make(int count, std::string* why);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // The name of host `index` (from 1) for Subprocess::Options::netns.
  std::string Name(int index) const;
  std::string Address(int index) const { return "10.77.0." + std::to_string(index); }

  void Set(int index, const Cable& cable);
  void SetAll(const Cable& cable);
  // Pulls both ways.
  void Cut(int index) { Set(index, {.is_deaf = true, .is_mute = true}); }
  void Heal(int index) { Set(index, {}); }
  // Takes the interface behind the cable down, or up again. Packets for it are lost meanwhile.
  void SetLink(int index, bool is_up);
  // Host `index` gets the address of host `of` in place of its own, and tells all others.
  void TakeAddress(int index, int of);
  PacketCounts counts() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Port;
  struct Packet;

  explicit Wire(int count);
  std::string Build();
  std::string MakeTap(int index);
  void Run();
  // Takes what has come from a port; whether there may be more.
  bool Take(size_t from);
  void Route(size_t from, const std::string& frame);
  void Send(size_t from, size_t to, const std::string& frame);
  // How late a packet is over one end's cable; none: it is gone. `is_sent`: by that host.
  bool Pass(Port& port, size_t bytes, bool is_sent, Clock::time_point now, Clock::duration& late);
  void Deliver(Clock::time_point now);
  bool Chance(double probability);

  const std::string prefix_;
  mutable std::mutex mutex_;
  std::vector<Port> ports_;        // guarded by mutex_, like what follows
  std::vector<Packet> under_way_;  // a heap
  uint64_t sequence_ = 0;
  PacketCounts counts_;
  std::mt19937_64 random_{1};
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_FAULTS_WIRE_H_
