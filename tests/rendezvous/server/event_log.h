// What one client was told, to wait for and to print.
#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_EVENT_LOG_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_EVENT_LOG_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/client/rendezvous_client.h"

namespace ddprun::rendezvous {

class EventLog {
 public:
  static constexpr std::chrono::seconds kPatience{30};

  RendezvousClient::EventHandler handler() {
    return [this](RendezvousEvent event) {
      {
        const std::lock_guard lock(mutex_);
        events_.push_back(std::move(event));
      }
      arrived_.notify_all();
    };
  }

  // The next event of this kind that `is_wanted` and was not returned before; nullopt after a long
  // wait. Events of other kinds are passed over.
  template <typename Kind>
  std::optional<Kind> Await(std::function<bool(const Kind&)> is_wanted = nullptr) {
    std::unique_lock lock(mutex_);
    std::optional<Kind> found;
    arrived_.wait_for(lock, kPatience, [&] {
      for (; next_ < events_.size(); ++next_) {
        const Kind* event = std::get_if<Kind>(&events_[next_]);
        if (event == nullptr || (is_wanted && !is_wanted(*event))) continue;
        found = *event;
        ++next_;
        return true;
      }
      return false;
    });
    return found;
  }

  // One line per event, for a failed check.
  std::string Text() const;
  size_t Count() const {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<RendezvousEvent> events_;
  size_t next_ = 0;
};

// A node of a test, ready to join.
NodeInfo TestNode(const std::string& id, uint16_t store_port = 4000);
// What a failed worker of `id` reports.
FailureReport TestFailure(const std::string& id, int exit_code);
Policy TestPolicy(int min_nodes, int max_nodes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_EVENT_LOG_H_
