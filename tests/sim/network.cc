#include "tests/sim/network.h"

#include <algorithm>
#include <utility>

namespace ddprun::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// gRPC's keepalive here: a ping each 5 s, and 5 s for its answer.
constexpr Duration kKeepaliveFirst = seconds(5);
constexpr Duration kKeepaliveLast = seconds(10);

}  // namespace

StreamPtr Network::Open(int node, int host, bool is_local, AgentEnd& agent,
                        CoordinatorEnd& coordinator) {
  auto stream = std::make_shared<Stream>();
  stream->node = node;
  stream->host = host;
  stream->is_local = is_local;
  stream->agent = &agent;
  stream->coordinator = &coordinator;
  stream->random = Random(Mix(scenario_.seed, 2, static_cast<uint64_t>(node) << 32 | ++opened_));
  std::erase_if(streams_, [](const StreamPtr& old) {
    return !old->is_open_at_agent && !old->is_open_at_coordinator;
  });
  streams_.push_back(stream);
  return stream;
}

Duration Network::Delay(Random& random) const {
  const Duration delay = random.Between(scenario_.min_delay, scenario_.max_delay);
  const bool is_spike =
      scenario_.spike > Duration{0} && random.Chance(2) && timeline_.now() < scenario_.heal_at;
  return is_spike ? delay + random.Between(Duration{0}, scenario_.spike) : delay;
}

Duration Network::Delay(Stream& stream) const {
  return stream.is_local ? microseconds(20) : Delay(stream.random);
}

Duration Network::RoundTrip(Random& random) const { return Delay(random) + Delay(random); }

TimePoint Network::UpClearAt(const Stream& stream) const {
  if (stream.is_local || scenario_.is_one_host) return TimePoint{};
  TimePoint clear = std::max(paths_[stream.node].up_until, coordinator_path_.down_until);
  if (stream.host >= 0) clear = std::max(clear, paths_[stream.host].down_until);
  return clear;
}

TimePoint Network::DownClearAt(const Stream& stream) const {
  if (stream.is_local || scenario_.is_one_host) return TimePoint{};
  TimePoint clear = std::max(paths_[stream.node].down_until, coordinator_path_.up_until);
  if (stream.host >= 0) clear = std::max(clear, paths_[stream.host].up_until);
  return clear;
}

bool Network::CanReach(int node, int host) const {
  if (node == host || scenario_.is_one_host) return true;
  Stream stream;
  stream.node = node;
  stream.host = host;
  return std::max(UpClearAt(stream), DownClearAt(stream)) <= timeline_.now();
}

void Network::SendUp(const StreamPtr& stream, Up up) {
  if (!stream->is_open_at_agent) return;
  if (up.sequence == 0) ++traffic_.said;
  const Duration delay = Delay(*stream);
  stream->up_free_at =
      std::max(stream->up_free_at, std::max(timeline_.now(), UpClearAt(*stream)) + delay);
  timeline_.At(stream->up_free_at, [stream, up = std::move(up)] {
    if (stream->is_open_at_coordinator) stream->coordinator->HearUp(stream, up);
  });
}

void Network::SendDown(const StreamPtr& stream, Down down) {
  if (!stream->is_open_at_coordinator) return;
  if (down.sequence == 0) ++traffic_.told;
  const Duration delay = Delay(*stream);
  stream->down_free_at =
      std::max(stream->down_free_at, std::max(timeline_.now(), DownClearAt(*stream)) + delay);
  timeline_.At(stream->down_free_at, [stream, down = std::move(down)] {
    if (stream->is_open_at_agent) stream->agent->HearDown(stream, down);
  });
}

void Network::FinishAtAgent(const StreamPtr& stream) {
  const TimePoint at =
      std::max(stream->up_free_at, std::max(timeline_.now(), UpClearAt(*stream)) + Delay(*stream));
  timeline_.At(at, [this, stream] {
    if (!stream->is_open_at_coordinator) return;
    stream->coordinator->HearUpBroken(stream, true);
    CloseAtCoordinator(stream);
  });
}

void Network::CloseAtAgent(const StreamPtr& stream) {
  if (!std::exchange(stream->is_open_at_agent, false)) return;
  const Duration delay = Delay(*stream);
  const TimePoint at =
      std::max(stream->up_free_at, std::max(timeline_.now(), UpClearAt(*stream)) + delay);
  timeline_.At(at, [this, stream] { BreakAtCoordinator(stream, true); });
}

void Network::CloseAtCoordinator(const StreamPtr& stream) {
  if (!std::exchange(stream->is_open_at_coordinator, false)) return;
  const Duration delay = Delay(*stream);
  const TimePoint at =
      std::max(stream->down_free_at, std::max(timeline_.now(), DownClearAt(*stream)) + delay);
  timeline_.At(at, [this, stream] { BreakAtAgent(stream); });
}

void Network::CloseAllOf(const CoordinatorEnd& coordinator) {
  for (const StreamPtr& stream : streams_) {
    if (stream->coordinator == &coordinator) CloseAtCoordinator(stream);
  }
}

void Network::BreakAtAgent(const StreamPtr& stream) {
  if (!stream->is_open_at_agent) return;
  CloseAtAgent(stream);  // whoever sends on it then is told that it is closed
  stream->agent->HearDownBroken(stream);
}

