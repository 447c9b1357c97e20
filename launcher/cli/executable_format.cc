#include "launcher/cli/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/text.h"

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

std::string ReadAt(std::ifstream& file, uint64_t offset, size_t size) {
  std::string out(size, '\0');
  file.clear();  // of the end, where an earlier reading may have come to
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(out.data(), static_cast<std::streamsize>(size));
  out.resize(static_cast<size_t>(file.gcount()));
  return out;
}

// "" when the file can be executed; else what is wrong with it, as the end of a sentence.
std::string LackOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return "does not exist";
  if (S_ISDIR(status.st_mode)) return "is a directory";
  return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? "" : "is not executable";
}

ExecutableFormat OfScript(const std::string& head) {
  const std::string line = head.substr(2, std::min(head.find('\n'), kKernelLine) - 2);
  const std::vector<std::string> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.empty()) return {};
  const std::string& interpreter = words[0];
  if (const std::string lack = LackOf(interpreter); !lack.empty()) {
    return {.problem = absl::StrCat("its first line names the interpreter ", Quoted(interpreter),
                                    ", which ", lack, interpreter.back() == '\r' ? kDosHint : "")};
  }
  const bool is_env = interpreter.substr(interpreter.rfind('/') + 1) == "env";
  if (!is_env || words.size() != 2 || words[1][0] == '-' || absl::StrContains(words[1], '=')) {
    return {};
  }
  return {.env_command = words[1]};
}

std::string NameOfMachine(int machine) {
  constexpr std::pair<int, const char*> kNames[] = {{EM_X86_64, "x86-64"}, {EM_AARCH64, "AArch64"},
                                                    {EM_386, "i386"},      {EM_ARM, "ARM"},
                                                    {EM_RISCV, "RISC-V"},  {EM_PPC64, "POWER"}};
  for (const auto& [known, name] : kNames) {
    if (machine == known) return name;
  }
  return absl::StrCat("machine type ", machine);
}

// The loader of a dynamically linked program; empty when there is none or it is not found.
std::string LoaderOf(std::ifstream& file, const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return "";
  const std::string table = ReadAt(file, header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr));
  for (size_t at = 0; at + sizeof(Elf64_Phdr) <= table.size(); at += sizeof(Elf64_Phdr)) {
    Elf64_Phdr entry;
    std::memcpy(&entry, table.data() + at, sizeof(entry));
    if (entry.p_type != PT_INTERP || entry.p_filesz > kHeadSize) continue;
    return ReadAt(file, entry.p_offset, entry.p_filesz).c_str();  // ends with a NUL
  }
  return "";
}

ExecutableFormat OfElf(std::ifstream& file, const std::string& head) {
  Elf64_Ehdr header{};  // the first fields of the 32-bit one are the same
  if (head.size() < sizeof(header)) {
    return {.problem = "is cut short: an ELF file without its header"};
  }
  std::memcpy(&header, head.data(), sizeof(header));
  const bool is_native = header.e_ident[EI_CLASS] == ELFCLASS64 &&
                         header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_machine == kMachine;
  if (!is_native) {
    // Many kernels run the 32-bit programs of their own family.
    const bool is_family = header.e_machine == (kMachine == EM_X86_64 ? EM_386 : EM_ARM) ||
                           header.e_machine == kMachine;
    if (is_family || HasFurtherFormats()) return {};
    return {.problem = absl::StrCat("is a program for ", NameOfMachine(header.e_machine),
                                    "; this machine is ", NameOfMachine(kMachine))};
  }
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN) {
    return {.problem = "is an object file, not a program"};
  }
  const std::string loader = LoaderOf(file, header);
  const std::string lack = loader.empty() ? "" : LackOf(loader);
  if (lack.empty()) return {};
  return {.problem = absl::StrCat("needs the loader ", Quoted(loader), ", which ", lack,
                                  " (built for another system?)")};
}

}  // namespace

ExecutableFormat InspectExecutable(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  const std::string head = ReadAt(file, 0, kHeadSize);
  struct stat status {};
  const bool is_file = stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  if (is_file && status.st_size == 0 && head.empty()) return {.problem = "is an empty file"};
  if (head.starts_with("#!")) return OfScript(head);
  if (head.starts_with(ELFMAG)) return OfElf(file, head);
  if (head.substr(0, kTextSample).find('\0') == std::string::npos) return {.needs_shell = true};
  if (HasFurtherFormats()) return {};
  return {.problem = "is neither a program for this machine nor a script"};
}

bool HasFurtherFormats() {
  std::error_code error;
  std::filesystem::directory_iterator at("/proc/sys/fs/binfmt_misc", error), end;
  for (; !error && at != end; at.increment(error)) {
    const std::filesystem::path name = at->path().filename();
    if (name != "register" && name != "status") return true;
  }
  return false;
}

}  // namespace ddprun::launcher
