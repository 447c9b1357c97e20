#include "launcher/commands/trust.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/commands/terminal.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/process_baseline.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/base/steady_clock.h"
#include "rendezvous/base/time.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/tls/pem_files.h"

namespace ddprun::launcher {
namespace {

using rendezvous::TlsIdentity;

constexpr size_t kTokenBytes = 32;     // as random as a key of 256 bits
constexpr size_t kMinTokenChars = 32;  // of one that somebody else made
constexpr size_t kMaxTokenChars = 1024;
constexpr Duration kPipePatience = std::chrono::seconds(5);
constexpr int kPipePauseMs = 20;

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(why); }

// Without the white space around it, as files end in a line's end.
absl::StatusOr<std::string> ParseToken(const std::string& text) {
  constexpr const char* kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string::npos) return Bad("it is empty");
  const std::string token = text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
  const bool is_printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!is_printable) {
    return Bad("it holds characters that are no printable ASCII, or several words");
  }
  const bool is_long = token.size() > kMaxTokenChars;  // no more of it was read than tells so
  if (token.size() < kMinTokenChars || is_long) {
    return Bad(absl::StrCat("it has ", is_long ? "more than " : "",
                            is_long ? kMaxTokenChars : token.size(), " characters; expected ",
                            kMinTokenChars, " to ", kMaxTokenChars,
                            ", as ddprun token new makes them"));
  }
  return token;
}

bool IsPipe(int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 && S_ISFIFO(found.st_mode);
}

// Who may read the token may do anything with the job.
absl::Status CheckOwner(int fd) {
  struct stat found;
  if (fstat(fd, &found) != 0) return Bad(std::strerror(errno));
  // The shell's <(command) has no name on any file system. One that has waits for its writer, who
  // may never come.
  struct statfs at;
  const bool is_shells = fstatfs(fd, &at) == 0 && at.f_type == PIPEFS_MAGIC;
  if (S_ISFIFO(found.st_mode) && is_shells) return absl::OkStatus();
  if (!S_ISREG(found.st_mode)) return Bad("it is no regular file");
  if (found.st_uid != geteuid() && found.st_uid != 0) {
    return Bad(absl::StrCat("it belongs to user ", found.st_uid, ", who knows what is in it"));
  }
  if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    const std::string mode =
        absl::StrCat(absl::Hex((found.st_mode >> 6) & 7), absl::Hex((found.st_mode >> 3) & 7),
                     absl::Hex(found.st_mode & 7));
    const bool is_read = (found.st_mode & (S_IRGRP | S_IROTH)) != 0;
    const bool is_written = (found.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    const char* what = is_written && is_read ? "read and write" : is_written ? "write" : "read";
    if (!is_read && !is_written) what = "run";
    return Bad(absl::StrCat("its mode is ", mode, ", so others may ", what, " it; chmod 600 it"));
  }
  return absl::OkStatus();
}

// A pipe without a writer may get one yet.
absl::StatusOr<std::string> ReadAll(int fd, bool is_pipe) {
  const TimePoint deadline = SteadyNow() + kPipePatience;
  std::string text;
  std::array<char, kMaxTokenChars + 64> bytes;
  while (text.size() <= kMaxTokenChars + 2) {
    const ssize_t size = read(fd, bytes.data(), bytes.size());
    if (size > 0) text.append(bytes.data(), static_cast<size_t>(size));
    if (size == 0 && is_pipe && text.empty() && SteadyNow() < deadline) {
      poll(nullptr, 0, kPipePauseMs);
      continue;
    }
    if (size == 0) break;
    if (size > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return Bad(std::strerror(errno));
    pollfd ready{fd, POLLIN, 0};
    const int patience = PollTimeout(deadline);
    if (patience == 0 || (poll(&ready, 1, patience) == 0))
      return Bad("nothing came from it for 5 s");
  }
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return text;
}

// Someone may have written the token itself where its file's name belongs.
bool LooksLikeToken(const std::string& name) {
  const bool is_path = name.starts_with('/') || name.starts_with("./") || name.starts_with("../");
  return name.size() >= kMinTokenChars && !is_path;
}

}  // namespace

