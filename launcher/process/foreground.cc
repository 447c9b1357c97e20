#include "launcher/process/foreground.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

// Wrappers around wrappers; no more than a mistake would bring about.
constexpr int kDeepest = 8;

struct Command {
  pid_t pid = 0;
  pid_t parent = 0;
  uint64_t caught = 0;  // a bit for each signal
  uint64_t ignored = 0;

  bool Catches(int signal) const { return (caught >> (signal - 1) & 1) != 0; }
  bool Ignores(int signal) const { return (ignored >> (signal - 1) & 1) != 0; }
};

std::string Folder(pid_t pid) { return "/proc/" + std::to_string(pid); }

// None: it has ended.
std::optional<Command> Read(pid_t pid) {
  std::ifstream status(Folder(pid) + "/status");
  Command command{.pid = pid};
  bool is_read = false;
  for (std::string name; status >> name;) {
    if (name == "PPid:") status >> command.parent;
    if (name == "SigIgn:") status >> std::hex >> command.ignored;
    if (name == "SigCgt:") is_read = static_cast<bool>(status >> std::hex >> command.caught);
  }
  if (!is_read) return std::nullopt;
  return command;
}

bool IsShell(pid_t pid) {
  constexpr std::array kShells = {"ash",   "bash", "busybox", "dash", "ksh",
                                  "ksh93", "mksh", "sh",      "yash", "zsh"};
  std::error_code error;
  const std::string name =
      std::filesystem::read_symlink(Folder(pid) + "/exe", error).filename().string();
  return std::ranges::find(kShells, name) != kShells.end();
}

// A shell without job control starts those with SIGINT and SIGQUIT ignored (POSIX, "Asynchronous
// Lists"). A program may handle SIGINT since; bash itself ignores SIGQUIT always.
bool IsInBackground(const Command& command, const Command& shell) {
  if (command.Ignores(SIGINT) && !shell.Ignores(SIGINT)) return true;
  return command.Ignores(SIGQUIT) && !IsShell(command.pid);
}

// Empty where the kernel does not list children (no CONFIG_PROC_CHILDREN).
std::vector<Command> CommandsOf(const Command& shell) {
  std::vector<Command> commands;
  const std::string pid = std::to_string(shell.pid);
  std::ifstream children(Folder(shell.pid) + "/task/" + pid + "/children");
  for (pid_t child = 0; children >> child;) {
    const std::optional<Command> command = Read(child);
    if (command && !IsInBackground(*command, shell)) commands.push_back(*command);
  }
  return commands;
}

// A number that is free again may be a stranger's: its parent tells.
bool Send(const Command& command, pid_t parent, int signal) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, command.pid, 0)));
  if (!process.is_open()) return false;
  const std::optional<Command> now = Read(command.pid);
  return now && now->parent == parent &&
         syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

std::vector<pid_t> SignalCommandsOf(const Command& shell, int signal, int depth) {
  if (depth == kDeepest || !shell.Catches(signal) || !IsShell(shell.pid)) return {};
  std::vector<Command> commands = CommandsOf(shell);
  const auto catches = [signal](const Command& command) { return command.Catches(signal); };
  if (std::ranges::any_of(commands, catches)) {
    std::erase_if(commands, [&](const Command& command) { return !catches(command); });
  }
  std::vector<pid_t> sent;
  for (const Command& command : commands) {
    if (Send(command, shell.pid, signal)) sent.push_back(command.pid);
    SignalCommandsOf(command, signal, depth + 1);
  }
  return sent;
}

}  // namespace

bool IsStopped(pid_t pid) {
  std::ifstream status(Folder(pid) + "/status");
  std::string word;
  while (status >> word && word != "State:") {
  }
  return status >> word && word == "T";
}

std::vector<pid_t> SignalForeground(pid_t shell, int signal) {
  const std::optional<Command> self = Read(shell);
  return self ? SignalCommandsOf(*self, signal, 0) : std::vector<pid_t>{};
}

}  // namespace ddprun::launcher
