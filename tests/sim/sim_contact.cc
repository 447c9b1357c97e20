#include "tests/sim/sim_contact.h"

#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {
namespace {

using rendezvous::Looked;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kConnectTimeout = seconds(2);
// When the kernel sends a SYN that was not answered again.
constexpr Duration kSynAgain = seconds(1);
constexpr Duration kHelloTimeout = seconds(5);

rendezvous::ContactOptions OptionsOf(const Scenario& scenario, AgentKey key) {
  rendezvous::ContactOptions options;
  using Mode = rendezvous::ContactOptions::Mode;
  options.mode = scenario.is_elected         ? Mode::kElected
                 : scenario.policy.is_static ? Mode::kStatic
                                             : Mode::kDynamic;
  const NodePlan& plan = scenario.nodes[static_cast<size_t>(key.node)];
  options.policy = scenario.policy;
  if (plan.evict_after > Duration{0}) options.policy.evict_after = plan.evict_after;
  options.endpoint_host = scenario.is_apart ? "coordinator" : "n0";
  options.endpoint_port = 29400;
  if (scenario.is_apart) options.is_host = false;
  options.node_rank = plan.node_rank;
  return options;
}

std::string PlaceOf(const rendezvous::Leader& leader) {
  return absl::StrCat(leader.address, ":", leader.port);
}

uint64_t SeedOf(const Scenario& scenario, AgentKey key) {
  return Mix(scenario.seed, 4, static_cast<uint64_t>(key.node * 1000 + key.life));
}

}  // namespace

SimContact::SimContact(const Scenario& scenario, Timeline& timeline, Network& network,
                       AgentEnd& end, Setup setup)
    : scenario_(scenario),
      timeline_(timeline),
      network_(network),
      end_(end),
      setup_(std::move(setup)),
      random_(SeedOf(scenario, setup_.key)),
      core_(OptionsOf(scenario, setup_.key), HostOf(scenario, setup_.key.node),
            static_cast<uint32_t>(random_.Next() | 1), setup_.now()) {}

void SimContact::Give(rendezvous::ContactEvent event) {
  inbox_.push_back(std::move(event));
  if (std::exchange(is_stepping_, true)) return;
  while (!inbox_.empty()) {
    const rendezvous::ContactEvent current = std::move(inbox_.front());
    inbox_.pop_front();
    for (const rendezvous::ContactAction& action : core_.Step(setup_.now(), current)) {
      std::visit([this](const auto& any) { Do(any); }, action);
    }
  }
  is_stepping_ = false;
}

void SimContact::Answer(Duration after, std::function<rendezvous::ContactEvent()> event) {
  timeline_.After(
      after, [this, event = std::move(event)] { setup_.enter([this, event] { Give(event()); }); });
}

SimContact::Outcome SimContact::LookNow() const {
  const SimCoordinator* coordinator = Target();
  const int host = NodeOf(coordinator);
  if (!network_.CanReach(setup_.key.node, host)) return Outcome::kUnreachable;
  if (coordinator == nullptr || !coordinator->is_listening()) return Outcome::kRefused;
  if (network_.IsRefused(setup_.key.node, host)) return Outcome::kRefused;
  return coordinator->is_greeting() ? Outcome::kOurs : Outcome::kSilent;
}

// The endpoint's is one for all that ever listen there.
int SimContact::NodeOf(const SimCoordinator* coordinator) const {
  if (!scenario_.is_elected) return scenario_.is_apart ? -1 : 0;
  return coordinator == nullptr ? -1 : coordinator->host();
}

SimCoordinator* SimContact::Target() const {
  return scenario_.is_elected ? found_ : setup_.coordinator();
}

void SimContact::Do(const rendezvous::CheckLocalName&) {
  Answer(milliseconds(1), [] { return Looked{.outcome = Outcome::kFound}; });
}

void SimContact::Do(const rendezvous::LookAtEndpoint& action) {
  if (scenario_.is_elected) return LookByEtcd(action.is_key_only);
  // Where the link led is known without a resolver.
  if (action.is_at_link || scenario_.names_take == Duration{0}) return LookAtTarget();
  timeline_.After(scenario_.names_take, [this] { setup_.enter([this] { LookAtTarget(); }); });
}

void SimContact::LookByEtcd(bool is_key_only) {
  setup_.etcd->Ask(
      {.who = static_cast<size_t>(setup_.key.node),
       .self = "",
       .call = rendezvous::ReadKey{LeaderKeyOf(scenario_)}},
      [this, is_key_only](const rendezvous::EtcdAnswer& answer) {
        setup_.enter([this, is_key_only, answer] {
          const bool has_key = answer.status.ok() && answer.key;
          seen_revision_ = has_key ? answer.key->revision : 0;
          if (!answer.status.ok()) {
            return Give(Looked{.outcome = Outcome::kUnreachable, .text = "etcd does not answer"});
          }
          if (!has_key) return Give(Looked{.outcome = Outcome::kVacant, .text = "nobody leads"});
          const rendezvous::Leader leader = *rendezvous::DecodeLeader(answer.key->value);
          if (is_key_only) {
            return Give(Looked{.outcome = Outcome::kFound,
                               .text = "etcd says that it leads",
                               .place = PlaceOf(leader)});
          }
          found_ = setup_.find(leader);
          LookAtTarget();
        });
      });
}

void SimContact::LookAtTarget() {
  if (LookNow() != Outcome::kUnreachable) return Greet();
  timeline_.After(kSynAgain, [this] {
    if (LookNow() != Outcome::kUnreachable) return Greet();
    Answer(kConnectTimeout - kSynAgain, [this] { return SeenAs(Outcome::kUnreachable); });
  });
}