absl::Status CheckKeyFile(const std::string& name) {
  const UniqueFd fd(open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return fd.is_open() ? CheckOwner(fd.get()) : absl::OkStatus();
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& name, const std::string& source,
                                          Links links) {
  const int more = links == Links::kRefused ? O_NOFOLLOW : 0;
  const UniqueFd fd(open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | more));
  if (!fd.is_open()) {
    if (errno == ELOOP && more != 0) {
      return Bad(absl::StrCat(source, " ", EscapeControl(name),
                              ": it is a link, which others may have made"));
    }
    if (errno == ENOENT && LooksLikeToken(name)) {
      return Bad(absl::StrCat(source,
                              ": there is no file of that name; it names a file, as a token on the "
                              "command line could be read by everybody on this machine"));
    }
    const char* const way_out =
        errno == ENOENT ? "; ddprun token new prints one, and all nodes need the same" : "";
    return Bad(absl::StrCat(source, " ", EscapeControl(name), ": ", std::strerror(errno), way_out));
  }
  absl::Status status = CheckOwner(fd.get());
  absl::StatusOr<std::string> text = status.ok() ? ReadAll(fd.get(), IsPipe(fd.get())) : status;
  absl::StatusOr<std::string> token = text.ok() ? ParseToken(*text) : text.status();
  if (token.ok()) return token;
  return Bad(absl::StrCat(source, " ", EscapeControl(name), ": ", token.status().message()));
}

std::string NewToken() {
  std::array<uint8_t, kTokenBytes> bytes;
  DDP_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string token;
  for (const uint8_t byte : bytes) absl::StrAppend(&token, absl::Hex(byte, absl::kZeroPad2));
  return token;
}

absl::StatusOr<std::shared_ptr<const TlsIdentity>> IdentityOf(
    const TrustFiles& files, const std::optional<std::string>& token) {
  if (!files.cert.empty() || !files.token.empty()) LeaveNoCore();
  if (!files.cert.empty()) {
    auto identity = TlsIdentity::OfPem({.cert = files.cert, .key = files.key, .ca = files.ca});
    // Who may read the key may be this node.
    if (const absl::Status status = CheckKeyFile(files.key); identity.ok() && !status.ok()) {
      return Bad(absl::StrCat("--tls-key ", EscapeControl(files.key), ": ", status.message()));
    }
    if (identity.ok() || !absl::IsInvalidArgument(identity.status())) return identity;
    const std::string why(identity.status().message());
    std::vector<std::string> options;
    for (const auto& [option, file] :
         {std::pair("--tls-cert", &files.cert), std::pair("--tls-key", &files.key),
          std::pair("--tls-ca", &files.ca)}) {
      if (why.starts_with(EscapeControl(*file) + ": ")) options.push_back(option);
    }
    if (options.empty()) return Bad("own certificates: " + why);
    // One file may stand for several. What is wrong with the first two is found first.
    if (options.size() > 1 && options.back() == "--tls-ca") {
      const bool is_of_ca = rendezvous::CheckPemFiles(files.cert, files.key, "").ok();
      if (is_of_ca) options = {"--tls-ca"};
      if (!is_of_ca) options.pop_back();
    }
    return Bad(absl::StrCat(absl::StrJoin(options, " and "), " ", why));
  }
  if (!files.token.empty()) {
    absl::StatusOr<std::string> read =
        ReadTokenFile(files.token, files.token_source, Links::kFollowed);
    if (!read.ok()) return read.status();
    auto identity = TlsIdentity::OfToken(*read);
    OPENSSL_cleanse(read->data(), read->size());
    return identity;
  }
  if (!token) return std::shared_ptr<const TlsIdentity>();
  const absl::StatusOr<std::string> parsed = ParseToken(*token);
  if (!parsed.ok()) return Bad(absl::StrCat("DDPRUN_TOKEN: ", parsed.status().message()));
  return TlsIdentity::OfToken(*parsed);
}

int PrintNewToken() {
  LeaveNoCore();
  struct stat out;
  const bool is_file = fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode);
  // Before there is anything to read.
  if (is_file && fchmod(STDOUT_FILENO, S_IRUSR | S_IWUSR) != 0) {
    return Complain(
        absl::ErrnoToStatus(errno, "token: make stdout's file readable for its owner alone"),
        kExitMachine);
  }
  return Print(NewToken() + "\n");
}

}  // namespace ddprun::launcher
