// Where Kubeflow Trainer wants to be told of a job's progress. [pure]
#ifndef DDPRUN_LAUNCHER_PROGRESS_TRAINER_ENDPOINT_H_
#define DDPRUN_LAUNCHER_PROGRESS_TRAINER_ENDPOINT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/cli/environment.h"

namespace ddprun::launcher {

inline constexpr char kTrainerUrlVar[] = "KUBEFLOW_TRAINER_SERVER_URL";
inline constexpr char kTrainerCaVar[] = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
inline constexpr char kTrainerTokenVar[] = "KUBEFLOW_TRAINER_SERVER_TOKEN";

struct TrainerEndpoint {
  std::string url;  // whole, for messages
  bool is_tls = true;
  std::string host;  // a name or an IP address, without brackets
  uint16_t port = 0;
  std::string authority;   // host and port as they stand in the URL
  std::string target;      // "/apis/..."
  std::string ca_file;     // PEM; where is_tls
  std::string token_file;  // replaced before its token expires
};

// What the Trainer's controller has put into the environment. nullopt: nobody wants to be told, or
// this is a job within a worker of another one, whose progress it is. InvalidArgument: a variable
// that cannot be used, with its value.
std::optional<absl::StatusOr<TrainerEndpoint>> FindTrainer(const Environment& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROGRESS_TRAINER_ENDPOINT_H_
