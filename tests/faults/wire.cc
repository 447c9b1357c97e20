#include "tests/faults/wire.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "rendezvous/base/check.h"
#include "tests/support/netns.h"

namespace ddprun::testing {
namespace {

constexpr size_t kEthernetHeader = 14;
constexpr size_t kLargestFrame = 2048;
// A switch that is full drops, as a real one does.
constexpr size_t kMostUnderWay = 4096;
constexpr auto kLongestQueue = std::chrono::seconds(1);

int NextNumber() {
  static int number = 0;
  return ++number;
}

// Puts this thread, which ends soon, into a network namespace.
bool Enter(const std::string& name) {
  const UniqueFd space(open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  return space.is_open() && setns(space.get(), CLONE_NEWNET) == 0;
}

}  // namespace

struct Wire::Port {
  UniqueFd fd;
  std::string hardware_address;  // once it has sent anything
  Cable cable;
  Clock::time_point sent_until;  // by its rate
  Clock::time_point heard_until;
  std::vector<Clock::time_point> latest;  // for each sender: the latest that is under way
};

struct Wire::Packet {
  Clock::time_point due;
  uint64_t sequence = 0;
  size_t to = 0;
  std::string frame;

  // The heap's top is what is due first.
  bool operator<(const Packet& other) const {
    return std::tie(due, sequence) > std::tie(other.due, other.sequence);
  }
};

Wire::Wire(int count)
    : prefix_("ddpw" + std::to_string(getpid()) + "-" + std::to_string(NextNumber())),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  for (int i = 0; i < count; ++i) {
    ports_.push_back({.latest = std::vector<Clock::time_point>(static_cast<size_t>(count))});
  }
}

std::unique_ptr<Wire> Wire::Make(int count, std::string* why) {
  std::unique_ptr<Wire> wire(new Wire(count));
  *why = wire->Build();
  return why->empty() ? std::move(wire) : nullptr;
}

std::string Wire::Name(int index) const { return prefix_ + "h" + std::to_string(index); }

std::string Wire::Build() {
  for (int i = 1; i <= static_cast<int>(ports_.size()); ++i) {
    std::string why = RunIp("netns add " + Name(i));
    if (why.empty()) why = MakeTap(i);
    for (const std::string& line :
         {"-n " + Name(i) + " addr add " + Address(i) + "/24 dev eth0",
          "-n " + Name(i) + " link set eth0 up", "-n " + Name(i) + " link set lo up"}) {
      if (why.empty()) why = RunIp(line);
    }
    if (!why.empty()) return why;
  }
  thread_ = std::thread([this] { Run(); });
  return "";
}

// A tap device appears in the namespace of the thread that asks for it.
std::string Wire::MakeTap(int index) {
  std::string why;
  std::thread([&] {
    if (!Enter(Name(index))) {
      why = "enter " + Name(index) + ": " + std::strerror(errno);
      return;
    }
    // A host tells its address when its link comes up.
    const char* const notify = "/proc/sys/net/ipv4/conf/default/arp_notify";
    if (!(std::ofstream(notify) << "1" << std::flush)) {
      why = std::string("write ") + notify;
      return;
    }
    UniqueFd fd(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
    ifreq request{};
    std::strcpy(request.ifr_name, "eth0");
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (!fd.is_open() || ioctl(fd.get(), TUNSETIFF, &request) != 0) {
      why = std::string("make a tap device with /dev/net/tun: ") + std::strerror(errno);
      return;
    }
    ports_[static_cast<size_t>(index) - 1].fd = std::move(fd);
  }).join();
  return why;
}

Wire::~Wire() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
  for (int i = 1; i <= static_cast<int>(ports_.size()); ++i) RunIp("netns del " + Name(i));
}

void Wire::Set(int index, const Cable& cable) {
  const std::lock_guard lock(mutex_);
  ports_[static_cast<size_t>(index) - 1].cable = cable;
}

void Wire::SetAll(const Cable& cable) {
  const std::lock_guard lock(mutex_);
  for (Port& port : ports_) port.cable = cable;
}

void Wire::SetLink(int index, bool is_up) {
  DDP_CHECK(RunIp("-n " + Name(index) + " link set eth0 " + (is_up ? "up" : "down")).empty());
}

void Wire::TakeAddress(int index, int of) {
  const std::string eth0 = "-n " + Name(index) + " addr ";
  DDP_CHECK(RunIp(eth0 + "del " + Address(index) + "/24 dev eth0").empty());
  DDP_CHECK(RunIp(eth0 + "add " + Address(of) + "/24 dev eth0").empty());
  // The others would go on for up to a minute by the hardware address that they know.
  SetLink(index, false);
  SetLink(index, true);
}

PacketCounts Wire::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Wire::Run() {
  std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0}};
  for (const Port& port : ports_) waits.push_back({port.fd.get(), POLLIN, 0});
  while (waits[0].revents == 0) {
    timespec pause{.tv_sec = 1, .tv_nsec = 0};
    {
      const std::lock_guard lock(mutex_);
      if (!under_way_.empty()) {
        const auto left = std::clamp<Clock::duration>(under_way_.front().due - Clock::now(),
                                                      Clock::duration{0}, std::chrono::seconds(1));
        const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
        pause = {.tv_sec = whole.count(), .tv_nsec = (left - whole).count()};
      }
    }
    DDP_CHECK(ppoll(waits.data(), waits.size(), &pause, nullptr) >= 0 || errno == EINTR);
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < ports_.size(); ++i) {
      while (Take(i)) {
      }
    }
    Deliver(Clock::now());
  }
}

