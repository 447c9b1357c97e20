// Where a Python keeps the libraries of NVIDIA's wheels, which PyTorch brings along.
#ifndef DDPRUN_WORKER_RUNTIME_GPU_WHEEL_FOLDERS_H_
#define DDPRUN_WORKER_RUNTIME_GPU_WHEEL_FOLDERS_H_

#include <string>
#include <vector>

namespace ddp::internal {

struct NamedPython {
  std::string variable;  // that names it; empty: none does, it is the python3 of $PATH
  std::string path;      // empty: there is none
};

// The interpreter that names the wheels' folders: $DDPRUN_NCCL_PYTHON, else $PYTHON_EXEC, as a path
// (a bare name is looked up in $PATH), else the python3 of $PATH: what runs a script, too.
NamedPython WheelPython();

// The folders in which `python` looks for packages, told from its path alone, since starting it
// costs tens of milliseconds a rank: those of the prefix that the path names (a virtual
// environment's own), then those of the interpreter that its symbolic links lead to. Only folders
// that exist. Within a prefix in alphabetical order.
std::vector<std::string> PackageFolders(const std::string& python);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_GPU_WHEEL_FOLDERS_H_
