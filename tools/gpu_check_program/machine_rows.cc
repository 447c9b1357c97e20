#include <cstdlib>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tools/gpu_check_program/check.h"

namespace ddprun::gpu_check {
namespace {

// The first Python whose PyTorch sees the GPU. `facts` gets what it says.
void FindPython(Check& check, Outcome* facts) {
  check.python_lack = "no python3";
  std::vector<std::string> candidates;
  for (const char* variable : {"DDPRUN_NCCL_PYTHON", "PYTHON_EXEC"}) {
    if (const char* value = std::getenv(variable)) candidates.push_back(value);
  }
  for (const char* name : {"python3", "python", "/opt/conda/bin/python3", "/usr/bin/python3"}) {
    candidates.push_back(name);
  }
  for (const std::string& python : candidates) {
    const Outcome outcome = check.Run({python, check.Program("torch_ddp.py"), "facts"});
    // What a name leads to may be a script that starts another.
    const std::string executable = outcome.Text("executable");
    if (outcome.ok()) {
      check.python = check.machine["python"] = executable;
      check.machine["torch"] = outcome.Text("torch");
      *facts = outcome;
      return;
    }
    const std::string why = outcome.Text("lack");
    if (why.empty() || check.env.count("DDPRUN_NCCL_PYTHON") > 0) continue;
    check.python_lack = executable + ": " + why;
    // NVIDIA's wheels may be there without PyTorch.
    check.env["DDPRUN_NCCL_PYTHON"] = executable;
  }
}

// Where the loader finds none, the files that PyTorch itself uses.
void TakeFromPyTorch(Check& check, const Outcome& facts, const Outcome& machine) {
  for (const auto& [lack, file, variable] :
       {std::tuple("nccl_lack", "nccl_file", "DDPRUN_NCCL_LIB"),
        std::tuple("cublas_lack", "cublas_file", "DDPRUN_CUBLAS_LIB")}) {
    const std::string path = facts.Text(file);
    if (!machine.Text(lack).empty() && !path.empty()) check.env[variable] = path;
  }
}

Result MachineRow(Check& check) {
  const std::vector<std::string> command = {check.Program("gpu_check"), "machine"};
  Outcome machine = check.Run(command);
  if (machine.exit_code == kExitNoGpu) {
    return NotRun(std::string(
        absl::StripPrefix(machine.Complaint(), absl::StrCat("exit code ", kExitNoGpu, ": "))));
  }
  if (!machine.ok()) return FailedRun("machine", machine);
  Outcome facts;
  FindPython(check, &facts);
  if (!check.python.empty()) {
    check.env["DDPRUN_NCCL_PYTHON"] = check.env["PYTHON_EXEC"] = check.python;
    machine = check.Run(command);
    TakeFromPyTorch(check, facts, machine);
  }
  machine = check.Run(command);
  if (!machine.ok()) return FailedRun("machine", machine);
  check.gpus = static_cast<int>(machine.Value("gpus").value_or(0));
  check.machine["gpus"] = std::to_string(check.gpus);
  for (const char* name : {"driver", "gpu0", "nccl", "cublas"}) {
    check.machine[name] = machine.Text(name);
  }
  if (machine.Text("cublas").empty()) check.trainer_lack = "no cuBLAS (row machine)";
  if (machine.Text("nccl").empty()) {
    check.nccl_lack = check.trainer_lack = "no NCCL (row machine)";
    return Failed(machine.Text("nccl_lack"));
  }
  // Also sees what shows only when NCCL is used: a driver too old for it.
  const Outcome doctor = check.Run({check.Program("ddprun"), "doctor", "--require", "cuda"});
  if (!doctor.ok()) {
    check.nccl_lack = check.trainer_lack = "what ddprun doctor lacks (row machine)";
    return FailedRun("ddprun doctor", doctor);
  }
  const std::string cublas_lack = machine.Text("cublas_lack");
  return {Verdict::kOk,
          absl::StrCat(check.gpus, " x ", check.machine["gpu0"], "; driver ",
                       check.machine["driver"], "; NCCL ", check.machine["nccl"], "; PyTorch ",
                       check.python.empty() ? "none" : check.machine["torch"],
                       cublas_lack.empty() ? "" : "; ", cublas_lack),
          {{"gpus", check.gpus}}};
}

}  // namespace

const std::vector<RowKind>& MachineRows() {
  static const std::vector<RowKind> rows = {{"machine", 90, &MachineRow}};
  return rows;
}

}  // namespace ddprun::gpu_check