bool Wire::Take(size_t from) {
  char bytes[kLargestFrame];
  const ssize_t size = read(ports_[from].fd.get(), bytes, sizeof(bytes));
  if (size < 0) return errno == EINTR;
  if (static_cast<size_t>(size) >= kEthernetHeader) {
    Route(from, std::string(bytes, static_cast<size_t>(size)));
  }
  return true;
}

// To the port of the address that is meant, or to all where nobody has sent from that one.
void Wire::Route(size_t from, const std::string& frame) {
  const std::string to = frame.substr(0, 6);
  ports_[from].hardware_address = frame.substr(6, 6);
  const auto known = std::find_if(ports_.begin(), ports_.end(),
                                  [&](const Port& port) { return port.hardware_address == to; });
  if (known != ports_.end()) return Send(from, static_cast<size_t>(known - ports_.begin()), frame);
  for (size_t i = 0; i < ports_.size(); ++i) {
    if (i != from) Send(from, i, frame);
  }
}

void Wire::Send(size_t from, size_t to, const std::string& frame) {
  const Clock::time_point now = Clock::now();
  const Cable& cable = ports_[from].cable;
  if (cable.side != ports_[to].cable.side) {
    ++counts_.cut;
    return;
  }
  const int copies = Chance(cable.duplication) ? 2 : 1;
  if (copies > 1) ++counts_.doubled;
  for (int copy = 0; copy < copies; ++copy) {
    Clock::duration late{0};
    if (!Pass(ports_[from], frame.size(), true, now, late) ||
        !Pass(ports_[to], frame.size(), false, now, late)) {
      continue;
    }
    if (under_way_.size() >= kMostUnderWay) {
      ++counts_.lost;
      continue;
    }
    Clock::time_point& latest = ports_[to].latest[from];
    if (now + late < latest) ++counts_.overtaken;
    latest = std::max(latest, now + late);
    under_way_.push_back({.due = now + late, .sequence = ++sequence_, .to = to, .frame = frame});
    std::push_heap(under_way_.begin(), under_way_.end());
  }
}

bool Wire::Pass(Port& port, size_t bytes, bool is_sent, Clock::time_point now,
                Clock::duration& late) {
  const Cable& cable = port.cable;
  if (is_sent ? cable.is_mute : cable.is_deaf) {
    ++counts_.cut;
    return false;
  }
  if (cable.largest_packet > 0 && bytes > cable.largest_packet + kEthernetHeader) {
    ++counts_.too_large;
    return false;
  }
  if (Chance(cable.loss)) {
    ++counts_.lost;
    return false;
  }
  if (cable.bytes_per_second > 0) {
    Clock::time_point& until = is_sent ? port.sent_until : port.heard_until;
    if (until > now) ++counts_.queued;
    until = std::max(until, now) +
            std::chrono::nanoseconds(1'000'000'000 * bytes / cable.bytes_per_second);
    if (until - now > kLongestQueue) {
      until = now + kLongestQueue;
      ++counts_.lost;
      return false;
    }
    late += until - now;
  }
  late += cable.delay;
  if (cable.jitter.count() > 0) {
    late += std::chrono::microseconds(
        std::uniform_int_distribution<int64_t>(0, cable.jitter.count())(random_));
  }
  return true;
}

void Wire::Deliver(Clock::time_point now) {
  while (!under_way_.empty() && under_way_.front().due <= now) {
    std::pop_heap(under_way_.begin(), under_way_.end());
    const Packet packet = std::move(under_way_.back());
    under_way_.pop_back();
    // EIO: the device is not up yet.
    const ssize_t written =
        write(ports_[packet.to].fd.get(), packet.frame.data(), packet.frame.size());
    ++(written < 0 ? counts_.lost : counts_.carried);
  }
}

bool Wire::Chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

}  // namespace ddprun::testing
