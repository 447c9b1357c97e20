#include "rendezvous/tls/identity.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/tls/pem_files.h"
#include "rendezvous/tls/token_strength.h"

namespace ddprun::rendezvous {
namespace {

// Of sessions: OpenSSL wants one, and takes no session of another.
constexpr unsigned char kSessionContext[] = {'d', 'd', 'p', 'r', 'u', 'n'};
constexpr char kWeakToken[] =
    "the token can be guessed from a recorded connection: by estimate it has fewer than 128 random "
    "bits; make one with `ddprun token new`";
// TLS_AES_128_GCM_SHA256 (RFC 8446, B.4), whose hash the key is for.
constexpr unsigned char kCipher[] = {0x13, 0x01};

// OpenSSL's last word on this thread.
std::string LastError() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? "OpenSSL gives no reason" : reason;
}

std::string NameOf(X509* certificate) {
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
  return EscapeControl(name);
}

// "3 days", "5 hours", "less than an hour"; "": later than a job need look ahead. One that was made
// for some hours, as managers of certificates do, is renewed in time: it has at least a third of
// its life.
std::string TimeLeft(const X509* certificate) {
  constexpr int64_t kDay = 24 * 3600;
  const ASN1_TIME* until = X509_get0_notAfter(certificate);
  int days = 0, seconds = 0, life_days = 0, life_seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, nullptr, until) != 1) return "";
  const bool has_life =
      ASN1_TIME_diff(&life_days, &life_seconds, X509_get0_notBefore(certificate), until) == 1;
  const bool is_old = has_life && 3 * (days * kDay + seconds) < life_days * kDay + life_seconds;
  if (days >= TlsIdentity::kSoonDays || !is_old) return "";
  const auto counted = [](int count, const char* unit) {
    return absl::StrCat(count, " ", unit, count == 1 ? "" : "s");
  };
  constexpr int kHour = 3600;
  if (days > 0) return counted(days, "day");
  return seconds < kHour ? "less than an hour" : counted(seconds / kHour, "hour");
}

// `judge` has found the chain from this machine's certificate to what it believes.
std::vector<std::string> WarningsOf(const TlsIdentity::PemFiles& files, X509_STORE_CTX* judge) {
  std::vector<std::string> warnings;
  const STACK_OF(X509)* chain = X509_STORE_CTX_get0_chain(judge);
  const int count = sk_X509_num(chain);
  for (int i = 0; i < count; ++i) {
    X509* one = sk_X509_value(chain, i);
    const std::string left = TimeLeft(one);
    if (left.empty()) continue;
    warnings.push_back(absl::StrCat(
        i == 0 ? "the certificate in " : "an authority of the certificate in ",
        EscapeControl(files.cert), i == 0 ? "" : absl::StrCat(" (\"", NameOf(one), "\")"),
        " expires in ", left, ", at ", DateText(X509_get0_notAfter(one)),
        ": a job that still runs then loses the nodes that have to connect again"));
  }
  X509* own = count == 1 ? sk_X509_value(chain, 0) : nullptr;
  if (own != nullptr && X509_check_issued(own, own) != X509_V_OK) {
    warnings.push_back(absl::StrCat(
        EscapeControl(files.ca), " holds the certificate in ", EscapeControl(files.cert),
        " itself and not the authority that has signed it: another node with a certificate of its "
        "own is refused here"));
  }
  return warnings;
}

// Whether this machine would believe its own certificate, as the job's other machines, which have
// the same authorities, have to. Judged as OpenSSL judges what a peer shows.
absl::Status CheckBelieved(const TlsIdentity::PemFiles& files, SSL_CTX* context,
                           std::vector<std::string>* warnings = nullptr) {
  STACK_OF(X509)* between = nullptr;
  SSL_CTX_get0_chain_certs(context, &between);
  const std::unique_ptr<X509_STORE_CTX, void (*)(X509_STORE_CTX*)> judge(X509_STORE_CTX_new(),
                                                                         X509_STORE_CTX_free);
  if (judge == nullptr || X509_STORE_CTX_init(judge.get(), SSL_CTX_get_cert_store(context),
                                              SSL_CTX_get0_certificate(context), between) != 1) {
    return absl::InternalError(absl::StrCat("judge this node's certificate: ", LastError()));
  }
  X509_VERIFY_PARAM* rules = X509_STORE_CTX_get0_param(judge.get());
  X509_VERIFY_PARAM_set1(rules, SSL_CTX_get0_param(context));
  X509_VERIFY_PARAM_set_auth_level(rules, SSL_CTX_get_security_level(context));
  const bool is_believed = X509_verify_cert(judge.get()) == 1;
  ERR_clear_error();
  if (is_believed && warnings != nullptr) *warnings = WarningsOf(files, judge.get());
  if (is_believed) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(judge.get());
  const std::string ca = EscapeControl(files.ca);
  switch (error) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      return BadFile(files.cert,
                     absl::StrCat("no authority in ", ca,
                                  " has signed it, and other nodes would refuse it: name the file "
                                  "of the authority that has, and put the certificates between "
                                  "both behind it"));
    default:
      break;
  }
  X509* at = X509_STORE_CTX_get_current_cert(judge.get());
  return BadFile(files.cert,
                 absl::StrCat("other nodes would refuse it, by what is in ", ca, ": ",
                              X509_verify_cert_error_string(error),
                              at == nullptr ? "" : absl::StrCat(" (\"", NameOf(at), "\")")));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsIdentity>> TlsIdentity::OfToken(std::string_view token,
                                                                        std::string_view run_id) {
  std::vector<std::string> warnings;
  if (EstimateTokenBits(token) < kEnoughTokenBits) warnings.push_back(kWeakToken);
  return OfKeys(TokenKeys::Of(token, run_id), std::move(warnings));
}

