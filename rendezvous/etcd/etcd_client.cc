#include "rendezvous/etcd/etcd_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "proto/etcd.grpc.pb.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/core/rank_assignment.h"
#include "rendezvous/etcd/call_trouble.h"
#include "rendezvous/etcd/etcd_credentials.h"
#include "rendezvous/etcd/member_names.h"
#include "rendezvous/etcd/member_probe.h"
#include "rendezvous/net/channel.h"
#include "rendezvous/net/connect_error.h"
#include "rendezvous/net/interrupt.h"

namespace ddprun::rendezvous {
namespace {

namespace pb = etcdserverpb;

// gRPC's codes are absl's.
std::string TroubleOf(const grpc::Status& status, bool is_tls) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  return CallTrouble(code, status.error_message(), is_tls);
}

// What is not found is a lease: an answer.
absl::Status ErrorOf(const std::string& member, const grpc::Status& status, bool is_tls) {
  auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kNotFound) code = absl::StatusCode::kAborted;
  // Of etcd's disk, not of this machine.
  if (code == absl::StatusCode::kResourceExhausted) code = absl::StatusCode::kUnavailable;
  return absl::Status(code, absl::StrCat("etcd at ", member, ": ", TroubleOf(status, is_tls)));
}

// Whether a member has said why it cannot do it, in place of silence or a closed port.
bool IsOwnWord(const absl::Status& status) {
  return absl::StrContains(status.message(), "etcdserver: ");
}

std::optional<EtcdKey> FirstOf(const pb::RangeResponse& range) {
  if (range.kvs().empty()) return std::nullopt;
  const pb::KeyValue& key = range.kvs(0);
  return EtcdKey{key.value(), key.mod_revision(), key.lease()};
}

pb::TxnRequest RequestOf(const EtcdTransaction& transaction) {
  pb::TxnRequest request;
  for (const EtcdTransaction::Guard& guarded : transaction.guards) {
    pb::Compare& guard = *request.add_compare();
    guard.set_result(pb::Compare::EQUAL);
    guard.set_target(pb::Compare::MOD);
    guard.set_key(guarded.key);
    guard.set_mod_revision(guarded.revision);
  }
  for (const EtcdTransaction::Put& put : transaction.puts) {
    pb::PutRequest& op = *request.add_success()->mutable_request_put();
    op.set_key(put.key);
    op.set_value(put.value);
    op.set_lease(put.lease);
  }
  for (const std::string& key : transaction.deletes) {
    request.add_success()->mutable_request_delete_range()->set_key(key);
  }
  for (const std::string& key : transaction.reads) {
    request.add_success()->mutable_request_range()->set_key(key);
    request.add_failure()->mutable_request_range()->set_key(key);
  }
  return request;
}

}  // namespace

struct EtcdClient::Connections {
  Connections(EtcdOptions given, Resolver resolver, size_t first_member)
      : options(std::move(given)),
        names(options.members, std::move(resolver)),
        members(options.members.size()),
        current(first_member) {}

  const EtcdOptions options;
  MemberNames names;
  struct Member {
    std::shared_ptr<grpc::Channel> channel;
    SocketAddress address;  // where that leads
    size_t turn = 0;        // of the addresses that its name has
  };
  // The driving thread's. A channel that failed is made anew: gRPC would wait before it tries it.
  std::vector<Member> members;
  size_t current;
  std::string token;
  std::shared_ptr<grpc::ChannelCredentials> credentials;

  std::mutex mutex;
  grpc::ClientContext* context = nullptr;  // of the present call
  Interrupt cancelled;

  std::string Name(size_t member) const {
    return EndpointText(options.members[member].host, options.members[member].port);
  }

  absl::Status MakeCredentials() {
    if (credentials != nullptr) return absl::OkStatus();
    absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> made = CredentialsFor(options);
    if (!made.ok()) return made.status();
    credentials = *std::move(made);
    return absl::OkStatus();
  }

