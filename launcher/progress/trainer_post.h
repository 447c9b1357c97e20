// One request to Kubeflow Trainer's server.
#ifndef DDPRUN_LAUNCHER_PROGRESS_TRAINER_POST_H_
#define DDPRUN_LAUNCHER_PROGRESS_TRAINER_POST_H_

#include <string>

#include "absl/status/status.h"
#include "launcher/progress/trainer_endpoint.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

// Posts `body`, JSON, over a connection of its own, with the token that stands in its file now: the
// kubelet replaces it. Connecting, greeting, writing and reading end after `timeout` together; the
// files and the server's name are waited for as long as the system takes, so it is for a thread
// that nobody waits for.
//
// Another code for each kind of failure: FailedPrecondition the token's file, InvalidArgument the
// certificate's, NotFound the server's name, Unavailable no connection, Unauthenticated not the
// server that the certificate vouches for, DeadlineExceeded, DataLoss no answer in HTTP,
// PermissionDenied the token (401, 403), Internal any other answer but 2xx.
absl::Status PostToTrainer(const TrainerEndpoint& endpoint, const std::string& body,
                           Duration timeout);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_TRAINER_POST_H_