void SimContact::Greet() {
  const Outcome first = LookNow();
  // Answered once: by the process that was connected to, or by the time limit.
  const auto answer = [this, first, is_answered = std::make_shared<bool>(false)] {
    if (std::exchange(*is_answered, true)) return;
    setup_.enter([this, first] {
      // The process that accepts may be gone, stopped or continued before it greets.
      const bool may_change = first == Outcome::kOurs || first == Outcome::kSilent;
      Give(SeenAs(may_change ? LookNow() : first));
    });
  };
  if (first == Outcome::kSilent) {
    // The kernel connects for a stopped process, which greets once it is continued.
    Target()->WhenGreeting(
        [this, answer] { timeline_.After(network_.RoundTrip(random_), answer); });
    return timeline_.After(kHelloTimeout, answer);
  }
  timeline_.After(network_.RoundTrip(random_), answer);
}

rendezvous::Looked SimContact::SeenAs(Outcome outcome) const {
  return {.outcome = outcome,
          .text = outcome == Outcome::kRefused ? "Connection refused" : "no answer",
          .ip = outcome == Outcome::kUnreachable ? "" : "10.0.0.1",
          .is_this_host = !scenario_.is_apart && HostOf(scenario_, setup_.key.node) == "n0",
          .is_apart = scenario_.is_apart,
          .place = scenario_.is_elected ? PlaceOf(found_->place()) : "",
          .is_unanswered = outcome == Outcome::kUnreachable};
}

void SimContact::Do(const rendezvous::HostHere& action) {
  if (scenario_.is_elected) return HostByEtcd(action.is_leader_gone);
  Answer(milliseconds(1), [this] {
    using rendezvous::Hosted;
    if (setup_.coordinator() != nullptr) return Hosted{.outcome = Hosted::Outcome::kPortTaken};
    hosted_ = setup_.host({});
    return Hosted{.outcome = Hosted::Outcome::kHosting};
  });
}

void SimContact::HostByEtcd(bool is_leader_gone) {
  using rendezvous::Hosted;
  hosted_ = setup_.host(
      {.seen_revision = seen_revision_,
       .is_leader_gone = is_leader_gone,
       .began =
           [this](bool leads, const std::string& why) {
             setup_.enter([this, leads, why] {
               if (leads) return Give(Hosted{.place = PlaceOf(hosted_->place())});
               hosted_ = nullptr;
               Give(Hosted{.outcome = Hosted::Outcome::kPortTaken, .text = why});
             });
           },
       .lost =
           [this](const std::string& why) {
             setup_.enter([this, why] { Give(rendezvous::HostLost{why}); });
           },
       .resigns =
           [this](const std::string& why) {
             setup_.enter([this, why] { Give(rendezvous::HostLost{why, /*is_cut_off=*/true}); });
           }});
}

void SimContact::Do(const rendezvous::StopHosting& action) {
  if (scenario_.is_elected) {
    return hosted_->EndThen(action.is_resigning, [this] {
      setup_.enter([this] {
        hosted_ = nullptr;
        Give(rendezvous::HostStopped{});
      });
    });
  }
  if (hosted_ != nullptr) hosted_->End();
  hosted_ = nullptr;
  Answer(milliseconds(1), [] { return rendezvous::HostStopped{}; });
}

void SimContact::Do(const rendezvous::OpenLink& action) {
  SimCoordinator* coordinator = action.is_local ? hosted_ : Target();
  const int host = NodeOf(coordinator);
  const bool listens = coordinator != nullptr && coordinator->is_listening();
  const bool is_open =
      network_.CanReach(setup_.key.node, host) && !network_.IsRefused(setup_.key.node, host);
  if (!listens || (!action.is_local && !is_open)) {
    return Answer(network_.RoundTrip(random_),
                  [] { return rendezvous::LinkEnded{.text = "no connection"}; });
  }
  stream_ = network_.Open(setup_.key.node, host, action.is_local, end_, *coordinator);
}

void SimContact::Do(const rendezvous::SayEvent& action) {
  if (stream_ == nullptr) return;  // it could not be opened, which is about to be heard
  rendezvous::Event event = action.event;
  std::visit(
      [&](auto& any) {
        if constexpr (requires { any.age; }) any.age += action.round_trip / 2;
      },
      event);
  const Duration sent = stream_->is_local ? Duration{0} : setup_.now().time_since_epoch();
  network_.SendUp(stream_, {std::move(event), action.sequence, sent});
  Answer(microseconds(50), [] { return rendezvous::Said{}; });
}

void SimContact::Do(const rendezvous::CloseLink& action) {
  if (stream_ == nullptr) return;
  if (action.is_polite) return network_.FinishAtAgent(stream_);
  network_.CloseAtAgent(stream_);
  stream_.reset();
}

void SimContact::HearDown(const StreamPtr& stream, const Down& down) {
  if (stream != stream_) return;
  if (down.sequence != 0) {
    Give(rendezvous::BeatAnswered{down.sequence, down.beat_interval});
  } else {
    Give(rendezvous::Heard{.instance = down.current.instance, .action = down.action});
  }
}

void SimContact::HearBroken(const StreamPtr& stream) {
  if (stream != stream_) return;
  stream_.reset();
  Give(rendezvous::LinkEnded{.text = "the stream ended"});
}

void SimContact::Drop() {
  if (stream_) network_.CloseAtAgent(stream_);
  stream_.reset();
}

}  // namespace ddprun::sim
