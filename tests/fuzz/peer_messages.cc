// What a rank hears on its connections for messages: of a rank that sends to it, of one that it
// sends to, and of strangers.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/check.h"
#include "rendezvous/net/listening_socket.h"
#include "tests/fuzz/loopback.h"
#include "tests/fuzz/promise.h"
#include "worker_runtime/comm/make_nonce.h"
#include "worker_runtime/comm/messages/messages.h"

namespace ddp::internal {
namespace {

using ddprun::UniqueFd;
using ddprun::fuzz::ConnectTo;
using ddprun::fuzz::Input;
using ddprun::fuzz::IsPlain;
using ddprun::fuzz::Promise;
using ddprun::rendezvous::ListenOn;
using ddprun::rendezvous::LocalPort;
using std::chrono::milliseconds;

// No wait comes to its end.
constexpr milliseconds kTimeout(60'000);
constexpr size_t kReceives = 4;
constexpr uint64_t kReceiveBytes[kReceives] = {0, 1, 5, 16};
constexpr uint64_t kTags = 3;
constexpr int kAnyRank = -1;
constexpr char kUntouched = '~';
enum Kind : uint32_t { kOffer = 1, kAccept, kRefuse, kData, kWithdraw };

// As MessageFrame, which is on the wire as it is here.
struct Frame {
  uint32_t kind = 0;
  uint32_t unused = 0;
  uint64_t id = 0;
  uint64_t tag = 0;
  uint64_t bytes = 0;
};

template <typename Value>
std::string BytesOf(const Value& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

UniqueFd AcceptFrom(int listener) {
  pollfd polled{listener, POLLIN, 0};
  while (poll(&polled, 1, static_cast<int>(kTimeout.count())) < 0) {
    DDP_CHECK(errno == EINTR);
  }
  UniqueFd accepted(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  DDP_CHECK(accepted.is_open());
  // Its end is a reset, so that no port is kept for it.
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(accepted.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  return accepted;
}

void Say(const UniqueFd& socket, std::string_view bytes) {
  (void)send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// What is said, up to `size` bytes.
std::string Hear(const UniqueFd& socket, size_t size) {
  const timeval limit{.tv_sec = kTimeout.count() / 1000, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string heard(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = recv(socket.get(), heard.data() + done, size - done, 0);
    if (got < 0 && errno == EINTR) continue;  // libFuzzer's alarm
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  heard.resize(done);
  return heard;
}

// What is said up to `part`, or to the end.
std::string HearUntil(const UniqueFd& socket, const std::string& part) {
  std::string heard;
  while (heard.find(part) == std::string::npos) {
    const std::string byte = Hear(socket, 1);
    if (byte.empty()) break;
    heard += byte;
  }
  return heard;
}

// Rank 1 of two, and the port where rank 0 would be.
struct Group {
  UniqueFd other_listener;
  uint16_t port = 0;
  MessagePeers peers;
  std::unique_ptr<Messages> rank;

  Group() {
    auto theirs = ListenOn("127.0.0.1", 0), ours = ListenOn("127.0.0.1", 0);
    DDP_CHECK(theirs.ok() && ours.ok());
    other_listener = *std::move(theirs);
    port = LocalPort(ours->get());
    peers.hello = MakeNonce();
    peers.answer = MakeNonce();
    peers.places = {{"127.0.0.1", LocalPort(other_listener.get())}, {"127.0.0.1", port}};
    rank = std::make_unique<Messages>(1, peers, *std::move(ours), nullptr,
                                      [] { return absl::OkStatus(); });
  }
  std::string Hello() const { return BytesOf(MakeHello(peers.hello, 0, 1)); }
};

// Frames of small numbers, so that they concern each other; of others as they come.
std::string ReadFrames(Input& input) {
  std::string said;
  while (!input.is_empty()) {
    const uint64_t kind = input.Number(1);
    if (kind >= 128) {
      said += input.Text(kind - 127);
      continue;
    }
    Frame frame;
    frame.kind = static_cast<uint32_t>(kind % 8);
    frame.id = input.Number(1) % 8;
    frame.tag = input.Number(1) % kTags;
    frame.bytes = kReceiveBytes[input.Number(1) % kReceives];
    said += BytesOf(frame);
    if (frame.kind == kData) said += std::string(frame.bytes, 'd');
  }
  return said;
}

void CheckStatus(const absl::Status& status) {
  const std::string why(status.message());
  Promise(IsPlain(why, false), "an error is one plain line", why);
  Promise(status.ok() || absl::IsAborted(status) || absl::IsUnavailable(status) ||
              absl::IsInvalidArgument(status),
          "a message is lost, or of another size", status.ToString());
}

// Rank 0 connects anew, and sends one message as it should.
void CheckHonestRank(Group& group) {
  constexpr uint64_t kTag = 1000, kId = 77;
  const UniqueFd socket = ConnectTo(group.port);
  Say(socket, group.Hello());
  Promise(Hear(socket, sizeof(Nonce)) == BytesOf(group.peers.answer), "a rank is answered");
  char byte = kUntouched;
  const auto receive = group.rank->Start(
      {.peer = kAnyRank, .tag = kTag, .data = &byte, .bytes = 1, .timeout = kTimeout});
  Say(socket, BytesOf(Frame{.kind = kOffer, .id = kId, .tag = kTag, .bytes = 1}));
  Promise(Hear(socket, sizeof(Frame)) == BytesOf(Frame{.kind = kAccept, .id = kId, .bytes = 1}),
          "what was offered is accepted");
  Say(socket, BytesOf(Frame{.kind = kData, .id = kId, .bytes = 1}) + "h");
  const absl::Status status = receive->Wait();
  Promise(status.ok() && byte == 'h', "whatever one said before, another's message comes",
          status.ToString());
}

void HearSender(Input& input) {
  const bool is_rank = input.Number(1) % 4 != 0;
  Group group;
  struct Receive {
    std::string data;
    std::unique_ptr<Work> work;
  };
  std::vector<Receive> receives(kReceives);
  for (size_t i = 0; i < kReceives; ++i) {
    Receive& receive = receives[i];
    receive.data.assign(kReceiveBytes[i] + 1, kUntouched);
    receive.work = group.rank->Start({.peer = kAnyRank,
                                      .tag = input.Number(1) % kTags,
                                      .data = receive.data.data(),
                                      .bytes = kReceiveBytes[i],
                                      .timeout = kTimeout});
  }
  const std::string said = ReadFrames(input);
  const UniqueFd sender = ConnectTo(group.port);
  Say(sender, is_rank ? group.Hello() + said : said);
  CheckHonestRank(group);
  group.rank->Fail(absl::AbortedError("the input is over"));
  for (size_t i = 0; i < kReceives; ++i) {
    const absl::Status status = receives[i].work->Wait();
    CheckStatus(status);
    const std::string& data = receives[i].data;
    Promise(data.back() == kUntouched, "no more is written than a receive has room for");
    const bool is_said = said.find(data.substr(0, kReceiveBytes[i])) != std::string::npos;
    Promise(!status.ok() || (is_rank && is_said), "what is received was sent by a rank", data);
    const bool is_whole = data.find(kUntouched) == data.size() - 1;
    Promise(!status.ok() || is_whole || said.find(kUntouched) != std::string::npos,
            "what is received is whole", data);
  }
}

void HearReceiver(Input& input) {
  const bool is_rank = input.Number(1) % 4 != 0;
  Group group;
  std::string data = "data of a message";
  const auto send = group.rank->Start({.is_send = true,
                                       .peer = 0,
                                       .tag = 1,
                                       .data = data.data(),
                                       .bytes = data.size(),
                                       .timeout = kTimeout});
  const std::string said = ReadFrames(input);
  const UniqueFd receiver = AcceptFrom(group.other_listener.get());
  const std::string answer = (is_rank ? BytesOf(group.peers.answer) : "") + said;
  Say(receiver, answer);
  // Who has been answered offers another message once it has heard what is there, or hangs up.
  const auto next = group.rank->Start({.is_send = true, .peer = 0, .tag = 2, .timeout = kTimeout});
  std::string heard;
  if (answer.size() >= sizeof(Nonce)) {
    heard = HearUntil(receiver, BytesOf(Frame{.kind = kOffer, .id = 2, .tag = 2}));
  }
  shutdown(receiver.get(), SHUT_WR);
  heard += Hear(receiver, 4096);
  group.rank->Fail(absl::AbortedError("the input is over"));
  CheckStatus(next->Wait());
  const absl::Status status = send->Wait();
  CheckStatus(status);
  Frame accept{.kind = kAccept, .id = 1};
  const bool may_have_accepted =
      is_rank && said.find(BytesOf(accept).substr(0, 16)) != std::string::npos;
  const bool has_data = heard.find(data) != std::string::npos;
  Promise(may_have_accepted || (!has_data && !status.ok()),
          "data go to a rank that has accepted them alone", status.ToString());
  Promise(!status.ok() || has_data, "what is sent has gone");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  if (input.Number(1) % 2 == 0) {
    HearSender(input);
  } else {
    HearReceiver(input);
  }
  return 0;
}

}  // namespace ddp::internal
