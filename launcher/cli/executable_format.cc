#include "launcher/cli/executable_format.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/cli/text.h"
#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {
namespace {

#if defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#else
constexpr int kMachine = EM_X86_64;
#endif
constexpr size_t kHeadSize = 4096;
constexpr size_t kKernelLine = 256;  // as much of a first line as the kernel reads
constexpr size_t kTextSample = 128;  // without a NUL in it, a file is a text
constexpr char kDosHint[] = " (the file has DOS line ends)";

std::string ReadAt(int fd, size_t offset, size_t size) {
  std::string out(size, '\0');
  ssize_t length;
  do {
    length = pread(fd, out.data(), size, static_cast<off_t>(offset));
  } while (length < 0 && errno == EINTR);
  out.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return out;
}

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// "" when the file can be executed; else what is wrong with it, as the end of a sentence.
std::string LackOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return "does not exist";
  if (S_ISDIR(status.st_mode)) return "is a directory";
  return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? "" : "is not executable";
}

ExecutableFormat OfScript(const std::string& head) {
  ExecutableFormat format;
  const std::string line = head.substr(2, std::min(head.find('\n'), kKernelLine) - 2);
  const std::string words = Trimmed(line);
  const size_t end = words.find_first_of(" \t");
  const std::string interpreter = words.substr(0, end);
  if (interpreter.empty()) return format;
  const std::string argument = end == std::string::npos ? "" : Trimmed(words.substr(end));
  if (const std::string lack = LackOf(interpreter); !lack.empty()) {
    format.problem = absl::StrCat("its first line names the interpreter ", Quoted(interpreter),
                                  ", which ", lack, interpreter.back() == '\r' ? kDosHint : "");
    return format;
  }
  const std::string name = interpreter.substr(interpreter.rfind('/') + 1);
  const bool is_command =
      !argument.empty() && argument[0] != '-' && argument.find_first_of("= \t") == argument.npos;
  if (name == "env" && is_command) format.env_command = argument;
  return format;
}

std::string NameOfMachine(int machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "AArch64";
    case EM_386:
      return "i386";
    case EM_ARM:
      return "ARM";
    case EM_RISCV:
      return "RISC-V";
    case EM_PPC64:
      return "POWER";
    default:
      return absl::StrCat("machine type ", machine);
  }
}

// The loader of a dynamically linked program; empty when there is none or it is not found.
std::string LoaderOf(int fd, const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return "";
  const std::string table = ReadAt(fd, header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr));
  for (size_t at = 0; at + sizeof(Elf64_Phdr) <= table.size(); at += sizeof(Elf64_Phdr)) {
    Elf64_Phdr entry;
    std::memcpy(&entry, table.data() + at, sizeof(entry));
    if (entry.p_type != PT_INTERP || entry.p_filesz > kHeadSize) continue;
    return ReadAt(fd, entry.p_offset, entry.p_filesz).c_str();  // ends with a NUL
  }
  return "";
}

ExecutableFormat OfElf(int fd, const std::string& head) {
  ExecutableFormat format;
  Elf64_Ehdr header{};  // the first fields of the 32-bit one are the same
  if (head.size() < sizeof(header)) {
    format.problem = "is cut short: an ELF file without its header";
    return format;
  }
  std::memcpy(&header, head.data(), sizeof(header));
  const bool is_native = header.e_ident[EI_CLASS] == ELFCLASS64 &&
                         header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_machine == kMachine;
  if (!is_native) {
    // Many kernels run the 32-bit programs of their own family.
    const bool is_family = header.e_machine == (kMachine == EM_X86_64 ? EM_386 : EM_ARM) ||
                           header.e_machine == kMachine;
    if (is_family || HasFurtherFormats()) return format;
    format.problem = absl::StrCat("is a program for ", NameOfMachine(header.e_machine),
                                  "; this machine is ", NameOfMachine(kMachine));
    return format;
  }
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) {
    format.problem = "is an object file, not a program";
    return format;
  }
  const std::string loader = LoaderOf(fd, header);
  const std::string lack = loader.empty() ? "" : LackOf(loader);
  if (!lack.empty()) {
    format.problem = absl::StrCat("needs the loader ", Quoted(loader), ", which ", lack,
                                  " (built for another system?)");
  }
  return format;
}

}  // namespace

ExecutableFormat InspectExecutable(const std::string& path) {
  // Nothing that can be executed blocks an open; what else there is must not block us.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return {};
  const std::string head = ReadAt(file.get(), 0, kHeadSize);
  if (head.substr(0, 2) == "#!") return OfScript(head);
  if (head.substr(0, SELFMAG) == ELFMAG) return OfElf(file.get(), head);
  if (head.substr(0, kTextSample).find('\0') == std::string::npos) return {.needs_shell = true};
  if (HasFurtherFormats()) return {};
  return {.problem = "is neither a program for this machine nor a script"};
}

bool HasFurtherFormats() {
  DIR* directory = opendir("/proc/sys/fs/binfmt_misc");
  if (directory == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name != "register" && name != "status") found = true;
  }
  closedir(directory);
  return found;
}

}  // namespace ddprun::launcher