void Network::BreakAtCoordinator(const StreamPtr& stream, bool is_by_peer) {
  if (!stream->is_open_at_coordinator) return;
  CloseAtCoordinator(stream);
  stream->coordinator->HearUpBroken(stream, is_by_peer);
}

std::vector<StreamPtr> Network::OpenStreams(int node) const {
  std::vector<StreamPtr> open;
  for (const StreamPtr& stream : streams_) {
    if (!stream->is_local && (node < 0 || stream->node == node)) open.push_back(stream);
  }
  return open;
}

std::vector<StreamPtr> Network::OpenStreamsTo(int host) const {
  std::vector<StreamPtr> open = OpenStreams(-1);
  std::erase_if(open, [host](const StreamPtr& stream) { return stream->host != host; });
  return open;
}

std::vector<StreamPtr> Network::OpenStreamsAt(int node) const {
  std::vector<StreamPtr> open = OpenStreams(-1);
  std::erase_if(open, [node](const StreamPtr& stream) {
    return stream->node != node && stream->host != node;
  });
  return open;
}

void Network::BreakLater(const StreamPtr& stream, Duration agent_after, Duration coordinator_after,
                         bool only_if_cut) {
  const auto still = [this, stream, only_if_cut] {
    return !only_if_cut || std::max(UpClearAt(*stream), DownClearAt(*stream)) > timeline_.now();
  };
  timeline_.After(agent_after, [this, stream, still] {
    if (still()) BreakAtAgent(stream);
  });
  timeline_.After(coordinator_after, [this, stream, still, only_if_cut] {
    // A cut is found by our own keepalive.
    if (still()) BreakAtCoordinator(stream, !only_if_cut);
  });
}

void Network::BreakStream(int node) {
  for (const StreamPtr& stream : OpenStreams(node)) {
    const Duration later = stream->random.Between(Duration{0}, Duration(milliseconds(20)));
    BreakLater(stream, Duration{0}, later, false);
  }
}

void Network::HalfBreak(int node) {
  for (const StreamPtr& stream : OpenStreams(node)) {
    // What is under way comes late, and so does the end: after a new stream has been made.
    stream->up_free_at = std::max(stream->up_free_at, timeline_.now()) +
                         stream->random.Between(Duration{0}, Duration(seconds(9)));
    BreakAtAgent(stream);
  }
}

void Network::Cut(int node, bool up, bool down, Duration duration) {
  if (scenario_.is_one_host) return;
  const TimePoint until = timeline_.now() + duration;
  Path& path = paths_[static_cast<size_t>(node)];
  if (up) path.up_until = std::max(path.up_until, until);
  if (down) path.down_until = std::max(path.down_until, until);
  for (const StreamPtr& stream : OpenStreamsAt(node)) {
    BreakLater(stream, stream->random.Between(kKeepaliveFirst, kKeepaliveLast),
               stream->random.Between(kKeepaliveFirst, kKeepaliveLast), true);
  }
}

void Network::CutCoordinator(Duration duration) {
  if (scenario_.is_one_host) return;
  const TimePoint until = timeline_.now() + duration;
  coordinator_path_.up_until = std::max(coordinator_path_.up_until, until);
  coordinator_path_.down_until = std::max(coordinator_path_.down_until, until);
  for (const StreamPtr& stream : OpenStreams(-1)) {
    BreakLater(stream, stream->random.Between(kKeepaliveFirst, kKeepaliveLast),
               stream->random.Between(kKeepaliveFirst, kKeepaliveLast), true);
  }
}

void Network::Refuse(int node, int other, Duration duration) {
  TimePoint& until = refused_until_[std::minmax(node, other)];
  until = std::max(until, timeline_.now() + duration);
  for (const StreamPtr& stream : OpenStreams(-1)) {
    if (std::minmax(stream->node, stream->host) != std::minmax(node, other)) continue;
    BreakLater(stream, Duration{0}, Duration{0}, false);
  }
}

bool Network::IsRefused(int node, int host, Duration ago) const {
  const auto refused = refused_until_.find(std::minmax(node, host));
  return refused != refused_until_.end() && timeline_.now() - ago < refused->second;
}

void Network::StopAnswering(int node, Duration duration) {
  for (const StreamPtr& stream : OpenStreams(node)) {
    const Duration patience = stream->random.Between(kKeepaliveFirst, kKeepaliveLast);
    if (patience >= duration) continue;
    timeline_.After(patience, [this, stream] { BreakAtCoordinator(stream, false); });
    timeline_.After(duration, [this, stream] { BreakAtAgent(stream); });
  }
}

void Network::CoordinatorStopsAnswering(int host, Duration duration) {
  for (const StreamPtr& stream : OpenStreamsTo(host)) {
    const Duration patience = stream->random.Between(kKeepaliveFirst, kKeepaliveLast);
    if (patience >= duration) continue;
    timeline_.After(patience, [this, stream] { BreakAtAgent(stream); });
    timeline_.After(duration, [this, stream] { BreakAtCoordinator(stream, true); });
  }
}

}  // namespace ddprun::sim
