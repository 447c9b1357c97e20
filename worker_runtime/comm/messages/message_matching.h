// Which message goes to which receive. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_MATCHING_H_
#define DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_MATCHING_H_

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <vector>

namespace ddp::internal {

inline constexpr int kAnySource = -1;

// Messages that others have offered, and receives that wait for one: never of the same kind at the
// same time. The oldest of either goes first.
class MessageMatching {
 public:
  struct Offer {
    int source = 0;
    uint64_t tag = 0;
    uint64_t bytes = 0;
    uint64_t id = 0;  // the sender's
  };
  struct Receive {
    int source = kAnySource;
    uint64_t tag = 0;
    uint64_t id = 0;  // the receiver's
  };

  // The offer that goes to it; without one it waits. One whose offer was withdrawn after all is
  // posted again, and has its old place: ids grow with the calls.
  std::optional<Offer> Post(const Receive& receive);
  // The receive to which it goes; without one it waits.
  std::optional<Receive> Add(const Offer& offer);

  // The sender has given it up. False if it does not wait here.
  bool Withdraw(int source, uint64_t id);
  // The receiver has given it up.
  void Cancel(uint64_t receive_id);
  // The rank's connection is gone, and its offers with it.
  void DropOffers(int source);
  // The rank is gone. Returns the receives that waited for it by name.
  std::vector<uint64_t> DropReceives(int source);

  // How many offers of a rank wait.
  size_t OffersOf(int source) const;

 private:
  std::map<int, size_t> offers_of_;  // by source
  std::list<Offer> offers_;
  std::list<Receive> receives_;
};

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_COMM_MESSAGES_MESSAGE_MATCHING_H_
