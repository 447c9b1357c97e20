// Frames of HTTP/2 (RFC 9113), as strangers write them: without a client that would keep the rules.
#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_HTTP2_FRAMES_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_HTTP2_FRAMES_H_

#include <cstdint>
#include <string>

namespace ddprun::rendezvous {

inline constexpr char kDataFrame = 0;
inline constexpr char kHeadersFrame = 1;
inline constexpr char kResetFrame = 3;
inline constexpr char kSettingsFrame = 4;
inline constexpr char kPingFrame = 6;
inline constexpr char kWindowUpdateFrame = 8;
inline constexpr char kContinuationFrame = 9;
// Flags.
inline constexpr char kEndStream = 1;
inline constexpr char kEndHeaders = 4;

inline std::string Frame(char type, char flags, uint32_t stream, const std::string& payload) {
  const size_t size = payload.size();
  const std::string head = {static_cast<char>(size >> 16),
                            static_cast<char>(size >> 8),
                            static_cast<char>(size),
                            type,
                            flags,
                            static_cast<char>(stream >> 24),
                            static_cast<char>(stream >> 16),
                            static_cast<char>(stream >> 8),
                            static_cast<char>(stream)};
  return head + payload;
}

// What a client of HTTP/2 says first: the preface and its settings.
inline std::string Greeting() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettingsFrame, 0, 0, "");
}

// A field of a header block: neither compressed nor indexed.
inline std::string Field(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

// The headers of a call, complete.
inline std::string Call(uint32_t stream, const std::string& path) {
  return Frame(kHeadersFrame, kEndHeaders, stream,
               Field(":method", "POST") + Field(":scheme", "http") + Field(":path", path) +
                   Field(":authority", "coordinator") + Field("te", "trailers") +
                   Field("content-type", "application/grpc"));
}

inline constexpr char kAttachPath[] = "/ddprun.rendezvous.v1.Rendezvous/Attach";
inline constexpr char kLookPath[] = "/ddprun.rendezvous.v1.Rendezvous/Look";

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_HTTP2_FRAMES_H_
