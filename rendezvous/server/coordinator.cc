#include "rendezvous/server/coordinator.h"

#include <sys/random.h>

#include <cerrno>
#include <utility>

#include "rendezvous/net/listening_socket.h"
#include "rendezvous/server/coordinator_loop.h"
#include "rendezvous/server/epoch_file.h"
#include "rendezvous/server/frontend.h"

namespace ddprun::rendezvous {

namespace {

absl::StatusOr<JobInstance> DrawInstance() {
  JobInstance instance;
  // At most 256 bytes come whole once the kernel's pool is ready; until then a signal may
  // interrupt.
  while (getrandom(&instance, sizeof(instance), 0) != sizeof(instance)) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "draw the job's instance: getrandom");
  }
  if (!instance.is_known()) instance.low = 1;
  return instance;
}

}  // namespace

Coordinator::Coordinator() = default;

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(Options options) {
  // The port first: it is what only one coordinator can have, so that of several agents on this
  // host that try at once none but the winner touches the epoch file.
  UniqueFd listening_socket;
  if (options.listen) {
    absl::StatusOr<UniqueFd> bound = ListenOn(options.listen->host, options.listen->port);
    if (!bound.ok()) return bound.status();
    listening_socket = *std::move(bound);
  }
  absl::StatusOr<Epoch> epoch = NextEpoch(options.run_dir);
  if (!epoch.ok()) return epoch.status();
  absl::StatusOr<JobInstance> instance = DrawInstance();
  if (!instance.ok()) return instance.status();
  auto coordinator = std::unique_ptr<Coordinator>(new Coordinator);
  coordinator->run_dir_ = std::move(options.run_dir);
  if (options.run_id.empty() && options.policy) options.run_id = options.policy->run_id;
  coordinator->loop_ = std::make_shared<CoordinatorLoop>(
      std::move(options.policy), Beginning{.epoch = *epoch, .instance = *instance, .verdict = {}},
      CoordinatorLoop::Hooks{.log_step = std::move(options.log_step),
                             .on_finished = std::move(options.on_finished)});
  if (absl::Status status = coordinator->loop_->Start(); !status.ok()) return status;
  if (options.listen) {
    absl::StatusOr<std::unique_ptr<Frontend>> frontend = StartGrpcFrontend(
        FrontendOptions{.listening_socket = std::move(listening_socket),
                        .run_id =
                            [loop = coordinator->loop_, fixed = std::move(options.run_id)] {
                              return fixed.empty() ? loop->run_id() : fixed;
                            },
                        .is_apart = options.is_apart,
                        .on_store_connection = std::move(options.on_store_connection),
                        .on_no_descriptor = std::move(options.on_no_descriptor)},
        coordinator->loop_);
    if (!frontend.ok()) return frontend.status();
    coordinator->frontend_ = *std::move(frontend);
  }
  return coordinator;
}

Coordinator::~Coordinator() { Stop(); }

std::shared_ptr<Inbox> Coordinator::inbox() const { return loop_; }

bool Coordinator::WaitFinished(Duration timeout) { return loop_->WaitFinished(timeout); }

int Coordinator::exit_code() const { return loop_->exit_code(); }

void Coordinator::Stop() {
  // First the loop, which closes the sessions behind what they were told last; then the frontend,
  // which gives them a moment to get it out.
  loop_->Stop();
  const std::string run_dir = std::exchange(run_dir_, {});
  if (loop_->WaitFinished(Duration{0})) ForgetEpoch(run_dir);  // while the port is still ours
  if (frontend_ != nullptr) port_ = frontend_->port();
  frontend_.reset();
}

uint16_t Coordinator::port() const { return frontend_ == nullptr ? port_ : frontend_->port(); }

}  // namespace ddprun::rendezvous
