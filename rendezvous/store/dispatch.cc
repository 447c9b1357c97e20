#include "rendezvous/store/dispatch.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun::rendezvous {
namespace {

bool Park(KvStore::Parked parked, StoreSession* session, std::string* reply) {
  session->ticket = parked.ticket;
  if (parked.ticket == 0 && !parked.is_refused) AppendByte(kStopWaiting, reply);
  return !parked.is_refused;
}

void CancelWait(StoreSession* session, KvStore* store, std::string* reply) {
  const KvStore::Ticket ticket = std::exchange(session->ticket, 0);
  // Woken, but the news has not reached this connection: the client is told both, in order.
  if (ticket != 0 && !store->Cancel(ticket)) AppendByte(kStopWaiting, reply);
  AppendByte(kWaitCanceled, reply);
}

// A missing key reads as an empty value, as PyTorch's server has it.
bool ReplyValues(const std::vector<std::string_view>& keys, size_t max_reply_bytes,
                 const KvStore& store, std::string* reply) {
  for (std::string_view key : keys) {
    const std::string* value = store.Get(key);
    AppendBytes(value == nullptr ? std::string_view() : *value, reply);
    if (reply->size() > max_reply_bytes) return false;
  }
  return true;
}

bool MultiSet(const std::vector<std::string_view>& fields, KvStore* store) {
  for (size_t i = 0; i + 1 < fields.size(); i += 2) {
    if (!store->Set(fields[i], fields[i + 1])) return false;
  }
  return true;
}

bool ReplyKeys(size_t max_reply_bytes, const KvStore& store, std::string* reply) {
  AppendI64(store.key_count(), reply);
  for (std::string_view key : store.SortedKeys()) {
    AppendBytes(key, reply);
    if (reply->size() > max_reply_bytes) return false;
  }
  return true;
}

void PopQueue(std::string_view key, KvStore* store, std::string* reply) {
  AppendI64(store->QueueLength(key), reply);  // As it was before the pop.
  const std::optional<std::string> value = store->QueuePop(key);
  if (value.has_value()) AppendBytes(*value, reply);
}

}  // namespace

bool DispatchStoreCommand(const StoreCommand& command, size_t max_reply_bytes,
                          StoreSession* session, KvStore* store, std::string* reply) {
  const std::vector<std::string_view>& fields = command.fields;
  const bool is_greeting = command.op == StoreOp::kValidate;
  if (is_greeting == session->is_validated) return false;
  session->has_asked |= !is_greeting && command.op != StoreOp::kPing;
  switch (command.op) {
    case StoreOp::kValidate:
      session->is_validated = command.word == kStoreMagic;
      return session->is_validated;
    case StoreOp::kPing:
      AppendU32(command.word, reply);
      return true;
    case StoreOp::kSet:
      return store->Set(fields[0], fields[1]);
    case StoreOp::kAppend:
      return store->Append(fields[0], fields[1]);
    case StoreOp::kQueuePush:
      return store->QueuePush(fields[0], fields[1]);
    case StoreOp::kMultiSet:
      return MultiSet(fields, store);
    case StoreOp::kCompareSet: {
      const auto value = store->CompareSet(fields[0], fields[1], fields[2]);
      if (value.has_value()) AppendBytes(*value, reply);
      return value.has_value();
    }
    case StoreOp::kAdd: {
      const auto sum = store->Add(fields[0], command.number);
      if (sum.has_value()) AppendI64(*sum, reply);
      return sum.has_value();
    }
    case StoreOp::kGet:
    case StoreOp::kMultiGet:
      return ReplyValues(fields, max_reply_bytes, *store, reply);
    case StoreOp::kCheck:
      AppendByte(store->HasAll(fields) ? kCheckReady : kCheckNotReady, reply);
      return true;
    case StoreOp::kWait:
      return Park(store->Wait(session->client, fields), session, reply);
    case StoreOp::kBarrier:
      return Park(store->Barrier(session->client, fields[0], command.number), session, reply);
    case StoreOp::kCancelWait:
      CancelWait(session, store, reply);
      return true;
    case StoreOp::kGetNumKeys:
      AppendI64(store->key_count(), reply);
      return true;
    case StoreOp::kDeleteKey:
      AppendI64(store->Delete(fields[0]) ? 1 : 0, reply);
      return true;
    case StoreOp::kQueuePop:
      PopQueue(fields[0], store, reply);
      return true;
    case StoreOp::kQueueLen:
      AppendI64(store->QueueLength(fields[0]), reply);
      return true;
    case StoreOp::kListKeys:
      return ReplyKeys(max_reply_bytes, *store, reply);
  }
  return false;
}

bool StopWaiting(KvStore::Ticket ticket, StoreSession* session, std::string* reply) {
  if (ticket == 0 || session->ticket != ticket) return false;
  session->ticket = 0;
  AppendByte(kStopWaiting, reply);
  return true;
}

}  // namespace ddprun::rendezvous
