#include "rendezvous/tls/stream.h"

#include <openssl/err.h>
#include <openssl/x509.h>

#include <array>
#include <utility>

#include "rendezvous/base/check.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kReadBytes = 16 * 1024;  // the largest record

BIO* NewEmptyBio() {
  BIO* bio = BIO_new(BIO_s_mem());
  DDP_CHECK(bio != nullptr);
  BIO_set_mem_eof_return(bio, -1);  // empty is not the end
  return bio;
}

SSL* NewSsl(SSL_CTX* context) {
  SSL* ssl = SSL_new(context);
  DDP_CHECK(ssl != nullptr);
  return ssl;
}

}  // namespace

TlsStream::TlsStream(std::shared_ptr<const TlsIdentity> identity, Role role, TlsPurpose purpose)
    : identity_(std::move(identity)),
      role_(role),
      purpose_(purpose),
      ssl_(NewSsl(identity_->context())),
      incoming_(NewEmptyBio()),
      outgoing_(NewEmptyBio()) {
  SSL_set_app_data(ssl_, &purpose_);
  SSL_set_bio(ssl_, incoming_, outgoing_);
  if (role_ == Role::kServer) {
    SSL_set_accept_state(ssl_);
    return;
  }
  SSL_set_connect_state(ssl_);
  Handshake();  // says the first word
}

TlsStream::~TlsStream() { SSL_free(ssl_); }

bool TlsStream::Receive(std::string_view bytes, std::string& plain) {
  if (trouble_ != Trouble::kNone) return false;
  ERR_clear_error();
  if (!is_ready_) {
    received_ += bytes.size();
    if (received_ > kMaxHandshakeBytes) {
      trouble_ = Trouble::kNoTls;
      error_ = "its greeting has no end";
      return false;
    }
  }
  DDP_CHECK(BIO_write(incoming_, bytes.data(), static_cast<int>(bytes.size())) ==
            static_cast<int>(bytes.size()));
  if (!is_ready_ && !Handshake()) return false;
  if (!is_ready_) return true;
  std::array<char, kReadBytes> read;
  for (;;) {
    const int size = SSL_read(ssl_, read.data(), static_cast<int>(read.size()));
    if (size <= 0) return Fail(size);
    plain.append(read.data(), static_cast<size_t>(size));
  }
}

bool TlsStream::Handshake() {
  const int result = SSL_do_handshake(ssl_);
  if (result != 1) return Fail(result);
  // Without a certificate there is only the token's key; that it was used is asked all the same.
  if (identity_->is_token() && SSL_session_reused(ssl_) != 1) {
    trouble_ = Trouble::kDistrusted;
    error_ = "it has not proved that it has the job's token";
    return false;
  }
  is_ready_ = true;
  return true;
}

bool TlsStream::Fail(int result) {
  const int kind = SSL_get_error(ssl_, result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return true;
  if (kind == SSL_ERROR_ZERO_RETURN) return false;
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  error_ = reason == nullptr ? "the connection is broken" : reason;
  const int number = ERR_GET_REASON(code);
  const long verdict = SSL_get_verify_result(ssl_);
  if (number > SSL_AD_REASON_OFFSET) {
    // The alerts of the other side; OpenSSL says illegal_parameter of a binder that does not fit.
    const bool is_binder = number == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER && identity_->is_token();
    trouble_ = is_binder ? Trouble::kOtherToken : Trouble::kRefused;
    if (number == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED && !identity_->is_token()) {
      trouble_ = Trouble::kExpired;
      error_ = "by the other side's clock this node's certificate has expired, or its authority's";
    }
  } else if (number == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    const bool is_expired = verdict == X509_V_ERR_CERT_HAS_EXPIRED;
    trouble_ = is_expired ? Trouble::kExpired : Trouble::kDistrusted;
    error_ =
        is_expired
            ? "by this node's clock the other side's certificate has expired, or its authority's"
            : X509_verify_cert_error_string(verdict);
  } else if (number == SSL_R_BINDER_DOES_NOT_VERIFY) {
    trouble_ = Trouble::kOtherToken;
  } else if (number == SSL_R_NO_SHARED_CIPHER ||
             number == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE ||
             number == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM) {
    trouble_ = Trouble::kDistrusted;
  } else {
    trouble_ = Trouble::kNoTls;
  }
  return false;
}

bool TlsStream::is_for(TlsPurpose purpose) const {
  return is_ready_ && (purpose_ == purpose || !identity_->is_token());
}

bool TlsStream::is_begun() const {
  return is_ready_ || (identity_->is_token() && SSL_session_reused(ssl_) == 1);
}

void TlsStream::Send(std::string_view plain) {
  DDP_CHECK(is_ready_);
  if (plain.empty() || trouble_ != Trouble::kNone) return;
  ERR_clear_error();
  // The outgoing side takes all there is.
  const int size = SSL_write(ssl_, plain.data(), static_cast<int>(plain.size()));
  if (size <= 0) Fail(size);
}

std::string TlsStream::TakeOutgoing() {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(outgoing_, &bytes);
  std::string taken(bytes, size > 0 ? static_cast<size_t>(size) : 0);
  (void)BIO_reset(outgoing_);
  return taken;
}

}  // namespace ddprun::rendezvous
