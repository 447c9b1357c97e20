#include "launcher/process/worker_env.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

namespace ddprun::launcher {
namespace {

WorkerEnvInput Input() {
  WorkerEnvInput input;
  input.assignment.epoch = {77};
  input.assignment.round = {3};
  input.assignment.node_rank = 1;
  input.assignment.node_count = 2;
  input.assignment.first_rank = 4;
  input.assignment.world_size = 8;
  input.assignment.role_first_rank = 2;
  input.assignment.role_world_size = 6;
  input.assignment.master_addr = "fe80::1";
  input.assignment.master_port = 1234;
  input.assignment.restart_count = 1;
  input.assignment.max_restarts = 5;
  input.local_world_size = 4;
  input.run_id = "job1";
  input.role = "trainer";
  input.job_mark = "m4rk";
  input.signals_to_handle = "SIGTERM,SIGUSR1";
  return input;
}

std::map<std::string, std::string> AsMap(const std::vector<std::string>& block) {
  std::map<std::string, std::string> map;
  for (const std::string& variable : block) {
    const size_t equals = variable.find('=');
    CAPTURE(variable);
    CHECK(map.emplace(variable.substr(0, equals), variable.substr(equals + 1)).second);
  }
  return map;
}

TEST_CASE("worker env: a worker of torchelastic finds every variable it knows") {
  const std::map<std::string, std::string> expected = {
      {"HOME", "/root"},
      {"LOCAL_RANK", "2"},
      {"RANK", "6"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "trainer"},
      {"ROLE_RANK", "4"},
      {"ROLE_WORLD_SIZE", "6"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"WORLD_SIZE", "8"},
      {"MASTER_ADDR", "fe80::1"},
      {"MASTER_PORT", "1234"},
      {"TORCHELASTIC_RESTART_COUNT", "1"},
      {"TORCHELASTIC_MAX_RESTARTS", "5"},
      {"TORCHELASTIC_RUN_ID", "job1"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGUSR1"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"OMP_NUM_THREADS", "1"},
      {"DDPRUN_ROUND", "3"},
      {"DDPRUN_EPOCH", "77"},
      {"DDPRUN_JOB_MARK", "m4rk"},
  };
  CHECK(AsMap(BuildWorkerEnv({"HOME=/root"}, Input(), 2, "/tmp/error.json")) == expected);
}

TEST_CASE("worker env: what another launcher left is replaced, what the user set stays") {
  const std::vector<std::string> parent = {"A=1",
                                           "RANK=99",
                                           "WORLD_SIZE=98",
                                           "MASTER_ADDR=stale",
                                           "MASTER_PORT=97",
                                           "DDPRUN_JOB_MARK=outer",
                                           "OMP_NUM_THREADS=",
                                           "odd",
                                           "TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
                                           "B=x=y\nz"};
  WorkerEnvInput input = Input();
  input.job_mark = "";
  const std::vector<std::string> block = BuildWorkerEnv(parent, input, 0, "");
  const std::map<std::string, std::string> map = AsMap(block);
  CHECK(map.at("RANK") == "4");
  CHECK(map.at("WORLD_SIZE") == "8");
  CHECK(map.at("MASTER_ADDR") == "fe80::1");
  CHECK(map.at("MASTER_PORT") == "1234");
  CHECK(map.count("DDPRUN_JOB_MARK") == 0);
  CHECK(map.at("OMP_NUM_THREADS") == "");
  CHECK(map.at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0");
  CHECK(map.at("TORCHELASTIC_ERROR_FILE") == "");
  CHECK(block[0] == "A=1");
  CHECK(std::find(block.begin(), block.end(), "odd") != block.end());
  CHECK(std::find(block.begin(), block.end(), "B=x=y\nz") != block.end());
}

TEST_CASE("worker env: a virtual local rank is 0 with the worker's own GPU alone visible") {
  WorkerEnvInput input = Input();
  input.virtual_devices = {"4", "GPU-a1", "6", "7"};
  const auto map = AsMap(BuildWorkerEnv({"CUDA_VISIBLE_DEVICES=4,GPU-a1,6,7"}, input, 1, ""));
  CHECK(map.at("LOCAL_RANK") == "0");
  CHECK(map.at("CUDA_VISIBLE_DEVICES") == "GPU-a1");
  CHECK(map.at("RANK") == "5");
  CHECK(map.at("ROLE_RANK") == "3");
  CHECK(map.at("LOCAL_WORLD_SIZE") == "4");
  CHECK(map.count("HIP_VISIBLE_DEVICES") == 0);
  const auto hip = AsMap(BuildWorkerEnv({"HIP_VISIBLE_DEVICES=4,GPU-a1,6,7"}, input, 2, ""));
  CHECK(hip.at("HIP_VISIBLE_DEVICES") == "6");
  CHECK(hip.at("CUDA_VISIBLE_DEVICES") == "6");
  const auto real = AsMap(BuildWorkerEnv({"CUDA_VISIBLE_DEVICES=4,5"}, Input(), 1, ""));
  CHECK(real.at("LOCAL_RANK") == "1");
  CHECK(real.at("CUDA_VISIBLE_DEVICES") == "4,5");
}

TEST_CASE("worker env: chosen GPUs are those that all workers see, in their order") {
  WorkerEnvInput input = Input();
  input.visible_devices = "5,1,3,7";
  const auto map = AsMap(BuildWorkerEnv({"CUDA_VISIBLE_DEVICES=0"}, input, 2, ""));
  CHECK(map.at("CUDA_VISIBLE_DEVICES") == "5,1,3,7");
  CHECK(map.at("LOCAL_RANK") == "2");
}

TEST_CASE("worker env: OMP_NUM_THREADS is set only for several workers and when nobody did") {
  CHECK(SetsOmpThreads({"A=1"}, 2));
  CHECK_FALSE(SetsOmpThreads({"A=1"}, 1));
  CHECK_FALSE(SetsOmpThreads({"OMP_NUM_THREADS=8"}, 2));
  WorkerEnvInput alone = Input();
  alone.local_world_size = 1;
  CHECK(AsMap(BuildWorkerEnv({}, alone, 0, "")).count("OMP_NUM_THREADS") == 0);
}

// One row for each variable that torchrun gives a worker.
TEST_CASE("worker env: each variable of torchrun's contract follows its own value") {
  struct Row {
    const char* name;
    const char* parent;  // the agent's own value; null: unset
    void (*change)(WorkerEnvInput&);
    int local_rank;
    const char* expected;  // null: unset
  };
  const auto same = [](WorkerEnvInput&) {};
  const auto at_rank_0 = [](WorkerEnvInput& i) {
    i.assignment.first_rank = 0;
    i.progress_file = "/own";
  };
  const Row rows[] = {
      {"LOCAL_RANK", "9", same, 3, "3"},
      {"RANK", "9", [](WorkerEnvInput& i) { i.assignment.first_rank = 10; }, 3, "13"},
      {"GROUP_RANK", "9", [](WorkerEnvInput& i) { i.assignment.node_rank = 0; }, 0, "0"},
      {"GROUP_WORLD_SIZE", "9", [](WorkerEnvInput& i) { i.assignment.node_count = 7; }, 0, "7"},
      {"ROLE_NAME", "x", [](WorkerEnvInput& i) { i.role = "a b"; }, 0, "a b"},
      {"ROLE_RANK", "9", [](WorkerEnvInput& i) { i.assignment.role_first_rank = 20; }, 2, "22"},
      {"ROLE_WORLD_SIZE", "9", [](WorkerEnvInput& i) { i.assignment.role_world_size = 30; }, 0,
       "30"},
      {"LOCAL_WORLD_SIZE", "9", [](WorkerEnvInput& i) { i.local_world_size = 5; }, 0, "5"},
      {"WORLD_SIZE", "9", [](WorkerEnvInput& i) { i.assignment.world_size = 40; }, 0, "40"},
      {"MASTER_ADDR", "x", [](WorkerEnvInput& i) { i.assignment.master_addr = "::1"; }, 0, "::1"},
      {"MASTER_PORT", "1", [](WorkerEnvInput& i) { i.assignment.master_port = 65535; }, 0, "65535"},
      {"TORCHELASTIC_RESTART_COUNT", "9", [](WorkerEnvInput& i) { i.assignment.restart_count = 2; },
       0, "2"},
      {"TORCHELASTIC_MAX_RESTARTS", "9", [](WorkerEnvInput& i) { i.assignment.max_restarts = 8; },
       0, "8"},
      {"TORCHELASTIC_RUN_ID", "x", [](WorkerEnvInput& i) { i.run_id = "id"; }, 0, "id"},
      // Python's spelling: PyTorch compares with it.
      {"TORCHELASTIC_USE_AGENT_STORE", "x", same, 0, "True"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True", [](WorkerEnvInput& i) { i.use_agent_store = false; },
       0, "False"},
      {"TORCHELASTIC_ERROR_FILE", "/agents/own", same, 0, "/e.json"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", nullptr, same, 0, "1"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", same, 0, "3"},
      {"OMP_NUM_THREADS", nullptr, same, 0, "1"},
      {"OMP_NUM_THREADS", "6", same, 0, "6"},
      {"OMP_NUM_THREADS", nullptr, [](WorkerEnvInput& i) { i.local_world_size = 1; }, 0, nullptr},
      {"CUDA_VISIBLE_DEVICES", "3,1", same, 1, "3,1"},
      {"CUDA_VISIBLE_DEVICES", nullptr, same, 1, nullptr},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM",
       [](WorkerEnvInput& i) { i.signals_to_handle = "SIGHUP"; }, 0, "SIGHUP"},
      {"TORCHELASTIC_TIMER_FILE", nullptr, same, 0, nullptr},
      {"TORCHELASTIC_TIMER_FILE", "/outer", same, 0, "/outer"},
      {"TORCHELASTIC_TIMER_FILE", "/outer", [](WorkerEnvInput& i) { i.timer_file = "/own"; }, 0,
       "/own"},
      {"DDPRUN_STOP_FILE", "/outer", same, 0, nullptr},
      {"DDPRUN_STOP_FILE", "/outer", [](WorkerEnvInput& i) { i.stop_file = "/own"; }, 0, "/own"},
      {"DDPRUN_PROGRESS_FILE", "/outer", same, 0, nullptr},
      {"DDPRUN_PROGRESS_FILE", "/outer", at_rank_0, 0, "/own"},
      {"DDPRUN_PROGRESS_FILE", "/outer", at_rank_0, 1, nullptr},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    std::vector<std::string> parent;
    if (row.parent != nullptr) parent.push_back(std::string(row.name) + "=" + row.parent);
    WorkerEnvInput input = Input();
    row.change(input);
    const auto env = AsMap(BuildWorkerEnv(parent, input, row.local_rank, "/e.json"));
    const auto found = env.find(row.name);
    CHECK((found != env.end()) == (row.expected != nullptr));
    if (found != env.end() && row.expected != nullptr) CHECK(found->second == row.expected);
  }
}

TEST_CASE(
    "worker env: PyTorch's worker server has a socket for each worker, where it is asked for") {
  WorkerEnvInput input = Input();
  const std::vector<std::string> parent = {"TORCH_WORKER_SERVER_SOCKET=/tmp/mine"};
  CHECK(WorkerServerSocket({}, input, 2) == "");
  CHECK_FALSE(AsMap(BuildWorkerEnv({}, input, 2, "")).contains("TORCH_WORKER_SERVER_SOCKET"));
  CHECK(WorkerServerSocket(parent, input, 2) == "/tmp/mine");
  input.server_socket = "/dev/shm/run/torch_77_3_";
  CHECK(WorkerServerSocket(parent, input, 2) == "/dev/shm/run/torch_77_3_2");
  const auto variables = AsMap(BuildWorkerEnv(parent, input, 2, ""));
  CHECK(variables.at("TORCH_WORKER_SERVER_SOCKET") == "/dev/shm/run/torch_77_3_2");
  input.server_socket = "/" + std::string(105, 'x');
  CHECK(WorkerServerSocket({}, input, 2).size() == 107);
  input.server_socket += "x";
  CHECK(WorkerServerSocket({}, input, 2) == "");
}

}  // namespace
}  // namespace ddprun::launcher