absl::StatusOr<std::shared_ptr<const TlsIdentity>> TlsIdentity::ForRun(
    const std::shared_ptr<const TlsIdentity>& identity, std::string_view run_id) {
  if (!identity->is_token()) return identity;
  return OfKeys(identity->keys_->ForRun(run_id), identity->warnings_);
}

absl::StatusOr<std::shared_ptr<const TlsIdentity>> TlsIdentity::OfKeys(
    std::optional<TokenKeys> keys, std::vector<std::string> warnings) {
  std::shared_ptr<TlsIdentity> identity(new TlsIdentity);
  identity->keys_ = std::move(keys);
  identity->warnings_ = std::move(warnings);
  for (const TlsPurpose purpose :
       {TlsPurpose::kGreeting, TlsPurpose::kRendezvous, TlsPurpose::kStore}) {
    std::optional<TokenKeys::Named> offer =
        identity->keys_ ? identity->keys_->Offer(purpose) : std::nullopt;
    if (!offer) {
      return absl::InternalError(absl::StrCat("derive a key from the token: ", LastError()));
    }
    identity->offers_.push_back(*std::move(offer));
  }
  if (absl::Status status = identity->Init(); !status.ok()) return status;
  SSL_CTX_set_psk_find_session_callback(identity->context_, OnServerPsk);
  SSL_CTX_set_psk_use_session_callback(identity->context_, OnClientPsk);
  return identity;
}

absl::StatusOr<std::shared_ptr<const TlsIdentity>> TlsIdentity::OfPem(const PemFiles& files) {
  std::shared_ptr<TlsIdentity> identity(new TlsIdentity);
  if (absl::Status status = identity->Init(); !status.ok()) return status;
  identity->files_ = files;
  if (absl::Status status = identity->ReadPem(); !status.ok()) return status;
  return identity;
}

TlsIdentity::~TlsIdentity() { SSL_CTX_free(context_); }

absl::Status TlsIdentity::Init() {
  context_ = SSL_CTX_new(TLS_method());
  const bool is_set =
      context_ != nullptr && SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_max_proto_version(context_, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_ciphersuites(context_, "TLS_AES_128_GCM_SHA256") == 1 &&
      SSL_CTX_set1_groups_list(context_, "X25519:P-256") == 1 &&
      SSL_CTX_set_num_tickets(context_, 0) == 1 &&
      SSL_CTX_set_session_id_context(context_, kSessionContext, sizeof(kSessionContext)) == 1;
  if (!is_set) return absl::InternalError(absl::StrCat("set up TLS 1.3: ", LastError()));
  SSL_CTX_set_app_data(context_, this);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context_, SSL_MODE_RELEASE_BUFFERS);  // 34 KiB for each idle connection
  // With a token there is no authority: whoever shows a certificate instead is refused.
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return absl::OkStatus();
}

absl::Status TlsIdentity::Check() const {
  if (is_token()) return absl::OkStatus();
  absl::Status status = CheckDates(context_, files_.cert);
  if (status.ok()) status = CheckBelieved(files_, context_);
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::UnauthenticatedError(absl::StrCat("own certificate: ", status.message()));
}

absl::Status TlsIdentity::ReadPem() {
  absl::Status status = UseCertificate(context_, files_.cert, files_.key);
  if (status.ok()) status = UseAuthorities(context_, files_.ca);
  if (!status.ok()) return status;
  // One certificate serves for both ends of a connection.
  SSL_CTX_set_purpose(context_, X509_PURPOSE_ANY);
  // An intermediate authority, for the nodes of this job alone, is believed without its own, whose
  // others would be believed, too.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context_), X509_V_FLAG_PARTIAL_CHAIN);
  return CheckBelieved(files_, context_, &warnings_);
}

SSL_SESSION* TlsIdentity::NewSession(SSL* ssl, const TokenKey& key) {
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
  const bool is_set =
      session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, key.data(), TokenKey::kBytes) == 1 &&
      SSL_SESSION_set1_id_context(session, kSessionContext, sizeof(kSessionContext)) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (is_set) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

int TlsIdentity::OnServerPsk(SSL* ssl, const unsigned char* name, size_t size,
                             SSL_SESSION** session) {
  *session = nullptr;
  const auto* self = static_cast<TlsIdentity*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  const std::optional<TokenKeys::Named> found =
      self->keys_->Find({reinterpret_cast<const char*>(name), size});
  if (!found) return 1;  // it goes on without, and then shows no certificate
  *static_cast<TlsPurpose*>(SSL_get_app_data(ssl)) = found->purpose;
  *session = NewSession(ssl, found->key);
  return *session != nullptr;
}

int TlsIdentity::OnClientPsk(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* size,
                             SSL_SESSION** session) {
  const auto* self = static_cast<TlsIdentity*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  const auto purpose = *static_cast<TlsPurpose*>(SSL_get_app_data(ssl));
  const TokenKeys::Named& offer = self->offers_[static_cast<size_t>(purpose)];
  *session = NewSession(ssl, offer.key);
  *name = reinterpret_cast<const unsigned char*>(offer.name.data());
  *size = offer.name.size();
  return *session != nullptr;
}

}  // namespace ddprun::rendezvous
