#include "launcher/cli/variable_table.h"

namespace ddprun::launcher {
namespace {

constexpr char kDdprun[] = "ddprun";
constexpr char kLibrary[] = "library";
constexpr char kPython[] = "Python package";
constexpr char kBoth[] = "ddprun, library";
constexpr char kProgram[] = "program";
constexpr char kPyTorch[] = "PyTorch";
constexpr char kPlaceReaders[] = "library, PyTorch";

constexpr VariableRow kSettings[] = {
    {"DDPRUN_CLUSTER", kDdprun, "`none`: ddprun derives nothing from a scheduler's variables", ""},
    {"DDPRUN_CONTROL_DIR", kDdprun, "The folder of the job's control socket",
     "`/tmp/ddprun-<uid>`, then `$XDG_RUNTIME_DIR/ddprun-<uid>`"},
    {"DDPRUN_ETCD_PASSWORD", kDdprun, "The password of etcd's user; workers do not get it", ""},
    {"DDPRUN_LOG_LEVEL", kDdprun,
     "What ddprun writes to stderr: `trace`, `debug`, `info`, `warn`, `error` or `off`",
     "`LOGLEVEL`, else `warn`"},
    {"DDPRUN_SITE_FILE", kDdprun, "The file with the defaults of a site; empty: none",
     "`/etc/ddprun.env`"},
    {"DDPRUN_STDERR", kDdprun, "`inherit`: the workers inherit ddprun's stderr", "through ddprun"},
    {"DDPRUN_TOKEN", kDdprun, "The job's token; workers do not get it", "`--token-file`"},
    {"DDPRUN_WORKER_SERVER", kDdprun, "`1`: each worker gets `TORCH_WORKER_SERVER_SOCKET`", "none"},
    {"PYTHON_EXEC", kBoth, "The Python that runs scripts",
     "the `python3` of ddprun's environment, else of `PATH`"},
    {"LOGLEVEL", kDdprun, "torchrun's log level, as Python's `logging` names it", "`WARNING`"},
    {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", kDdprun, "Stands in for `--shutdown-timeout`", "30"},
    {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", kDdprun,
     "`1`: rank 0 serves the workers' store, not the agent", "the agent serves it"},
    {"TORCHELASTIC_ENABLE_FILE_TIMER", kDdprun, "`1`: the agent watches the workers' timers", ""},
    {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", kDdprun, "Stands in for `--log-line-prefix-template`",
     "the option's default"},
    {"CUDA_VISIBLE_DEVICES", kDdprun,
     "The GPUs of this node; set for workers with `gpu:LIST` or `--virtual-local-rank`",
     "all GPUs"},
    {"HIP_VISIBLE_DEVICES", kDdprun,
     "The same for AMD's GPUs; set for workers with `--virtual-local-rank`", "all GPUs"},
    {"CUDA_HOME", kDdprun, "Where `ddprun doctor` looks for `nvcc` after `PATH`",
     "`/usr/local/cuda`"},
    {"NO_COLOR", kDdprun, "Any text: `status` and `top` use no colours", "colours in a terminal"},
    {"LC_ALL", kDdprun, "If it names UTF-8, `top` draws with it", "`LC_CTYPE`"},
    {"LC_CTYPE", kDdprun, "The same", "`LANG`"},
    {"LANG", kDdprun, "The same", "ASCII"},
    {"PATH", kBoth, "Where programs, scripts, `python3` and debuggers are found", ""},
    {"TMPDIR", kBoth, "The folder of error files, flags, timers and flight records",
     "`/tmp`, `/dev/shm`"},
    {"XDG_RUNTIME_DIR", kDdprun, "The folder of sockets and of the coordinator's file", "`/tmp`"},
    {"VIRTUAL_ENV", kDdprun, "Of a worker: where `ddprun dump` looks for debuggers", ""},
    {"CONDA_PREFIX", kDdprun, "The same", ""},
    {"GRPC_VERBOSITY", "gRPC", "How much gRPC writes with `DDPRUN_LOG_LEVEL=debug`", "errors"},
    {"GRPC_TRACE", "gRPC", "The parts of gRPC that write it", "none"},
};

constexpr VariableRow kWorkers[] = {
    {"RANK", kPlaceReaders, "The rank", ""},
    {"WORLD_SIZE", kPlaceReaders, "The number of ranks", ""},
    {"LOCAL_RANK", kPlaceReaders, "The rank on this node; 0 with `--virtual-local-rank`", ""},
    {"LOCAL_WORLD_SIZE", kPlaceReaders, "The number of ranks on this node", ""},
    {"GROUP_RANK", kPlaceReaders, "The rank of the node", ""},
    {"GROUP_WORLD_SIZE", kPlaceReaders, "The number of nodes", ""},
    {"ROLE_NAME", kPlaceReaders, "The name from `--role`", ""},
    {"ROLE_RANK", kPlaceReaders, "The rank among workers of the same role", ""},
    {"ROLE_WORLD_SIZE", kPlaceReaders, "The number of workers of the same role", ""},
    {"MASTER_ADDR", kPlaceReaders, "The host of the workers' store", ""},
    {"MASTER_PORT", kPlaceReaders, "The port of the workers' store", ""},
    {"TORCHELASTIC_RESTART_COUNT", kPlaceReaders, "How often the job was restarted", ""},
    {"TORCHELASTIC_MAX_RESTARTS", kPlaceReaders, "How often it may be restarted", ""},
    {"TORCHELASTIC_RUN_ID", kPlaceReaders, "The job's id, from `--rdzv-id`", ""},
    {"TORCHELASTIC_USE_AGENT_STORE", kPlaceReaders,
     "`True`: the agent serves the store; `False`: rank 0 must serve it", ""},
    {"TORCHELASTIC_ERROR_FILE", kPlaceReaders,
     "The file into which the worker writes its exception", ""},
    {"TORCHELASTIC_SIGNALS_TO_HANDLE", kPyTorch, "The text of `--signals-to-handle`", ""},
    {"TORCHELASTIC_TIMER_FILE", kPyTorch,
     "The FIFO for timers, with `TORCHELASTIC_ENABLE_FILE_TIMER=1`; ddprun takes yours if it is "
     "set",
     ""},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", kPyTorch, "1, unless you set it", ""},
    {"TORCH_WORKER_SERVER_SOCKET", kPyTorch,
     "The socket of PyTorch's worker server, with `DDPRUN_WORKER_SERVER=1`", ""},
    {"OMP_NUM_THREADS", kProgram, "1 if the node has several workers, unless you set it", ""},
    {"NCCL_SOCKET_IFNAME", "NCCL", "The interface from `--network`", ""},
    {"GLOO_SOCKET_IFNAME", "Gloo", "The interface from `--network`", ""},
};

constexpr VariableRow kLibraries[] = {
    {"DDPRUN_CUBLAS_LIB", kBoth, "The file of cuBLAS; only the example on the GPU needs it",
     "searched as NCCL"},
    {"DDPRUN_CUDA_LIB", kBoth, "The file of the CUDA driver", "`libcuda.so.1`"},
    {"DDPRUN_NCCL_LIB", kBoth, "The file of NCCL; nothing else is tried", "searched"},
    {"DDPRUN_NCCL_PYTHON", kBoth,
     "The Python in whose packages NCCL and cuBLAS are searched; ddprun sets it for workers",
     "`PYTHON_EXEC`, else `python3`"},
    {"DDPRUN_NVML_LIB", kBoth, "The file of NVML", "`libnvidia-ml.so.1`"},
    {"DDPRUN_LIBDDP", kPython, "The file of `libddp.so`", "the package's own, else the system's"},
    {"DDPRUN_FLIGHT_RECORDER_DIR", kBoth, "The folder of the library's flight records",
     "`TMPDIR`, else `/tmp`"},
    {"DDPRUN_HOST_ID", kLibrary, "Ranks with an equal id share memory",
     "from the boot and the network namespace"},
    {"TORCH_DISTRIBUTED_DEBUG", kLibrary,
     "`OFF`, `INFO` or `DETAIL`: with `DETAIL` ranks compare their calls", "`OFF`"},
    {"TORCH_NCCL_HIGH_PRIORITY", kLibrary, "`1`: operations run on a stream of high priority", "0"},
    {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", kLibrary,
     "`1`: the gradients' memory is registered with NCCL", "0"},
    {"NCCL_MULTI_RANK_GPU_ENABLE", "library, NCCL", "`1`: ranks may share a GPU", "0"},
    {"NCCL_HOSTID", "library, NCCL",
     "NCCL's name of the host: ranks with an equal one share a node", "from the host"},
    {"NCCL_COMM_ID", kLibrary, "Refused: it would make the group's secret public", ""},
    {"NCCL_COMM_BLOCKING", kLibrary, "`0` is refused: the library makes blocking calls", ""},
    {"NCCL_GRAPH_REGISTER", "NCCL", "The library sets it to 0, unless you set it", ""},
};

constexpr VariableRow kSchedulers[] = {
    {"SLURM_JOB_ID", kDdprun, "The job", ""},
    {"SLURM_JOB_NODELIST", kDdprun, "The job's nodes, compared with the step's", ""},
    {"SLURM_JOB_NUM_NODES", kDdprun, "For the hint that `srun` is missing", ""},
    {"SLURM_STEP_ID", kDdprun, "The step: the job's id", ""},
    {"SLURM_STEP_NODELIST", kDdprun, "The nodes; the first one hosts the rendezvous", ""},
    {"SLURM_STEP_NUM_NODES", kDdprun, "Compared with the list", ""},
    {"SLURM_STEP_TASKS_PER_NODE", kDdprun, "Must be one task for each node", ""},
    {"SLURM_STEP_RESV_PORTS", kDdprun, "Ports that Slurm keeps for the step", ""},
    {"SLURM_NODEID", kDdprun, "The rank of this node", ""},
    {"SLURM_PROCID", kDdprun, "The first task prints what concerns all tasks", ""},
    {"SLURM_HET_SIZE", kDdprun, "A heterogeneous job: nothing is derived", ""},
    {"SLURM_RESTART_COUNT", kDdprun, "A part of the job's id", ""},
    {"SLURM_GPUS_ON_NODE", kDdprun, "The workers of this node, without `CUDA_VISIBLE_DEVICES`", ""},
    {"OMPI_COMM_WORLD_SIZE", kDdprun, "The number of nodes", ""},
    {"OMPI_COMM_WORLD_RANK", kDdprun, "The rank of this node", ""},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", kDdprun, "Must be 1", ""},
    {"PMIX_NAMESPACE", kDdprun, "The job's id under `mpirun`", ""},
    {"PMIX_RANK", kDdprun, "The rank of this node", ""},
    {"SKYPILOT_NODE_IPS", kDdprun, "The nodes; the first one hosts the rendezvous", ""},
    {"SKYPILOT_NODE_RANK", kDdprun, "The rank of this node", ""},
    {"SKYPILOT_NUM_NODES", kDdprun, "Compared with the list", ""},
    {"SKYPILOT_NUM_GPUS_PER_NODE", kDdprun, "The workers of each node", ""},
    {"SKYPILOT_TASK_ID", kDdprun, "The job's id", ""},
    {"JOB_COMPLETION_INDEX", kDdprun, "The rank of this pod in an indexed Job", ""},
    {"KUBERNETES_SERVICE_HOST", kDdprun, "In a pod the first failure goes to the pod's status", ""},
    {"KUBEFLOW_TRAINER_SERVER_URL", kDdprun, "Where Kubeflow Trainer takes the progress", ""},
    {"KUBEFLOW_TRAINER_SERVER_CA_CERT", kDdprun, "The file of its certificate authority", ""},
    {"KUBEFLOW_TRAINER_SERVER_TOKEN", kDdprun, "The file of the token for it", ""},
};

constexpr VariableRow kInternal[] = {
    {"DDPRUN_ROUND", kLibrary, "The number of the round", ""},
    {"DDPRUN_EPOCH", kLibrary, "Which start of the coordinator the round is of", ""},
    {"DDPRUN_JOB_MARK", kBoth, "Marks the job's processes; ddprun ends them by it", ""},
    {"DDPRUN_STOP_FILE", kLibrary, "The file with the flag that asks the worker to stop", ""},
    {"DDPRUN_PROGRESS_FILE", kLibrary, "The same file, on rank 0 under Kubeflow Trainer", ""},
    {"DDPRUN_COUNTERS_FD", "library, Python package", "The descriptor of the worker's counters",
     ""},
    {"DDPRUN_NODE_ADDR", "library, Python package", "The node's address for other nodes", ""},
    {"DDPRUN_ROUND_KEY_FD", kLibrary, "The descriptor of the round's key", ""},
    {"DDPRUN_SPAWN", kLibrary, "The rank in a process that `ddp::Spawn` starts", ""},
    {"DDPRUN_BENCH_RESULTS", kDdprun,
     "The file into which a rank of `ddprun bench` writes its results", ""},
};

constexpr VariableGroup kGroups[] = {
    {"Settings", "You set these for `ddprun` and its commands.", kSettings},
    {"The workers' place", "ddprun sets these for each worker, as torchrun does.", kWorkers},
    {"Libraries", "You set these for the workers, through ddprun or in the program.", kLibraries},
    {"Schedulers",
     "A scheduler sets these. `--no-cluster` makes ddprun ignore those of Slurm, Open MPI, PMIx, "
     "SkyPilot and an indexed Job.",
     kSchedulers},
    {"Between ddprun and its library", "ddprun and the library set these. Do not set them.",
     kInternal},
};

}  // namespace

std::span<const VariableGroup> VariableTable() { return kGroups; }

}  // namespace ddprun::launcher
