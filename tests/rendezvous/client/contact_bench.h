// A contact core at the bench: events in, one line per action out.
#ifndef DDPRUN_TESTS_RENDEZVOUS_CLIENT_CONTACT_BENCH_H_
#define DDPRUN_TESTS_RENDEZVOUS_CLIENT_CONTACT_BENCH_H_

#include <chrono>
#include <string>

#include "rendezvous/client/contact_core.h"

namespace ddprun::rendezvous {

class ContactBench {
 public:
  explicit ContactBench(ContactOptions options) : core(std::move(options), "node1", 7, now) {}

  // The actions, each a word or a few: "look; host; open local; say join; emit lost (gone)".
  std::string Step(const ContactEvent& event);
  // The link ends, and where it led nobody answers: what is done is told without that knock.
  std::string Lose(const ContactEvent& end);
  // Lets time pass, deadline by deadline.
  std::string Pass(Duration duration);

  TimePoint now{std::chrono::seconds(1000)};
  ContactCore core;
  // The texts of the last event that had one.
  std::string text;
};

inline const LinkEnded kBroken{false, "connection reset"};
// A look at 10.0.0.9.
Looked Saw(Looked::Outcome outcome, const std::string& text = "Connection refused");

// An agent of the job "run-1" that reaches the coordinator at coord:29400, which is elsewhere.
ContactOptions Elsewhere();
// The same, whose machine is the endpoint's ("node1").
ContactOptions OnEndpoint();
// The same, by the word of etcd.
ContactOptions ByEtcd();
Looked SawLeader(Looked::Outcome outcome, const std::string& place = "10.0.0.9:41");
Heard HearAssign(uint64_t round, bool coordinator_is_member = true);
Heard HearRefusal(Refusal kind, const std::string& message = "because");
Heard HearVerdict();
// A core that is linked and assigned to round 1 by a coordinator elsewhere, with nothing unsaid.
ContactBench AssignedBench(ContactOptions options = Elsewhere(), bool is_apart = false);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CLIENT_CONTACT_BENCH_H_