  // `addresses`: how many the member's name has, where it was resolved just now.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelTo(size_t member, TimePoint deadline,
                                                           size_t& addresses) {
    Member& at = members[member];
    if (at.channel != nullptr) return at.channel;
    if (absl::Status status = MakeCredentials(); !status.ok()) return status;
    const EtcdMember& to = options.members[member];
    const Resolution found =
        names.Resolve(member, std::min(deadline, SteadyNow() + kMemberPatience));
    if (found.outcome != Resolution::Outcome::kFound) {
      const std::string text = absl::StrCat("etcd at ", Name(member), ": cannot resolve \"",
                                            to.host, "\": ", found.error);
      if (found.outcome == Resolution::Outcome::kNoSuchName) return absl::NotFoundError(text);
      return absl::UnavailableError(text);
    }
    addresses = found.addresses.size();
    const SocketAddress& address = at.address = found.addresses[at.turn % addresses];
    if (!options.is_tls) {  // who has TLS answers nothing in the clear
      const TimePoint by = std::min(deadline, SteadyNow() + kMemberPatience);
      if (const auto probed = ProbeMember(address, by, cancelled); !probed.ok()) {
        const std::string text =
            absl::StrCat("etcd at ", Name(member), ": ", probed.status().message());
        return absl::Status(probed.status().code(), text);
      }
    }
    at.channel = MakeForeignChannel(address, credentials, options.is_tls ? to.host : "");
    return at.channel;
  }

  // "localhost" is ::1 and 127.0.0.1: the next address has its turn.
  void Drop(size_t member) {
    members[member].channel = nullptr;
    ++members[member].turn;
  }

  // One call to one member. `call` takes a channel and a context.
  template <typename Call>
  grpc::Status AskMember(const std::shared_ptr<grpc::Channel>& channel, TimePoint deadline,
                         bool has_token, const Call& call) {
    grpc::ClientContext own;
    const TimePoint by = std::min(deadline, SteadyNow() + kMemberPatience);
    own.set_deadline(std::chrono::system_clock::now() +
                     std::chrono::duration_cast<std::chrono::microseconds>(by - SteadyNow()));
    // A member that has no leader says so at once.
    own.AddMetadata("hasleader", "true");
    if (has_token && !token.empty()) own.AddMetadata("token", token);
    {
      const std::lock_guard lock(mutex);
      if (cancelled.is_set()) return {grpc::StatusCode::CANCELLED, "not wanted any more"};
      context = &own;
    }
    const grpc::Status status = call(channel, own);
    const std::lock_guard lock(mutex);
    context = nullptr;
    return status;
  }

  // OK also where etcd asks for no password.
  absl::Status LogIn(const std::shared_ptr<grpc::Channel>& channel, size_t member,
                     TimePoint deadline) {
    if (options.user.empty() || !token.empty()) return absl::OkStatus();
    pb::AuthenticateRequest request;
    pb::AuthenticateResponse reply;
    request.set_name(options.user);
    request.set_password(options.password);
    const grpc::Status status =
        AskMember(channel, deadline, false, [&](const auto& to, grpc::ClientContext& own) {
          return pb::Auth::NewStub(to)->Authenticate(&own, request, &reply);
        });
    if (status.ok()) token = reply.token();
    const bool is_open = status.error_code() == grpc::StatusCode::FAILED_PRECONDITION;
    if (status.ok() || is_open) return absl::OkStatus();
    const bool is_refused = status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
    if (!is_refused) return ErrorOf(Name(member), status, options.is_tls);
    return absl::UnauthenticatedError(
        absl::StrCat("etcd at ", Name(member), " refuses the user \"", EscapeControl(options.user),
                     "\" or its password: ", TroubleOf(status, options.is_tls)));
  }

  // Whether a new token may help.
  bool IsOldToken(const grpc::Status& status) const {
    if (token.empty()) return false;
    return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
           absl::StrContains(status.error_message(), "revision in header is old");
  }

  absl::Status Judge(size_t member, const grpc::Status& status) const {
    if (absl::StrContains(status.error_message(), "user name is empty")) {
      return absl::UnauthenticatedError(
          absl::StrCat("etcd at ", Name(member),
                       " asks who we are: expected --rdzv-conf user=NAME, and the password in "
                       "DDPRUN_ETCD_PASSWORD"));
    }
    if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
      const std::string who = options.user.empty()
                                  ? "who names no user (give --rdzv-conf user=NAME)"
                                  : absl::StrCat("the user \"", EscapeControl(options.user), "\"");
      return absl::PermissionDeniedError(absl::StrCat(
          "etcd at ", Name(member), " allows ", who, " no reading and writing of keys under \"",
          options.prefix, "/\": ", TroubleOf(status, options.is_tls)));
    }
    return ErrorOf(Name(member), status, options.is_tls);
  }

  template <typename Call>
  absl::Status AskChannel(const std::shared_ptr<grpc::Channel>& channel, size_t member,
                          TimePoint deadline, const Call& call) {
    for (bool is_first = true;; is_first = false) {
      absl::Status logged_in = LogIn(channel, member, deadline);
      if (!logged_in.ok()) return logged_in;
      const grpc::Status status = AskMember(channel, deadline, true, call);
      if (status.ok()) return absl::OkStatus();
      if (!is_first || !IsOldToken(status)) return Judge(member, status);
      token.clear();
    }
  }

  // Whether it ended TLS, and answers in the clear: so it will the next time.
  bool HasNoTls(size_t member, const absl::Status& status, TimePoint deadline) const {
    if (!options.is_tls || !absl::StrContains(status.message(), kNoTlsAnswer)) return false;
    const TimePoint by = std::min(deadline, SteadyNow() + kMemberPatience);
    return ProbeMember(members[member].address, by, cancelled).value_or(false);
  }

  // At each of its addresses until one answers. NOT_FOUND: the member is none that can be asked, by
  // its name, or as it has no TLS: localhost may have an address beside it at which nobody listens.
  template <typename Call>
  absl::Status AskOne(size_t member, TimePoint deadline, const Call& call) {
    size_t addresses = 0;
    size_t without_tls = 0, refused = 0;
    absl::Status in_the_clear;  // what the last of the former is told with
    for (size_t tries = 1;; ++tries) {
      const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
          ChannelTo(member, deadline, addresses);
      absl::Status status =
          channel.ok() ? AskChannel(*channel, member, deadline, call) : channel.status();
      if (status.ok() || !absl::IsUnavailable(status)) return status;
      if (HasNoTls(member, status, deadline)) {
        ++without_tls;
        in_the_clear = status;
      } else if (absl::StrContains(status.message(), ConnectErrorText(ECONNREFUSED))) {
        ++refused;
      }
      Drop(member);
      if (tries < addresses && SteadyNow() < deadline) continue;
      if (without_tls == 0) return status;
      if (without_tls + refused != addresses) return in_the_clear;
      return absl::NotFoundError(
          absl::StrCat("etcd at ", Name(member),
                       ": it speaks without TLS alone: leave out --rdzv-conf protocol=https, or "
                       "give etcd a certificate"));
    }
  }

  // Asks one member after the other until one answers, each once.
  template <typename Call>
  absl::Status Ask(TimePoint deadline, const Call& call) {
    absl::Status last = absl::DeadlineExceededError("etcd: no time was left to ask it");
    size_t unfit = 0;
    for (size_t tries = 0; tries < members.size() && SteadyNow() < deadline; ++tries) {
      absl::Status status = AskOne(current, deadline, call);
      const bool is_answer = status.ok() || IsFinal(status) || absl::IsAborted(status);
      if (is_answer || absl::IsCancelled(status)) return status;
      unfit += absl::IsNotFound(status) ? 1 : 0;
      if (members[current].channel != nullptr) Drop(current);
      current = (current + 1) % members.size();
      // What a member says of itself tells more than that another one is silent.
      if (IsOwnWord(status) || !IsOwnWord(last)) last = std::move(status);
    }
    // There is no such name, or no TLS, at any of them.
    if (unfit == members.size()) return absl::FailedPreconditionError(last.message());
    return last;
  }
};

