// Hosts of a test's own: network namespaces joined by a bridge.
#ifndef DDPRUN_TESTS_SUPPORT_NETNS_H_
#define DDPRUN_TESTS_SUPPORT_NETNS_H_

#include <memory>
#include <string>

namespace ddprun::testing {

// Runs `ip` with the words of `line`; what it complained of, "" when it succeeded.
std::string RunIp(const std::string& line);

// `count` namespaces with addresses 10.77.0.1, 10.77.0.2, ... on one bridge, which lives in a
// namespace of its own: nothing of it is seen outside. Removed by the destructor.
class Hosts {
 public:
  // Null, with the reason in `why`, where this machine does not permit it.
  static std::unique_ptr<Hosts> Make(int count, std::string* why);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // The name of host `index` (from 1) for Subprocess::Options::netns.
  std::string Name(int index) const;
  std::string Address(int index) const { return "10.77.0." + std::to_string(index); }
  // Gives host `index` another address, of the form 10.77.0.x or fd77::x.
  void AddAddress(int index, const std::string& address);
  // Pulls or plugs the cable of host `index`.
  void SetLink(int index, bool is_up);

 private:
  explicit Hosts(int count);
  bool Build(std::string* why);
  std::string Switch() const;

  const int count_;
  const std::string prefix_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_NETNS_H_
