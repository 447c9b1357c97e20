#include "worker_runtime/comm/tcp/tcp_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/comm/left_peer.h"
#include "worker_runtime/comm/slice.h"

namespace ddp::internal {
namespace {

// Whoever closes a link on purpose has published why before, so the wait for it is short.
constexpr std::chrono::milliseconds kExplainPatience(50);

std::vector<int> NodesByRank(const Plan& plan) {
  std::vector<int> nodes;
  for (size_t node = 0; node < plan.node_sizes.size(); ++node) {
    nodes.insert(nodes.end(), static_cast<size_t>(plan.node_sizes[node]), static_cast<int>(node));
  }
  return nodes;
}

}  // namespace

TcpEngine::TcpEngine(const Plan& plan, int rank, ShmGroup group, ChainLinks links,
                     std::unique_ptr<FailureBoard> board)
    : rank_(rank),
      place_(PlaceOf(plan, rank)),
      node_of_(NodesByRank(plan)),
      is_flat_(plan.node_sizes.size() == node_of_.size()),
      group_(std::move(group)),
      domain_(group_.domain.get()),
      board_(std::move(board)),
      chain_(rank, std::move(links.previous), std::move(links.next),
             {[this] { return Interrupted(); }, [this](const Op& op) { board_->SayArrived(op); }}) {
  if (domain_ != nullptr) {
    domain_->set_on_stuck([this](const Op& op) { board_->SayArrived(op); });
  } else {
    staging_.resize(2 * kStagingBytes);
  }
}

absl::Status TcpEngine::Run(const Op& op) {
  absl::Status status = Interrupted();
  if (status.ok()) status = Execute(op);
  if (status.ok()) return status;
  status = Explain(op, status);
  if (domain_ != nullptr) domain_->Fail(status);
  chain_.Shutdown();
  return status;
}

absl::Status TcpEngine::Interrupted() const {
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return aborted_;
  }
  return domain_ != nullptr ? domain_->PeerError() : absl::OkStatus();
}

absl::Status TcpEngine::Explain(const Op& op, const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return aborted_;
  }
  if (domain_ != nullptr && !domain_->failure().ok()) return domain_->failure();
  if (IsLinkLost(status)) {
    absl::Status published = board_->Read(kExplainPatience);
    if (!published.ok()) return published;
  }
  if (absl::IsDeadlineExceeded(status)) {
    const int surveyor = board_->ClaimSurvey();
    if (surveyor >= 0 && surveyor != rank_) {
      absl::Status found = board_->Read(kVerdictPatience);
      if (!found.ok()) return found;
    } else if (const Survey survey = board_->MissingAt(op.sequence); !survey.missing.empty()) {
      return board_->Publish(absl::DeadlineExceededError(
          absl::StrCat(Describe(op), " timed out after ", NameDuration(op.timeout), ": ",
                       NameRanks(survey.missing), " did not arrive", NameExtent(survey))));
    }
  }
  return board_->Publish(status);
}

void TcpEngine::Abort(const std::string& reason, std::optional<int> left_peer) {
  const absl::Status status = WithLeftPeer(
      absl::AbortedError(absl::StrCat("aborted by rank ", rank_, ": ", reason)), left_peer);
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = status;
  }
  if (domain_ != nullptr) domain_->Fail(status);
  (void)board_->Publish(status);
  chain_.Shutdown();
}

void TcpEngine::Leave() {
  if (domain_ != nullptr) domain_->MarkLeft();
  chain_.SayGoodbye();
}

absl::Status TcpEngine::peer_error() const {
  absl::Status status = Interrupted();
  if (!status.ok()) return status;
  status = chain_.PeerError();
  if (status.ok()) return status;
  // As in Explain: the neighbour may have closed the link over another rank's end.
  const absl::Status published = board_->Read(kExplainPatience);
  return published.ok() ? status : published;
}

absl::Status TcpEngine::Execute(const Op& op) {
  switch (op.kind) {
    case OpKind::kAllReduce:
      return op.count == 0 ? Barrier(op) : AllReduce(op);
    case OpKind::kBroadcast:
      return Broadcast(op);
    case OpKind::kAllGather:
      return Collect(op, op.input, op.output, op.bytes());
    case OpKind::kReduceScatter:
      return op.count == 0 ? Barrier(op) : ReduceScatter(op);
    case OpKind::kBarrier:
      return Barrier(op);
    case OpKind::kAllocate:
      return Allocate(op);
    case OpKind::kReduce:
      return op.count == 0 ? Barrier(op) : Reduce(op);
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll:
      return op.count == 0 ? Barrier(op) : PassParts(op);
    case OpKind::kSendReceive:
      return PassParts(op);
    case OpKind::kReplay:
      break;  // of nccl alone: it does not come here
  }
  return absl::OkStatus();
}

int TcpEngine::LocalIndex(int rank) const {
  if (node_of_[static_cast<size_t>(rank)] != place_.node) return -1;
  return rank - place_.ranks[0];
}

absl::Status TcpEngine::Enter(const Op& op, uint32_t step, bool is_first) {
  if (domain_ == nullptr) return absl::OkStatus();
  return is_first ? domain_->Agree(op, Location(), step) : domain_->Meet(op, step);
}

absl::Status TcpEngine::Finish(const Op& op, uint32_t step) {
  return domain_ == nullptr ? absl::OkStatus() : domain_->Finish(op, step);
}

char* TcpEngine::Input(int index, uint32_t step) {
  return domain_ != nullptr ? domain_->input(index, step) : staging_.data();
}

char* TcpEngine::Result(uint32_t step) {
  return domain_ != nullptr ? domain_->result(0, step) : staging_.data() + kStagingBytes;
}

absl::Status TcpEngine::SumOnLane(const Op& op, size_t count, std::vector<const void*> inputs,
                                  std::vector<void*> outputs, bool is_first) {
  ReduceJob job;
  job.dtype = op.dtype;
  job.op = op.reduce;
  job.count = count;
  job.divisor = op.reduce == ReduceOp::kAverage ? world_size() : 1;
  job.inputs = std::move(inputs);
  job.outputs = std::move(outputs);
  return chain_.Reduce(op, job, is_first);
}

int TcpEngine::DirectionOf(int rank) const {
  const int node = node_of_[static_cast<size_t>(rank)];
  return node < place_.node ? -1 : node > place_.node ? 1 : 0;
}

absl::Status TcpEngine::SpreadFrom(const Op& op, int from, void* data, size_t bytes) {
  return chain_.Spread(op, DirectionOf(from), data, bytes);
}

}  // namespace ddp::internal
