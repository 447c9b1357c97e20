#include "launcher/cli/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/text.h"
#include "launcher/process/exit_status.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/fnv1a.h"

namespace ddprun::launcher {
namespace {

constexpr char kShell[] = "/bin/sh";
constexpr char kDefaultPath[] = "/bin:/usr/bin";  // execvp's, where PATH is not set

enum class Need { kExecute, kRead };

// 0, or the errno that opening `path` for that purpose would meet.
int Problem(const std::string& path, Need need) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (need == Need::kExecute && !S_ISREG(status.st_mode)) return EACCES;
  const int mode = need == Need::kExecute ? X_OK : R_OK;
  // Effective ids, as execve has it.
  return faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0 ? 0 : errno;
}

bool IsMissing(int error) { return error == ENOENT || error == ENOTDIR; }

absl::Status NotFound(const std::string& name, const std::string& why) {
  return absl::NotFoundError(absl::StrCat("program ", Quoted(name), ": ", why));
}

absl::Status NotExecutable(const std::string& name, const std::string& why) {
  return absl::PermissionDeniedError(absl::StrCat("program ", Quoted(name), ": ", why));
}

// From where a relative path was looked up.
std::string FolderText(const std::string& path) {
  std::error_code error;
  const std::string folder = std::filesystem::current_path(error).string();
  return path.starts_with('/') || error ? "" : absl::StrCat(" in ", Quoted(folder));
}

absl::Status ErrorOfPath(const std::string& name, int error, Need need) {
  if (IsMissing(error)) {
    return NotFound(name, absl::StrCat("no such file", FolderText(name),
                                       "; expected an executable file or a .py script"));
  }
  if (error == EISDIR) {
    return NotExecutable(
        name,
        "is a directory; expected an executable file or a .py script (a folder with "
        "__main__.py is run by --run-path)");
  }
  if (error == EACCES && need == Need::kExecute) {
    return NotExecutable(name,
                         "is not executable; expected a file with an execute bit (chmod +x), a "
                         "name ending in .py, or --run-path for another Python script");
  }
  return NotExecutable(name, std::strerror(error));
}

// The file that execvp would take for a name without a slash. An unusable one is passed over, and
// is the error only when no usable one follows.
absl::StatusOr<std::string> SearchPath(const std::string& name, const Environment& environment) {
  const std::string path = environment.Get("PATH").value_or(kDefaultPath);
  std::optional<std::string> unusable;
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    std::string candidate = folder.empty() ? name : absl::StrCat(folder, "/", name);
    const int problem = Problem(candidate, Need::kExecute);
    if (problem == 0) return candidate;
    if (!IsMissing(problem) && problem != EISDIR && !unusable) unusable = candidate;
  }
  if (unusable) return NotExecutable(name, absl::StrCat(Quoted(*unusable), " is not executable"));
  const int problem_here = Problem(name, Need::kExecute);
  if (problem_here == EISDIR) return ErrorOfPath(name, EISDIR, Need::kExecute);
  if (problem_here == 0) {
    return NotFound(name, absl::StrCat("not found in PATH; the file in this directory is ",
                                       Quoted("./" + name)));
  }
  if (Problem(name, Need::kRead) == 0) {
    return NotFound(name,
                    "not found in PATH; the file in this directory has no execute bit: a Python "
                    "script of any name is run by --run-path");
  }
  std::vector<std::string> commands;
  for (const CommandRow& row : CommandTable()) commands.emplace_back(row.name);
  const std::string meant = NearestName(name, commands);
  return NotFound(
      name,
      absl::StrCat("not found in PATH; expected a command or the path of a file",
                   meant.empty() ? "" : absl::StrCat("; did you mean 'ddprun ", meant, "'?")));
}

absl::StatusOr<std::string> FindExecutable(const std::string& name,
                                           const Environment& environment) {
  if (name.empty()) return ErrorOfPath(name, ENOENT, Need::kExecute);
  if (name.find('/') == std::string::npos) return SearchPath(name, environment);
  const int problem = Problem(name, Need::kExecute);
  if (problem != 0) return ErrorOfPath(name, problem, Need::kExecute);
  return name;
}

// What execve or env would refuse, told now rather than by every worker.
absl::Status CheckFormat(const std::string& name, const ExecutableFormat& format,
                         const Environment& environment) {
  if (!format.problem.empty()) return NotExecutable(name, format.problem);
  if (format.env_command.empty() || format.env_command.find('/') != std::string::npos) {
    return absl::OkStatus();
  }
  if (SearchPath(format.env_command, environment).ok()) return absl::OkStatus();
  return NotExecutable(
      name, absl::StrCat("its first line asks for ", Quoted(format.env_command),
                         ", which is not found in PATH",
                         format.env_command.back() == '\r' ? " (the file has DOS line ends)" : ""));
}

// What is wrong with $PYTHON_EXEC, in a word: the advice about programs does not fit it.
std::string CauseOfPython(const std::string& python, const absl::Status& error) {
  if (python.find('/') == std::string::npos) {
    return absl::IsNotFound(error) ? "not found in PATH" : "is not executable";
  }
  const int problem = Problem(python, Need::kExecute);
  if (IsMissing(problem)) return "no such file";
  if (problem == EISDIR) return "is a directory";
  return problem == EACCES ? "is not executable" : std::strerror(problem);
}

