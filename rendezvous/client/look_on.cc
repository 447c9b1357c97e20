#include "rendezvous/client/look_on.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/release.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/client/greet.h"
#include "rendezvous/client/tunnel_channel.h"
#include "rendezvous/client/tunnels.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/net/interrupt.h"
#include "rendezvous/net/socket_address.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {
namespace {

// Of nodes and of what they say: more than a coordinator has and gives.
constexpr size_t kMaxAnswers = 65536;
constexpr size_t kMaxBytes = size_t{128} << 20;

absl::Status NobodyThere(const std::string& place, const std::string& why) {
  return absl::UnavailableError(
      absl::StrCat("ask the coordinator at ", place, ": ", why,
                   "; if the job has not ended: is this its --rdzv-endpoint, and may this host "
                   "reach it?"));
}

absl::Status JudgeGreeting(const Greeting& greeting, const std::string& place) {
  if (!greeting.hello) {
    using Outcome = Looked::Outcome;
    const Looked& trouble = greeting.trouble;
    if (trouble.outcome == Outcome::kDistrusted || trouble.outcome == Outcome::kExpired) {
      return absl::UnauthenticatedError(
          absl::StrCat("ask the coordinator at ", place, ": ", trouble.text));
    }
    if (trouble.outcome == Outcome::kRefused || trouble.outcome == Outcome::kUnreachable) {
      return NobodyThere(place, trouble.text);
    }
    if (trouble.outcome == Outcome::kForeign) {
      return absl::UnavailableError(absl::StrCat(
          "ask the coordinator at ", place, ": another program is there, which says \"",
          trouble.text, "\"; is this the job's --rdzv-endpoint?"));
    }
  }
  if (greeting.hello && !Understand(greeting.hello->release, ThisRelease())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the coordinator at ", place, " runs ", CleanText(ReleaseText(greeting.hello->release)),
        ", and this is ", ReleaseText(ThisRelease()), ": ask it with a release of its protocol"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GiveAnswers> LookAt(const SocketAddress& address, const std::string& place,
                                   const std::shared_ptr<const TlsIdentity>& identity,
                                   std::chrono::system_clock::time_point deadline) {
  // gRPC does not say that it is TLS that fails.
  const Greeting greeting = Greet(address, identity, Interrupt());
  if (absl::Status status = JudgeGreeting(greeting, place); !status.ok()) return status;
  std::unique_ptr<Tunnels> tunnels;
  if (identity != nullptr) {
    // The key for calls is the run's, which the greeting has named.
    auto of_run = TlsIdentity::ForRun(identity, greeting.hello ? greeting.hello->run_id : "");
    if (!of_run.ok()) return of_run.status();
    auto started = Tunnels::Start(*std::move(of_run));
    if (!started.ok()) return started.status();
    tunnels = *std::move(started);
  }
  const auto stub = v1::Rendezvous::NewStub(ChannelTo(address, tunnels.get()));
  grpc::ClientContext context;
  context.set_deadline(deadline);
  v1::Question question;
  question.set_id(1);
  const auto reader = stub->Look(&context, question);
  GiveAnswers all{.session = {}, .id = 1, .answers = {}, .is_last = false};
  v1::Answers part;
  CheckedFields check;
  size_t bytes = 0;
  while (check.status().ok() && reader->Read(&part)) {
    GiveAnswers given = AnswersFromProto(part, SteadyNow(), check);
    bytes += part.ByteSizeLong();
    check.Size("answers", all.answers.size() + given.answers.size(), kMaxAnswers);
    check.Size("silent", all.silent.size() + given.silent.size(), kMaxAnswers);
    check.Size("answers' bytes", bytes, kMaxBytes);
    std::move(given.answers.begin(), given.answers.end(), std::back_inserter(all.answers));
    std::move(given.silent.begin(), given.silent.end(), std::back_inserter(all.silent));
    if (!given.is_last) continue;
    all.facts = std::move(given.facts);
    all.is_last = true;
  }
  if (!check.status().ok()) context.TryCancel();
  const grpc::Status status = reader->Finish();
  if (!check.status().ok()) {
    return absl::DataLossError(
        absl::StrCat(place, " sent a malformed answer: ", std::string(check.status().message())));
  }
  if (status.ok() && all.is_last) return all;
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError(
        absl::StrCat(place, " is no coordinator of ddprun, or an older one, which tells nothing"));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(absl::StrCat(place, " has not answered in time"));
  }
  // gRPC's last word is the system's: "failed to connect to all addresses; ...: Connection
  // refused".
  const std::string why = EscapeControl(status.error_message());
  const size_t colon = why.rfind(": ");
  return NobodyThere(place, colon == std::string::npos ? why : why.substr(colon + 2));
}

}  // namespace

absl::StatusOr<GiveAnswers> LookOn(const std::string& host, uint16_t port,
                                   const std::shared_ptr<const TlsIdentity>& identity,
                                   Duration timeout) {
  PrepareGrpc();
  const auto deadline = std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout);
  const std::string place = EndpointText(host, port);
  const Resolution found = ResolveName(host, port);
  if (found.outcome != Resolution::Outcome::kFound) {
    return absl::NotFoundError(absl::StrCat("find ", EscapeControl(host), ": ", found.error));
  }
  absl::Status first;
  for (const SocketAddress& address : found.addresses) {
    absl::StatusOr<GiveAnswers> answers = LookAt(address, place, identity, deadline);
    if (answers.ok()) return answers;
    first.Update(answers.status());
  }
  return first;
}

}  // namespace ddprun::rendezvous