EtcdClient::EtcdClient(EtcdOptions options, Resolver resolver, size_t first_member)
    : connections_(
          std::make_unique<Connections>(std::move(options), std::move(resolver), first_member)) {}

EtcdClient::~EtcdClient() = default;

absl::StatusOr<std::optional<EtcdKey>> EtcdClient::Get(const std::string& key, TimePoint deadline) {
  pb::RangeRequest request;
  pb::RangeResponse reply;
  request.set_key(key);
  const absl::Status status =
      connections_->Ask(deadline, [&](const auto& to, grpc::ClientContext& own) {
        return pb::KV::NewStub(to)->Range(&own, request, &reply);
      });
  if (!status.ok()) return status;
  return FirstOf(reply);
}

absl::StatusOr<EtcdOutcome> EtcdClient::Apply(const EtcdTransaction& transaction,
                                              TimePoint deadline) {
  const pb::TxnRequest request = RequestOf(transaction);
  pb::TxnResponse reply;
  const absl::Status status =
      connections_->Ask(deadline, [&](const auto& to, grpc::ClientContext& own) {
        return pb::KV::NewStub(to)->Txn(&own, request, &reply);
      });
  if (!status.ok()) return status;
  EtcdOutcome outcome{
      .is_applied = reply.succeeded(), .revision = reply.header().revision(), .read = {}};
  for (const pb::ResponseOp& response : reply.responses()) {
    if (response.has_response_range()) outcome.read.push_back(FirstOf(response.response_range()));
  }
  outcome.read.resize(transaction.reads.size());  // whatever it answered
  return outcome;
}

