// The thread of the gRPC client: seek the coordinator, converse with it, and again.
#ifndef DDPRUN_RENDEZVOUS_CLIENT_GRPC_CLIENT_LOOP_H_
#define DDPRUN_RENDEZVOUS_CLIENT_GRPC_CLIENT_LOOP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "rendezvous/client/agent_record.h"
#include "rendezvous/client/attach_call.h"
#include "rendezvous/client/backoff.h"
#include "rendezvous/client/grpc_rendezvous_client.h"
#include "rendezvous/net/interrupt.h"

namespace ddprun::rendezvous {

class GrpcClientLoop {
 public:
  GrpcClientLoop(GrpcClientOptions options, RendezvousClient::EventHandler handler);
  // Stops.
  ~GrpcClientLoop();

  // Changes what is to be said, from the agent's thread.
  template <typename Change>
  void Say(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change(record_);
    }
    wake_->Notify();
  }
  void Join(const NodeInfo& node);
  // Waits at most `timeout` until the coordinator has taken what was said, then ends the thread.
  void FlushAndStop(Duration timeout);

 private:
  // Woken by the agent's thread and gRPC's; outlives the loop where gRPC still holds it.
  struct Wake {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t changes = 0;
    void Notify();
    // Until something changed since `seen`, which is updated, or the deadline.
    void Wait(uint64_t& seen, TimePoint deadline);
  };
  enum class Step { kGoOn, kEnd };

  void Run();
  // Until the coordinator of this run answers at an address; nullopt: the thread is to end.
  std::optional<SocketAddress> Seek();
  Step JudgeAttempt(const SeekResult& result);
  void TellSeeking(const SeekResult& result);
  std::optional<std::string> FinalTrouble(const SeekResult& result);
  // Until there is something to say.
  Step BeginConversation();
  void EndConversation();
  // Opens a stream, and talks until it ends.
  Step Converse(const SocketAddress& address);
  Step Listen(AttachCall& call);
  Step Hear(const v1::CoordinatorMessage& message);
  void HearBeat(uint64_t sequence);
  Step Speak(AttachCall& call);
  Step JudgeEnd(const grpc::Status& status);
  void LoseContact(const std::string& reason, bool is_refused);
  void Emit(RendezvousEvent event) { handler_(std::move(event)); }
  Step Fail(const std::string& message);
  TimePoint GiveUpAt() const;
  bool is_assigned() const;

  const GrpcClientOptions options_;
  const RendezvousClient::EventHandler handler_;
  const std::shared_ptr<Wake> wake_ = std::make_shared<Wake>();
  const Interrupt stop_;

  // The thread's own.
  uint64_t seen_changes_ = 0;
  Backoff backoff_;
  std::minstd_rand random_;
  TimePoint without_contact_since_;
  SocketAddress address_;     // of the stream that is or was last
  bool had_contact_ = false;  // ever
  bool has_contact_ = false;  // on this stream
  bool is_lost_ = false;      // ContactLost was the last word on contact
  bool is_refused_ = false;
  std::string told_trouble_;
  std::optional<TimePoint> closed_since_;  // first of an unbroken row of kClosed answers
  TimePoint next_beat_;
  uint64_t beat_sequence_ = 0;
  TimePoint beat_sent_at_;
  TimePoint last_heard_;
  std::deque<Duration> round_trips_;  // the newest few

  mutable std::mutex mutex_;
  AgentRecord record_;
  TimePoint joined_at_{};
  bool is_conversing_ = false;  // wake_ ends the thread's waits; otherwise stop_ does
  std::optional<TimePoint> flush_by_;
  bool is_done_ = false;
  std::condition_variable done_;

  std::thread thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_GRPC_CLIENT_LOOP_H_
