#include "tests/support/trainer_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include "rendezvous/base/check.h"
#include "tests/support/json.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {
namespace {

constexpr char kTarget[] =
    "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/digits/status";

// A stream over a connected socket, in TLS or plain.
class Stream {
 public:
  Stream(int fd, const std::optional<Certificate>& certificate) : fd_(fd) {
    if (!certificate) return;
    context_ = SSL_CTX_new(TLS_server_method());
    BIO* bio = BIO_new_mem_buf(certificate->certificate.c_str(), -1);
    X509* x509 = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    bio = BIO_new_mem_buf(certificate->key.c_str(), -1);
    EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    DDP_CHECK(SSL_CTX_use_certificate(context_, x509) == 1);
    DDP_CHECK(SSL_CTX_use_PrivateKey(context_, key) == 1);
    X509_free(x509);
    EVP_PKEY_free(key);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd);
    is_open_ = SSL_accept(ssl_) == 1;
  }
  ~Stream() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool is_open() const { return is_open_; }
  // More bytes; "" at the end.
  std::string Read() {
    char bytes[4096];
    const int got = ssl_ != nullptr ? SSL_read(ssl_, bytes, sizeof(bytes))
                                    : static_cast<int>(recv(fd_, bytes, sizeof(bytes), 0));
    return {bytes, static_cast<size_t>(std::max(got, 0))};
  }
  void Write(const std::string& text) {
    if (ssl_ != nullptr) {
      SSL_write(ssl_, text.data(), static_cast<int>(text.size()));
      SSL_shutdown(ssl_);
    } else {
      static_cast<void>(send(fd_, text.data(), text.size(), MSG_NOSIGNAL));
    }
  }

 private:
  const int fd_;
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
  bool is_open_ = true;
};

// The value of a header field; "": it is not there.
std::string Field(const std::string& head, const std::string& name) {
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find('\r', begin) - begin);
}

// "2025-01-31T12:00:00Z", fractions allowed.
bool IsTime(const std::string& text) {
  std::string shape = text.substr(0, 19);
  std::replace_if(
      shape.begin(), shape.end(), [](unsigned char c) { return std::isdigit(c) != 0; }, '9');
  return shape == "9999-99-99T99:99:99" && text.back() == 'Z';
}

}  // namespace

TrainerServer::TrainerServer(Options options)
    : options_(std::move(options)), token_(options_.token) {
  listening_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  DDP_CHECK(bind(listening_.get(), raw, size) == 0 && listen(listening_.get(), 16) == 0);
  DDP_CHECK(getsockname(listening_.get(), raw, &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

TrainerServer::~TrainerServer() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    if (talking_ >= 0) shutdown(talking_, SHUT_RDWR);
  }
  shutdown(listening_.get(), SHUT_RDWR);
  thread_.join();
}

std::string TrainerServer::Url(const std::string& host) const {
  return (options_.certificate ? "https://" : "http://") + host + ":" + std::to_string(port_) +
         kTarget;
}

void TrainerServer::SetToken(const std::string& token) {
  const std::lock_guard lock(mutex_);
  token_ = token;
}

std::vector<TrainerStatus> TrainerServer::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

std::vector<int> TrainerServer::answers() const {
  const std::lock_guard lock(mutex_);
  return answers_;
}

int TrainerServer::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_;
}

bool TrainerServer::WaitForPercent(int percent) const {
  return Eventually([&] {
    const std::lock_guard lock(mutex_);
    return !taken_.empty() && taken_.back().percent == percent;
  });
}

void TrainerServer::Serve() {
  // OpenSSL writes without MSG_NOSIGNAL, perhaps to a client that has gone.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  UniqueFd unheard;
  for (;;) {
    UniqueFd fd(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_ || !fd.is_open()) return;
      if (++connections_ == 1 && options_.manner == Manner::kSilentFirst) {
        unheard = std::move(fd);
        continue;
      }
      talking_ = fd.get();
    }
    Talk(fd.get());
    const std::lock_guard lock(mutex_);
    talking_ = -1;
  }
}

void TrainerServer::Talk(int fd) {
  if (options_.manner == Manner::kSilent) {
    char byte = 0;
    while (recv(fd, &byte, 1, 0) > 0) continue;
    return;
  }
  Stream stream(fd, options_.certificate);
  if (!stream.is_open()) return;
  std::string request;
  size_t end = std::string::npos;
  const auto is_whole = [&] {
    end = request.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const std::string length = Field(request.substr(0, end + 2), "Content-Length");
    return !length.empty() && request.size() >= end + 4 + std::stoul(length);
  };
  while (!is_whole()) {
    const std::string more = stream.Read();
    if (more.empty()) return;
    request += more;
    if (!request.starts_with('P')) return stream.Write("HTTP/1.1 400 Bad Request\r\n\r\n");
  }
  if (options_.manner == Manner::kGarbage) return stream.Write("220 mail.example ready\r\n");
  const int code = Judge(request.substr(0, end + 2), request.substr(end + 4));
  const std::string body = code == 200 ? "{}\n" : R"({"kind":"Status","status":"Failure"})";
  stream.Write("HTTP/1.1 " + std::to_string(code) + " Said\r\nContent-Type: application/json\r\n" +
               "Connection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
               body);
}

int TrainerServer::Judge(const std::string& head, const std::string& body) {
  const std::lock_guard lock(mutex_);
  const auto answer = [this](int code) {
    answers_.push_back(code);
    return code;
  };
  if (!head.starts_with("POST " + std::string(kTarget) + " HTTP/1.1\r\n")) return answer(404);
  const std::string bearer = Field(head, "Authorization");
  if (bearer != "Bearer " + token_) return answer(403);
  const std::optional<Json> json = ParseJson(body);
  const auto status = json ? json->get_child_optional("trainerStatus") : boost::none;
  if (!status || Field(head, "Content-Type") != "application/json") return answer(422);
  TrainerStatus taken{.token = token_};
  if (const auto number = status->get_optional<int>("progressPercentage")) taken.percent = *number;
  if (const auto number = status->get_optional<int>("estimatedRemainingSeconds")) {
    taken.remaining_seconds = *number;
  }
  taken.updated_at = status->get<std::string>("lastUpdatedTime", "");
  const int percent = taken.percent.value_or(0);
  const bool is_valid = percent >= 0 && percent <= 100 && taken.remaining_seconds.value_or(0) >= 0;
  if (!is_valid || !IsTime(taken.updated_at)) return answer(422);
  taken_.push_back(taken);
  return answer(200);
}

}  // namespace ddprun::testing
