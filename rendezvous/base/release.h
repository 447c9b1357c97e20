// Which release of ddprun speaks, and which of them understand each other. [pure]
#ifndef DDPRUN_RENDEZVOUS_BASE_RELEASE_H_
#define DDPRUN_RENDEZVOUS_BASE_RELEASE_H_

#include <cstddef>
#include <string>

namespace ddprun {

// What releases before this number was said speak.
inline constexpr int kFirstProtocol = 1;
inline constexpr int kMaxProtocol = 65535;
inline constexpr size_t kMaxReleaseVersionBytes = 32;

struct Release {
  // Goes up with a release whose messages others would misunderstand. A field that may be missing,
  // or that others may ignore, changes nothing.
  int protocol = kFirstProtocol;
  std::string version = {};  // "0.1.0"; empty: it does not say, as before there was a number
  friend bool operator==(const Release&, const Release&) = default;
};

// This program's. In a file of its own, so that a test can link a program of another release.
Release ThisRelease();

inline bool Understand(const Release& a, const Release& b) { return a.protocol == b.protocol; }

// What is to be done where they do not.
inline constexpr char kOneProtocol[] = "all nodes need releases of one protocol";

// "ddprun 0.1.0 (protocol 2)".
std::string ReleaseText(const Release& release);

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_RELEASE_H_
