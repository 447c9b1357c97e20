#include "tests/gpu_double/double_api.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "rendezvous/base/check.h"
#include "tests/support/subprocess.h"

namespace ddprun::gpu_double {
namespace {

constexpr std::chrono::seconds kPatience{30};

template <typename Function>
void Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

void Set(const std::string& name, const std::string& value) {
  if (value.empty()) {
    unsetenv(name.c_str());
  } else {
    setenv(name.c_str(), value.c_str(), 1);
  }
}

}  // namespace

DoubleApi OpenDouble(const std::string& name) {
  const std::string path = testing::Runfile("tests/gpu_double/lib" + name + ".so");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  DDP_CHECK(library != nullptr);
  DoubleApi api;
#define DDPRUN_DOUBLE_FIND(result, name, parameters) Find(library, #name, api.name);
  DDPRUN_DOUBLE_CUDA_FUNCTIONS(DDPRUN_DOUBLE_FIND)
  DDPRUN_DOUBLE_NCCL_FUNCTIONS(DDPRUN_DOUBLE_FIND)
  DDPRUN_DOUBLE_OWN_FUNCTIONS(DDPRUN_DOUBLE_FIND)
#undef DDPRUN_DOUBLE_FIND
  return api;
}

const DoubleApi& Api() {
  static const DoubleApi& api = *new DoubleApi(OpenDouble("gpu_double"));
  return api;
}

ScopedEnv::ScopedEnv(const Env& env) {
  for (const auto& [name, value] : env) {
    const char* before = std::getenv(name.c_str());
    before_[name] = before != nullptr ? before : "";
    Set(name, value);
  }
}

ScopedEnv::~ScopedEnv() {
  for (const auto& [name, value] : before_) Set(name, value);
}

void UseDevice(int device) {
  DDP_CHECK(Api().cuInit(0) == kCudaSuccess);
  CudaContext context = nullptr;
  DDP_CHECK(Api().cuDevicePrimaryCtxRetain(&context, device) == kCudaSuccess);
  DDP_CHECK(Api().cuCtxSetCurrent(context) == kCudaSuccess);
}

TestStream::TestStream(unsigned flags) {
  DDP_CHECK(Api().cuStreamCreateWithPriority(&stream_, flags, 0) == kCudaSuccess);
}

TestStream::~TestStream() { Api().cuStreamDestroy_v2(stream_); }

DeviceBuffer::DeviceBuffer(size_t bytes) : bytes_(bytes) {
  DDP_CHECK(Api().cuMemAlloc_v2(&address_, bytes) == kCudaSuccess);
}

DeviceBuffer::DeviceBuffer(const std::string& content) : DeviceBuffer(content.size()) {
  DDP_CHECK(Api().cuMemcpyHtoDAsync_v2(address_, content.data(), content.size(), nullptr) ==
            kCudaSuccess);
  DDP_CHECK(Api().cuStreamSynchronize(nullptr) == kCudaSuccess);
}

DeviceBuffer::~DeviceBuffer() { Api().cuMemFree_v2(address_); }

std::string DeviceBuffer::Read() const {
  std::string content(bytes_, '\0');
  DDP_CHECK(Api().cuMemcpyDtoHAsync_v2(content.data(), address_, bytes_, nullptr) == kCudaSuccess);
  return content;
}

void RunRanks(int world_size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([rank, &body] {
      UseDevice(rank);
      body(rank);
      Api().cuDevicePrimaryCtxRelease_v2(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<int> RunRankProcesses(int world_size, const std::function<int(int rank)>& body) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = fork();
    DDP_CHECK(pid >= 0);
    if (pid == 0) {
      // doctest's handlers would report the child's end as the test's.
      for (const int number : {SIGABRT, SIGSEGV, SIGTERM}) signal(number, SIG_DFL);
      _exit(body(rank));
    }
    pids.push_back(pid);
  }
  std::vector<int> codes;
  for (const pid_t pid : pids) {
    int status = 0;
    DDP_CHECK(waitpid(pid, &status, 0) == pid);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return codes;
}

TestComm::TestComm(const NcclUniqueId& id, int world_size, int rank) {
  NcclConfig config;
  config.blocking = 1;
  joined_ = Api().ncclCommInitRankConfig(&comm_, world_size, id, rank, &config);
  DDP_CHECK(joined_ != kNcclInvalidArgument);
}

TestComm::~TestComm() {
  if (comm_ != nullptr) Api().ncclCommAbort(comm_);
}

NcclResult TestComm::Error() const {
  NcclResult result = kNcclSuccess;
  DDP_CHECK(Api().ncclCommGetAsyncError(comm_, &result) == kNcclSuccess);
  return result;
}

NcclResult TestComm::End() {
  const NcclResult result = Api().ncclCommFinalize(comm_);
  if (result != kNcclSuccess) return result;
  return Api().ncclCommDestroy(std::exchange(comm_, nullptr));
}

NcclUniqueId NewId() {
  NcclUniqueId id;
  DDP_CHECK(Api().ncclGetUniqueId(&id) == kNcclSuccess);
  return id;
}

}  // namespace ddprun::gpu_double
