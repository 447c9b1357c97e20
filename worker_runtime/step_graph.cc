#include "ddp/step_graph.h"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/graph_capture.h"

namespace ddp {
namespace {

// What a rank tells the others, as bytes over the host communicator.
struct Vote {
  uint64_t operation_count;
  uint64_t fingerprint;
  int32_t code;   // of a status
  char why[492];  // the beginning of its message
};
static_assert(sizeof(Vote) == 512);

Vote VoteOf(const absl::Status& mine, const internal::CapturedGraph* graph) {
  Vote vote{};
  if (graph != nullptr) {
    vote.operation_count = graph->operation_count();
    vote.fingerprint = graph->fingerprint();
  }
  vote.code = static_cast<int32_t>(mine.code());
  std::string(mine.message()).copy(vote.why, sizeof(vote.why) - 1);
  return vote;
}

// The same on every rank.
absl::Status Result(const std::vector<Vote>& votes) {
  for (size_t rank = 0; rank < votes.size(); ++rank) {
    const Vote& vote = votes[rank];
    if (vote.code == static_cast<int32_t>(absl::StatusCode::kOk)) continue;
    return absl::Status(static_cast<absl::StatusCode>(vote.code),
                        absl::StrCat("capture a step: rank ", rank, ": ", vote.why));
  }
  for (size_t rank = 1; rank < votes.size(); ++rank) {
    if (votes[rank].fingerprint == votes[0].fingerprint) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "capture a step: the ranks captured different operations: rank 0 ",
        votes[0].operation_count, ", rank ", rank, " ", votes[rank].operation_count,
        votes[0].operation_count == votes[rank].operation_count ? " of other kinds or sizes" : ""));
  }
  return absl::OkStatus();
}

// A step that meets a lost capture knows only that; the end of the capture tells what loses one.
absl::Status Joined(const absl::Status& step, const absl::Status& capture) {
  if (step.ok() || capture.ok() || step.message() == capture.message()) {
    return step.ok() ? capture : step;
  }
  return absl::Status(step.code(), absl::StrCat(absl::string_view(step.message()), "; ",
                                                absl::string_view(capture.message())));
}

absl::Status Call(const StepGraph::Step& step) {
  try {
    return step();
  } catch (const std::exception& error) {
    return absl::UnknownError(absl::StrCat("the step threw: ", error.what()));
  } catch (...) {
    return absl::UnknownError("the step threw something");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepGraph>> StepGraph::Create(Communicator& communicator,
                                                             Stream stream) {
  if (communicator.graph_capture() == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("capture a step: the backend ", communicator.backend(),
                     " works in host memory; CUDA graphs need a group on GPUs"));
  }
  if (stream == nullptr) {
    return absl::InvalidArgumentError(
        "capture a step: the legacy default stream (null) cannot be captured; make a stream");
  }
  return std::unique_ptr<StepGraph>(new StepGraph(communicator, stream));
}

StepGraph::StepGraph(Communicator& communicator, Stream stream)
    : communicator_(communicator), stream_(stream) {}

StepGraph::~StepGraph() = default;

absl::Status StepGraph::Run(const Step& step) {
  absl::Status status = Call(step);
  if (status.ok()) ++uncaptured_steps_;
  return status;
}

absl::Status StepGraph::CheckMayCapture() const {
  if (graph_ != nullptr) return absl::FailedPreconditionError("a step was captured before");
  if (uncaptured_steps_ >= kUncapturedSteps) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(uncaptured_steps_, " steps were run before; it takes ", kUncapturedSteps,
                   ", in which NCCL connects and libraries allocate"));
}

absl::Status StepGraph::Agree(const absl::Status& mine, const internal::CapturedGraph* graph) {
  Communicator& host = communicator_.host();
  const Vote vote = VoteOf(mine, graph);
  std::vector<Vote> votes(static_cast<size_t>(host.world_size()));
  const absl::Status gathered =
      host.AllGather(&vote, votes.data(), sizeof(vote), DType::kUint8)->Wait();
  if (gathered.ok()) return Result(votes);
  return absl::Status(gathered.code(), absl::StrCat("capture a step: agree with the other ranks: ",
                                                    absl::string_view(gathered.message())));
}

absl::Status StepGraph::Capture(const Step& step) {
  internal::GraphCapture& capture = *communicator_.graph_capture();
  // Without the other ranks, who may have no such call in their step. Theirs and ours agree after
  // it.
  if (capture.is_capturing()) {
    return absl::FailedPreconditionError(
        "capture a step: another step of this group is being captured");
  }
  if (absl::Status status = Agree(CheckMayCapture(), nullptr); !status.ok()) return status;
  absl::Status status = capture.BeginCapture(stream_);
  const bool has_begun = status.ok();
  std::unique_ptr<internal::CapturedGraph> graph;
  if (has_begun) {
    status = Call(step);
    absl::StatusOr<std::unique_ptr<internal::CapturedGraph>> ended = capture.EndCapture();
    status = Joined(status, ended.status());
    if (ended.ok()) graph = *std::move(ended);
  }
  status = Agree(status, graph.get());
  if (!status.ok()) {
    graph.reset();
    if (has_begun) capture.Discard();
    return status;
  }
  graph_ = std::move(graph);
  return absl::OkStatus();
}

absl::Status StepGraph::Replay() {
  if (graph_ == nullptr) {
    return absl::FailedPreconditionError("replay a step: none was captured; call Capture() first");
  }
  return graph_->Replay();
}

}  // namespace ddp
