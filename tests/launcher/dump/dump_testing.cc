#include "tests/launcher/dump/dump_testing.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "launcher/dump/proc_facts.h"
#include "tests/support/files.h"

namespace ddprun::testing {

std::unique_ptr<Subprocess> StartStuck(const std::string& how) {
  auto program = std::make_unique<Subprocess>(
      std::vector<std::string>{Runfile("tests/launcher/dump/stuck"), how});
  program->WaitForOut("ready");
  const std::string call = how == "lock" ? "futex" : how == "pipe" ? "read" : "nanosleep";
  Eventually([&] {
    return how == "busy" || launcher::KernelWait(program->pid()).find(call) != std::string::npos;
  });
  return program;
}

std::unique_ptr<Subprocess> StartStuckPython(const std::string& file) {
  const std::string folder = FolderOfTool("python3");
  if (folder.empty()) return nullptr;
  WriteFile(file,
            "import time\n"
            "def train_step():\n"
            "    time.sleep(1000)\n"
            "print('ready', flush=True)\n"
            "train_step()\n");
  auto program = std::make_unique<Subprocess>(std::vector<std::string>{folder + "/python3", file});
  program->WaitForOut("ready");
  Eventually([&] {
    const std::string wait = launcher::KernelWait(program->pid());
    return wait.find("nanosleep") != std::string::npos || wait.find("select") != std::string::npos;
  });
  return program;
}

char StateLetter(int pid) {
  const auto state = launcher::ReadProcessStat(pid);
  return state ? state->state : '-';
}

std::string FolderOfTool(const std::string& name) {
  const char* const given = name == "py-spy" ? std::getenv("DDPRUN_TEST_PY_SPY") : nullptr;
  if (given != nullptr && *given != '\0') return std::filesystem::path(given).parent_path();
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder;
  }
  return "";
}

launcher::StackTools FakeTool(const std::string& folder, const std::string& name,
                              const std::string& script) {
  WriteFile(folder + "/" + name, "#!/bin/sh\nPATH=/usr/bin:/bin\n" + script, 0755);
  return {.path = folder, .looks_beside_worker = false};
}

}  // namespace ddprun::testing
