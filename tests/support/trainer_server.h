// A double of Kubeflow Trainer's status server: takes and refuses what that one does.
#ifndef DDPRUN_TESTS_SUPPORT_TRAINER_SERVER_H_
#define DDPRUN_TESTS_SUPPORT_TRAINER_SERVER_H_

#include <sys/types.h>

#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/certificates.h"

namespace ddprun::testing {

// What a TrainJob's status shows of one request that was taken.
struct TrainerStatus {
  std::optional<int> percent;
  std::optional<int> remaining_seconds;
  std::string updated_at;
  std::string token;
};

// Listens on a port of 127.0.0.1, on a thread of its own; one connection at a time, one request on
// each. Any thread.
class TrainerServer {
 public:
  enum class Manner {
    kProper,
    kSilent,       // accepts and says nothing, for as long as it lives
    kSilentFirst,  // the same of the first connection; those behind it are served
    kGarbage,      // what it says is no HTTP
  };
  struct Options {
    // None: plain HTTP.
    std::optional<Certificate> certificate{};
    std::string token = "token-1";
    Manner manner = Manner::kProper;
  };

  explicit TrainerServer(Options options);
  ~TrainerServer();
  TrainerServer(const TrainerServer&) = delete;
  TrainerServer& operator=(const TrainerServer&) = delete;

  // For 127.0.0.1, or another name of it.
  std::string Url(const std::string& host = "127.0.0.1") const;
  // From here on only this one is right: any other gets a 403.
  void SetToken(const std::string& token);
  // What was taken so far.
  std::vector<TrainerStatus> taken() const;
  // The codes of all answers so far.
  std::vector<int> answers() const;
  // Connections so far, whatever came of them.
  int connections() const;
  // Waits until the status shows `percent`, at most kPatience.
  bool WaitForPercent(int percent) const;

 private:
  void Serve();
  void Talk(int fd);
  // The code of the answer.
  int Judge(const std::string& head, const std::string& body);

  const Options options_;
  UniqueFd listening_;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::string token_;
  std::vector<TrainerStatus> taken_;
  std::vector<int> answers_;
  int connections_ = 0;
  bool is_ending_ = false;
  int talking_ = -1;  // the connection that is served
  std::thread thread_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_TRAINER_SERVER_H_
