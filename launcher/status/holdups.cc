#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "launcher/status/group_waits.h"

namespace ddprun::launcher {
namespace {

// The graph of waits: from each to those in which its late ranks wait.
class Chains {
 public:
  explicit Chains(const std::vector<GroupWait>& waits) : waits_(waits) {
    for (size_t i = 0; i < waits.size(); ++i) {
      for (const int rank : waits[i].waiting) waits_of_.push_back({rank, i});
    }
    std::sort(waits_of_.begin(), waits_of_.end());
    next_.resize(waits.size());
    before_.resize(waits.size());
    free_.resize(waits.size());
    for (size_t i = 0; i < waits.size(); ++i) Connect(i);
  }

  std::vector<Holdup> Find() {
    owner_.assign(waits_.size(), kNobody);
    std::vector<size_t> order(waits_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      return waits_[a].waiting_s > waits_[b].waiting_s;
    });
    for (const size_t i : order) {
      if (owner_[i] == kNobody && IsEnd(i)) AddEnd(i);
    }
    // What leads to no end leads into a circle.
    for (const size_t i : order) {
      if (owner_[i] == kNobody) AddCycle(i);
    }
    CollectWaiting();
    std::stable_sort(holdups_.begin(), holdups_.end(), [this](const Holdup& a, const Holdup& b) {
      return waits_[a.wait].waiting_s > waits_[b.wait].waiting_s;
    });
    return std::move(holdups_);
  }

 private:
  static constexpr size_t kNobody = static_cast<size_t>(-1);

  void Connect(size_t i) {
    for (const int rank : waits_[i].late) {
      auto at = std::lower_bound(waits_of_.begin(), waits_of_.end(), std::pair{rank, size_t{0}});
      if (at == waits_of_.end() || at->first != rank) {
        free_[i].push_back(rank);
        continue;
      }
      for (; at != waits_of_.end() && at->first == rank; ++at) {
        // Many late ranks wait in the same group mostly.
        if (!next_[i].empty() && next_[i].back() == at->second) continue;
        next_[i].push_back(at->second);
        before_[at->second].push_back(i);
      }
    }
  }

  bool IsEnd(size_t i) const {
    return !free_[i].empty() || waits_[i].unknown_late > 0 || waits_[i].late.empty();
  }

  void AddEnd(size_t i) {
    size_t holdup = kNobody;
    // The same ranks keep others waiting in several groups: that is one thing.
    for (const int rank : free_[i]) {
      const auto known = blamed_.find(rank);
      holdup = known == blamed_.end() ? kNobody : known->second;
      if (holdup == kNobody) break;
    }
    if (holdup == kNobody) {
      holdup = holdups_.size();
      holdups_.push_back({.wait = i, .to_blame = free_[i]});
      for (const int rank : free_[i]) blamed_.emplace(rank, holdup);
    }
    holdups_[holdup].ends.push_back(i);
    Own(i, holdup);
  }

  void AddCycle(size_t i) {
    std::vector<size_t> path;
    std::map<size_t, size_t> place;
    while (place.emplace(i, path.size()).second) {
      path.push_back(i);
      i = next_[i].front();
    }
    Holdup holdup{.is_cycle = true};
    // The one with the lowest key leads, whoever came upon the circle.
    std::vector<size_t>& ends = holdup.ends;
    ends.assign(path.begin() + static_cast<ptrdiff_t>(place[i]), path.end());
    std::rotate(ends.begin(), std::min_element(ends.begin(), ends.end()), ends.end());
    holdup.wait = ends.front();
    std::set<int> to_blame;
    for (const size_t wait : ends) {
      to_blame.insert(waits_[wait].late.begin(), waits_[wait].late.end());
    }
    holdup.to_blame = {to_blame.begin(), to_blame.end()};
    holdups_.push_back(std::move(holdup));
    Own(i, holdups_.size() - 1);
  }

  // The wait, and all that lead to it and to nothing before.
  void Own(size_t wait, size_t holdup) {
    std::vector<size_t> to_do{wait};
    owner_[wait] = holdup;
    while (!to_do.empty()) {
      const size_t i = to_do.back();
      to_do.pop_back();
      for (const size_t before : before_[i]) {
        // One that is an end itself is a matter of its own.
        if (owner_[before] != kNobody || IsEnd(before)) continue;
        owner_[before] = holdup;
        to_do.push_back(before);
      }
    }
  }

  void CollectWaiting() {
    for (size_t i = 0; i < waits_.size(); ++i) {
      std::vector<int>& all = holdups_[owner_[i]].waiting;
      all.insert(all.end(), waits_[i].waiting.begin(), waits_[i].waiting.end());
    }
    for (Holdup& holdup : holdups_) {
      std::sort(holdup.waiting.begin(), holdup.waiting.end());
      holdup.waiting.erase(std::unique(holdup.waiting.begin(), holdup.waiting.end()),
                           holdup.waiting.end());
    }
  }

  const std::vector<GroupWait>& waits_;
  std::vector<std::pair<int, size_t>> waits_of_;  // rank and wait, in order
  std::vector<std::vector<size_t>> next_, before_;
  std::vector<std::vector<int>> free_;  // late, and waiting nowhere
  std::vector<size_t> owner_;           // index of the holdup of each wait
  std::map<int, size_t> blamed_;
  std::vector<Holdup> holdups_;
};

}  // namespace

std::vector<Holdup> FindHoldups(const std::vector<GroupWait>& waits) {
  return Chains(waits).Find();
}

}  // namespace ddprun::launcher