// `words` are what Python is given: options, what to run.
absl::StatusOr<Program> UnderPython(const std::string& program, std::vector<std::string> words,
                                    const Environment& environment) {
  const std::string given = environment.Get("PYTHON_EXEC").value_or("");
  std::string python = given.empty() ? PythonBeside(OwnProgram()) : given;
  if (python.empty()) python = "python3";
  const absl::StatusOr<std::string> executable = FindExecutable(python, environment);
  absl::Status error = executable.status();
  if (error.ok()) error = CheckFormat(python, InspectExecutable(*executable), environment);
  if (error.ok()) {
    words.insert(words.begin(), {python, "-u"});
    return Program{.executable = *executable, .argv = std::move(words), .title = program};
  }
  const std::string needed = absl::StrCat("; it is needed to run ", Quoted(program));
  if (given.empty()) {
    return absl::Status(error.code(),
                        absl::StrCat(error.message(), needed, " (PYTHON_EXEC names another)"));
  }
  const std::string prefix = absl::StrCat("program ", Quoted(python), ": ");
  const std::string cause = executable.ok()
                                ? std::string(absl::StripPrefix(error.message(), prefix))
                                : CauseOfPython(python, error);
  return absl::Status(
      error.code(),
      absl::StrCat("PYTHON_EXEC ", Quoted(python), ": ", cause,
                   "; expected the path of a Python interpreter: set PYTHON_EXEC to one, or "
                   "unset it to use the python3 of PATH",
                   needed));
}

absl::StatusOr<Program> ResolveScript(const std::string& script, const Environment& environment) {
  const int problem = Problem(script, Need::kRead);
  if (problem != 0) return ErrorOfPath(script, problem, Need::kRead);
  return UnderPython(script, {script}, environment);
}

absl::StatusOr<Program> ResolveRunPath(const std::string& script, const Environment& environment) {
  int problem = Problem(script, Need::kRead);
  // runpy runs a directory that has such a file.
  if (problem == EISDIR && Problem(script + "/__main__.py", Need::kRead) == 0) problem = 0;
  if (problem != 0) return ErrorOfPath(script, problem, Need::kRead);
  constexpr char kRunPath[] =
      "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')";
  return UnderPython(script, {"-c", kRunPath, script}, environment);
}

absl::StatusOr<Program> ResolveModule(const std::string& module, const Environment& environment) {
  if (module.empty() || module.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("module ", Quoted(module), ": expected a name such as package.train"));
  }
  return UnderPython(module, {"-m", module}, environment);
}

absl::StatusOr<Program> ResolveItself(const std::string& name, const Environment& environment) {
  const absl::StatusOr<std::string> executable = FindExecutable(name, environment);
  if (!executable.ok()) return executable.status();
  const ExecutableFormat format = InspectExecutable(*executable);
  if (absl::Status status = CheckFormat(name, format, environment); !status.ok()) return status;
  if (format.needs_shell) {
    return Program{.executable = kShell, .argv = {kShell, *executable}, .title = name};
  }
  return Program{.executable = *executable, .argv = {name}, .title = name};
}

absl::StatusOr<Program> Resolve(const std::string& name, RunAs run_as,
                                const Environment& environment) {
  switch (run_as) {
    case RunAs::kByName:
      return name.ends_with(".py") ? ResolveScript(name, environment)
                                   : ResolveItself(name, environment);
    case RunAs::kItself:
      return ResolveItself(name, environment);
    case RunAs::kModule:
      return ResolveModule(name, environment);
    case RunAs::kRunPath:
      return ResolveRunPath(name, environment);
  }
  DDP_CHECK(false && "an unknown way to run");
}

}  // namespace

absl::StatusOr<Program> ResolveProgram(const std::string& name,
                                       const std::vector<std::string>& args, RunAs run_as,
                                       const Environment& environment) {
  absl::StatusOr<Program> program = Resolve(name, run_as, environment);
  if (!program.ok()) return program;
  program->argv.insert(program->argv.end(), args.begin(), args.end());
  Fnv1a digest;
  const std::string file = name.substr(name.rfind('/') + 1);
  digest.Add(file.c_str(), file.size() + 1);  // with its zero
  for (const std::string& arg : args) digest.Add(arg.c_str(), arg.size() + 1);
  program->digest = digest.value();
  return program;
}

std::string OwnProgram() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "";
}

std::string PythonBeside(const std::string& program) {
  const size_t name = program.rfind('/');
  if (name == std::string::npos) return "";
  const std::string folder = program.substr(0, name);
  const bool is_environment = Problem(folder + "/../pyvenv.cfg", Need::kRead) == 0 ||
                              Problem(folder + "/../conda-meta", Need::kRead) == EISDIR;
  const std::string python = folder + "/python3";
  return is_environment && Problem(python, Need::kExecute) == 0 ? python : "";
}

int ExitCodeOfStartError(const absl::Status& error) {
  if (absl::IsInvalidArgument(error)) return kExitUsage;
  if (absl::IsNotFound(error)) return kExitNotFound;
  if (absl::IsPermissionDenied(error)) return kExitNotExecutable;
  return kExitBug;
}

std::vector<std::string> ArgvOfWorker(const Program& program, int local_rank) {
  const auto value_of = [&](std::string_view name) -> std::optional<std::string> {
    if (name != "local_rank") return std::nullopt;
    return std::to_string(local_rank);
  };
  std::vector<std::string> argv = program.argv;
  // As in torchrun, not in the name of what is executed.
  for (size_t i = 1; i < argv.size(); ++i) argv[i] = WithMacros(argv[i], value_of);
  return argv;
}

}  // namespace ddprun::launcher
