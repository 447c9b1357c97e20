#include "rendezvous/base/read_system_facts.h"

#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/allowed_cpus.h"
#include "rendezvous/base/plain_text.h"

namespace ddprun {
namespace {

constexpr size_t kMaxFile = 64 * 1024;

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug ..." (the open module has
// "Open Kernel Module for x86_64  580.82.07"): the first word of digits and dots.
std::string KernelModuleVersion(const std::string& text) {
  for (const absl::string_view word :
       absl::StrSplit(text.substr(0, text.find('\n')), ' ', absl::SkipEmpty())) {
    const bool has_dot = word.find('.') != absl::string_view::npos;
    const bool is_number = word.find_first_not_of("0123456789.") == absl::string_view::npos;
    if (has_dot && is_number) return std::string(word);
  }
  return "";
}

// The first "model name : ..." of /proc/cpuinfo, which not every architecture has.
std::string CpuModel(const std::string& text) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    return EscapeControl(std::string(absl::StripAsciiWhitespace(line.substr(colon + 1))));
  }
  return "";
}

}  // namespace

std::string ReadSmallFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFile, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

SystemFacts ReadSystemFacts(const std::string& proc) {
  SystemFacts facts;
  utsname name;
  if (uname(&name) == 0) {
    facts.host = EscapeControl(name.nodename);
    facts.kernel = EscapeControl(absl::StrCat(name.sysname, " ", name.release));
  }
  facts.glibc = gnu_get_libc_version();
  facts.cpu = CpuModel(ReadSmallFile(proc + "/cpuinfo"));
  facts.cpus = static_cast<int>(AllowedCpus().size());
  facts.nvidia_module = KernelModuleVersion(ReadSmallFile(proc + "/driver/nvidia/version"));
  return facts;
}

}  // namespace ddprun
