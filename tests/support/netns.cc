#include "tests/support/netns.h"

#include <unistd.h>

#include <sstream>
#include <vector>

#include "rendezvous/base/check.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

int NextNumber() {
  static int number = 0;
  return ++number;
}

}  // namespace

std::string RunIp(const std::string& line) {
  std::string tool;
  for (const char* path : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
    if (tool.empty() && access(path, X_OK) == 0) tool = path;
  }
  if (tool.empty()) return "there is no `ip` command";
  std::vector<std::string> argv = {tool};
  std::stringstream words(line);
  for (std::string word; words >> word;) argv.push_back(word);
  Subprocess ip(argv);
  return ip.Wait() == 0 ? "" : "ip " + line + ": " + ip.err();
}

Hosts::Hosts(int count)
    : count_(count),
      prefix_("ddp" + std::to_string(getpid()) + "-" + std::to_string(NextNumber())) {}

std::unique_ptr<Hosts> Hosts::Make(int count, std::string* why) {
  std::unique_ptr<Hosts> hosts(new Hosts(count));
  return hosts->Build(why) ? std::move(hosts) : nullptr;
}

std::string Hosts::Switch() const { return prefix_ + "sw"; }

std::string Hosts::Name(int index) const { return prefix_ + "h" + std::to_string(index); }

bool Hosts::Build(std::string* why) {
  std::vector<std::string> lines = {"netns add " + Switch(),
                                    "-n " + Switch() + " link add br0 type bridge",
                                    "-n " + Switch() + " link set br0 up"};
  for (int i = 1; i <= count_; ++i) {
    const std::string port = "p" + std::to_string(i);
    lines.push_back("netns add " + Name(i));
    lines.push_back("-n " + Switch() + " link add " + port + " type veth peer name eth0 netns " +
                    Name(i));
    lines.push_back("-n " + Switch() + " link set " + port + " master br0 up");
    lines.push_back("-n " + Name(i) + " addr add " + Address(i) + "/24 dev eth0");
    lines.push_back("-n " + Name(i) + " link set eth0 up");
    lines.push_back("-n " + Name(i) + " link set lo up");
  }
  for (const std::string& line : lines) {
    *why = RunIp(line);
    if (!why->empty()) return false;
  }
  return true;
}

Hosts::~Hosts() {
  for (int i = 1; i <= count_; ++i) RunIp("netns del " + Name(i));
  RunIp("netns del " + Switch());
}

void Hosts::AddAddress(int index, const std::string& address) {
  const bool is_ipv6 = address.find(':') != std::string::npos;
  // Without nodad an IPv6 address cannot be used at once.
  const std::string why = RunIp("-n " + Name(index) + " addr add " + address +
                                (is_ipv6 ? "/64 dev eth0 nodad" : "/24 dev eth0"));
  DDP_CHECK(why.empty());
}

void Hosts::SetLink(int index, bool is_up) {
  const std::string why =
      RunIp("-n " + Switch() + " link set p" + std::to_string(index) + (is_up ? " up" : " down"));
  DDP_CHECK(why.empty());
}

}  // namespace ddprun::testing
