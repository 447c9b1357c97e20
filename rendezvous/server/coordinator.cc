#include "rendezvous/server/coordinator.h"

#include <chrono>
#include <utility>

#include "rendezvous/net/listening_socket.h"
#include "rendezvous/server/coordinator_loop.h"
#include "rendezvous/server/frontend.h"
#include "rendezvous/server/job_file.h"

namespace ddprun::rendezvous {

namespace {

// How long a start waits for the job's file, and an end for its removal.
constexpr Duration kFileLimit = std::chrono::seconds(2);

// From the file where it answers. One that does not is as good as none: agents bring back what
// they know.
absl::StatusOr<Beginning> ReadBeginning(JobFile* file) {
  if (file == nullptr) return BeginAnew();
  absl::StatusOr<Beginning> beginning = file->Begin(kFileLimit);
  return absl::IsDeadlineExceeded(beginning.status()) ? BeginAnew() : beginning;
}

}  // namespace

Coordinator::Coordinator() = default;

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(Options options) {
  // The port first: it is what only one coordinator can have, so that of several agents on this
  // host that try at once none but the winner touches the job's file.
  UniqueFd listening_socket;
  if (options.listen) {
    absl::StatusOr<UniqueFd> bound = ListenOn(options.listen->host, options.listen->port);
    if (!bound.ok()) return bound.status();
    listening_socket = *std::move(bound);
  }
  std::shared_ptr<JobFile> file;
  if (!options.run_dir.empty()) {
    absl::StatusOr<std::unique_ptr<JobFile>> opened = JobFile::Open(std::move(options.run_dir));
    if (!opened.ok()) return opened.status();
    file = *std::move(opened);
  }
  absl::StatusOr<Beginning> beginning = ReadBeginning(file.get());
  if (!beginning.ok()) return beginning.status();
  auto coordinator = std::unique_ptr<Coordinator>(new Coordinator);
  beginning->run_id = std::move(options.run_id);
  coordinator->file_ = file;
  coordinator->loop_ = std::make_shared<CoordinatorLoop>(
      options.policy, *beginning, std::move(file),
      CoordinatorLoop::Hooks{.log_step = std::move(options.log_step),
                             .on_finished = std::move(options.on_finished)});
  if (absl::Status status = coordinator->loop_->Start(); !status.ok()) return status;
  if (options.listen) {
    absl::StatusOr<std::unique_ptr<Frontend>> frontend = StartGrpcFrontend(
        FrontendOptions{.listening_socket = std::move(listening_socket),
                        .run_id = [loop = coordinator->loop_] { return loop->run_id(); },
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

bool Coordinator::has_job() const { return loop_->has_job(); }

std::optional<Verdict> Coordinator::verdict() const { return loop_->verdict(); }

int Coordinator::exit_code() const {
  const std::optional<Verdict> end = verdict();
  return end ? end->exit_code : kRendezvousExitCode;
}

void Coordinator::Stop() {
  // First the loop, which closes the sessions behind what they were told last; then the frontend,
  // which gives them a moment to get it out.
  loop_->Stop();
  const std::shared_ptr<JobFile> file = std::exchange(file_, nullptr);
  // While the port is still ours. Of a job that never began there is nothing to remember.
  const bool is_over = loop_->WaitFinished(Duration{0}) || !loop_->has_begun();
  if (file != nullptr && is_over) file->Forget(kFileLimit);
  if (frontend_ != nullptr) port_ = frontend_->port();
  frontend_.reset();
}

uint16_t Coordinator::port() const { return frontend_ == nullptr ? port_ : frontend_->port(); }

}  // namespace ddprun::rendezvous
