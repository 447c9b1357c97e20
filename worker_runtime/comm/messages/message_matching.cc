#include "worker_runtime/comm/messages/message_matching.h"

#include <algorithm>

namespace ddp::internal {
namespace {

bool Match(const MessageMatching::Offer& offer, const MessageMatching::Receive& receive) {
  return offer.tag == receive.tag &&
         (receive.source == kAnySource || receive.source == offer.source);
}

}  // namespace

std::optional<MessageMatching::Offer> MessageMatching::Post(const Receive& receive) {
  const auto found = std::find_if(offers_.begin(), offers_.end(),
                                  [&](const Offer& offer) { return Match(offer, receive); });
  if (found == offers_.end()) {
    const auto younger = std::find_if(receives_.begin(), receives_.end(),
                                      [&](const Receive& other) { return other.id > receive.id; });
    receives_.insert(younger, receive);
    return std::nullopt;
  }
  const Offer offer = *found;
  offers_.erase(found);
  --offers_of_[offer.source];
  return offer;
}

std::optional<MessageMatching::Receive> MessageMatching::Add(const Offer& offer) {
  const auto found = std::find_if(receives_.begin(), receives_.end(),
                                  [&](const Receive& receive) { return Match(offer, receive); });
  if (found == receives_.end()) {
    offers_.push_back(offer);
    ++offers_of_[offer.source];
    return std::nullopt;
  }
  const Receive receive = *found;
  receives_.erase(found);
  return receive;
}

bool MessageMatching::Withdraw(int source, uint64_t id) {
  const size_t withdrawn = offers_.remove_if(
      [&](const Offer& offer) { return offer.source == source && offer.id == id; });
  offers_of_[source] -= withdrawn;
  return withdrawn != 0;
}

void MessageMatching::Cancel(uint64_t receive_id) {
  receives_.remove_if([&](const Receive& receive) { return receive.id == receive_id; });
}

void MessageMatching::DropOffers(int source) {
  offers_.remove_if([&](const Offer& offer) { return offer.source == source; });
  offers_of_.erase(source);
}

std::vector<uint64_t> MessageMatching::DropReceives(int source) {
  std::vector<uint64_t> waited;
  receives_.remove_if([&](const Receive& receive) {
    if (receive.source != source) return false;
    waited.push_back(receive.id);
    return true;
  });
  return waited;
}

size_t MessageMatching::OffersOf(int source) const {
  const auto found = offers_of_.find(source);
  return found == offers_of_.end() ? 0 : found->second;
}

}  // namespace ddp::internal