absl::StatusOr<Duration> EtcdClient::Grant(int64_t lease, Duration time, TimePoint deadline) {
  pb::LeaseGrantRequest request;
  pb::LeaseGrantResponse reply;
  request.set_id(lease);
  request.set_ttl(std::chrono::ceil<std::chrono::seconds>(time).count());
  const absl::Status status =
      connections_->Ask(deadline, [&](const auto& to, grpc::ClientContext& own) {
        return pb::Lease::NewStub(to)->LeaseGrant(&own, request, &reply);
      });
  // An answer that was lost had granted it.
  const bool is_there = absl::StrContains(status.message(), "lease already exists");
  if (is_there) return KeepAlive(lease, deadline);
  if (!status.ok()) return status;
  return std::chrono::seconds(reply.ttl());
}

absl::StatusOr<Duration> EtcdClient::KeepAlive(int64_t lease, TimePoint deadline) {
  pb::LeaseKeepAliveRequest request;
  pb::LeaseKeepAliveResponse reply;
  request.set_id(lease);
  const absl::Status status =
      connections_->Ask(deadline, [&](const auto& to, grpc::ClientContext& own) -> grpc::Status {
        const auto stub = pb::Lease::NewStub(to);
        const auto stream = stub->LeaseKeepAlive(&own);
        const bool is_answered = stream->Write(request) && stream->Read(&reply);
        if (is_answered) own.TryCancel();  // one answer is all that was wanted
        const grpc::Status end = stream->Finish();
        if (is_answered) return grpc::Status::OK;
        if (!end.ok()) return end;
        return {grpc::StatusCode::UNAVAILABLE, "it ended the stream of renewals"};
      });
  if (!status.ok()) return status;
  return std::chrono::seconds(reply.ttl());
}

absl::Status EtcdClient::Revoke(int64_t lease, TimePoint deadline) {
  pb::LeaseRevokeRequest request;
  pb::LeaseRevokeResponse reply;
  request.set_id(lease);
  const absl::Status status =
      connections_->Ask(deadline, [&](const auto& to, grpc::ClientContext& own) {
        return pb::Lease::NewStub(to)->LeaseRevoke(&own, request, &reply);
      });
  return absl::IsAborted(status) ? absl::OkStatus() : status;
}

size_t EtcdClient::current_member() const { return connections_->current; }

void EtcdClient::Cancel() {
  connections_->names.Cancel();
  const std::lock_guard lock(connections_->mutex);
  connections_->cancelled.Set();
  if (connections_->context != nullptr) connections_->context->TryCancel();
}

std::string EtcdClient::LocalAddress() const {
  std::string found;
  for (size_t member = 0; member < connections_->options.members.size(); ++member) {
    const TimePoint by = SteadyNow() + kMemberPatience;
    for (const SocketAddress& address : connections_->names.Resolve(member, by).addresses) {
      const std::string source = SourceTowards(address);
      if (!source.empty() && !IsLoopback(source)) return source;
      if (found.empty()) found = source;
    }
  }
  return found;
}

}  // namespace ddprun::rendezvous
