// One end of a TLS connection, apart from any socket: bytes go in, bytes come out.
#ifndef DDPRUN_RENDEZVOUS_TLS_STREAM_H_
#define DDPRUN_RENDEZVOUS_TLS_STREAM_H_

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/tls/identity.h"

namespace ddprun::rendezvous {

class TlsStream {
 public:
  enum class Role { kClient, kServer };
  enum class Trouble {
    kNone,
    kRefused,     // the other side says that it does not know us
    kOtherToken,  // it has another token: it says so, or its first words do
    kDistrusted,  // it does not prove that it is of our job
    kExpired,     // a certificate has expired: error() says whose
    kNoTls,       // it speaks something else, or its bytes are broken
  };
  // What the other side may send until it has proved itself.
  static constexpr size_t kMaxHandshakeBytes = 64 * 1024;

  // `purpose`: a client's. A server learns it.
  TlsStream(std::shared_ptr<const TlsIdentity> identity, Role role,
            TlsPurpose purpose = TlsPurpose::kGreeting);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // The other side has sent `bytes`; what they hold for us is appended to `plain`. False: it is
  // over. trouble() and error() say why; both are empty where the other side has ended in order.
  bool Receive(std::string_view bytes, std::string& plain);
  // Encrypts what goes to the other side. REQUIRES: is_ready().
  void Send(std::string_view plain);
  // What is to be sent now, also where it is over: a word to the other side on why.
  std::string TakeOutgoing();

  // Each side knows that the other one is of the job.
  bool is_ready() const { return is_ready_; }
  // Whether what comes may be for that purpose; with certificates it may be for any.
  bool is_for(TlsPurpose purpose) const;
  // Of a server: the other side's first words were made with the job's token, by it or by whom it
  // has heard say them.
  bool is_begun() const;
  Trouble trouble() const { return trouble_; }
  const std::string& error() const { return error_; }

 private:
  bool Handshake();
  bool Fail(int result);

  const std::shared_ptr<const TlsIdentity> identity_;
  const Role role_;
  TlsPurpose purpose_;  // ssl_ has its address
  SSL* const ssl_;
  BIO* const incoming_;  // of ssl_, like the next one
  BIO* const outgoing_;
  size_t received_ = 0;  // until it was ready
  bool is_ready_ = false;
  Trouble trouble_ = Trouble::kNone;
  std::string error_;
};

// What a TLS server says to who does not speak TLS: protocol_version (RFC 8446, 6.2).
inline constexpr std::string_view kTlsAlert("\x15\x03\x03\x00\x02\x02\x46", 7);
inline constexpr char kTlsHandshakeByte = 0x16;
inline constexpr char kTlsAlertByte = 0x15;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_TLS_STREAM_H_
