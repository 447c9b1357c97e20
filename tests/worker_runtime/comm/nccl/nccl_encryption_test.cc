// NCCL's own encryption by the key of the round, on the double of CUDA and NCCL.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/agent/round_key_file.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/contains.h"
#include "tests/support/expect.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"
#include "tests/worker_runtime/comm/nccl/gpu_rank.h"
#include "worker_runtime/gpu/gpu_runtime.h"

namespace ddprun::testing {
namespace {

using Env = std::map<std::string, std::string>;

constexpr int kRanks = 2;
constexpr char kWithTls[] = "libgpu_double_tls.so";
const std::string kRoundKey(32, 'k');

// As ddprun gives it to a worker of one of two nodes; the descriptor is the process's until its
// end.
void GiveRoundKey(const std::string& key) {
  rendezvous::Assignment assignment;
  assignment.node_count = 2;
  assignment.round_key = key;
  auto file = launcher::RoundKeyFileOf(assignment, true);
  DDP_CHECK(file.ok());
  setenv("DDPRUN_ROUND_KEY_FD", std::to_string(file->Release()).c_str(), 1);
}

// One group of two ranks, on a host each, and what is to be seen of it.
struct Run {
  std::string codes;
  std::string log;                // the double's
  std::vector<std::string> err;   // by rank
  std::vector<std::string> said;  // why there is no group; empty: there was one
};

struct How {
  std::string library = kWithTls;
  std::string round_key = kRoundKey;  // "": none
  std::string last_key = "";          // rank 1's, where it has another
  Env env = {};
  bool is_one_host = false;
  bool loses_file = false;  // the library's is gone once it is loaded
  int groups = 1;           // one in the other
};

Run RunWith(const How& how) {
  const TempDir dir;
  Env env = how.env;
  const auto copy_of = [&dir](int rank) { return dir.File("lib" + std::to_string(rank) + ".so"); };
  env["DDPRUN_DOUBLE_LOG"] = dir.File("log");
  Run run;
  RankProcesses ranks(
      {.world_size = kRanks,
       .env = DoubleEnv(env, how.library),
       .env_of_rank =
           [&](int rank) {
             Env own = {{"DDPRUN_HOST_ID", "host" + std::to_string(how.is_one_host ? 0 : rank)}};
             if (!how.loses_file) return own;
             const std::string copy = copy_of(rank);
             std::filesystem::copy_file(DoubleEnv({}, how.library).at("DDPRUN_NCCL_LIB"), copy);
             own["DDPRUN_CUDA_LIB"] = own["DDPRUN_NCCL_LIB"] = copy;
             return own;
           }},
      [&](int rank) {
        if (how.loses_file) {
          EXPECT(ddp::internal::Cuda().ok() && ddp::internal::Nccl().ok());
          EXPECT(std::filesystem::remove(copy_of(rank)));
        }
        const std::string err = dir.File("err" + std::to_string(rank));
        const UniqueFd file(open(err.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        EXPECT(dup2(file.get(), STDERR_FILENO) == STDERR_FILENO);
        const bool has_other = rank == 1 && !how.last_key.empty();
        if (!how.round_key.empty()) GiveRoundKey(has_other ? how.last_key : how.round_key);
        const auto group = GpuGroup();
        for (int more = 1; more < how.groups; ++more) {
          const auto inner = group->Subgroup({0, 1});
          EXPECT(inner.ok());
          EXPECT((*inner)->Shutdown().ok());
        }
        const DeviceArray ones({1, 1});
        const ddp::Stream stream = NewStream();
        const auto summed = group->communicator().AllReduce(
            ones.data(), ones.size(), ddp::DType::kFloat32, ddp::ReduceOp::kSum, stream);
        EXPECT(summed->Wait().ok());
        EXPECT(ones.Read(stream) == std::vector<float>(2, kRanks));
        EXPECT(group->Shutdown().ok());
        return 0;
      });
  for (int rank = 0; rank < kRanks; ++rank) {
    run.codes += std::to_string(ranks.Await(rank)) + " ";
    run.said.push_back(ranks.Hear(rank));
    run.err.push_back(ReadFile(dir.File("err" + std::to_string(rank))));
  }
  run.log = ReadFile(dir.File("log"));
  return run;
}

std::string All(const Run& run) {
  return run.codes + run.said[0] + "|" + run.said[1] + "\n" + run.err[0] + run.err[1];
}

// The keys that NCCL was given, one for each time.
std::vector<std::string> KeysIn(const std::string& log) {
  std::vector<std::string> keys;
  std::istringstream lines(log);
  const std::string before = "nccl encryption psk=";
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(before);
    if (at != std::string::npos) keys.push_back(line.substr(at + before.size()));
  }
  return keys;
}

TEST_CASE("nccl encryption: all ranks of a round have one key, which is no other round's") {
  const Run one = RunWith({.groups = 3}), other = RunWith({.round_key = std::string(32, 'l')});
  REQUIRE_MESSAGE(one.codes == "0 0 ", All(one));
  REQUIRE_MESSAGE(other.codes == "0 0 ", All(other));
  const auto keys = KeysIn(one.log), later = KeysIn(other.log);
  // Once in each process, however many groups there are.
  REQUIRE(keys.size() == kRanks);
  REQUIRE(later.size() == kRanks);
  CHECK(keys[0] == keys[1]);
  CHECK(later[0] == later[1]);
  CHECK(keys[0] != later[0]);
  CHECK(keys[0].size() == 64);
  CHECK(keys[0] != Contains(kRoundKey));
  CHECK(keys[0] != Contains("6b6b6b6b"));  // the round's key, spelt
}

TEST_CASE("nccl encryption: rank 0 of several nodes says once that it is for TCP alone") {
  const std::string line =
      "ddp: NCCL encrypts what it sends to other nodes over TCP; over InfiniBand or RoCE it does "
      "not\n";
  const Run run = RunWith({.groups = 3}), on_one = RunWith({.is_one_host = true, .groups = 3});
  REQUIRE_MESSAGE(run.codes == "0 0 ", All(run));
  REQUIRE_MESSAGE(on_one.codes == "0 0 ", All(on_one));
  CHECK(run.err[0] == line);
  CHECK(run.err[1].empty());
  CHECK_MESSAGE((on_one.err[0] + on_one.err[1]).empty(), All(on_one));
}

TEST_CASE("nccl encryption: without a token there is none, and no word of it") {
  const Run run = RunWith({.round_key = ""});
  CHECK_MESSAGE(run.codes == "0 0 ", All(run));
  CHECK(KeysIn(run.log).empty());
  CHECK_MESSAGE((run.err[0] + run.err[1]).empty(), All(run));
}

TEST_CASE("nccl encryption: ranks with different keys form no group of NCCL's") {
  // On one host, where no link of ours is between them.
  const Run run = RunWith({.last_key = std::string(32, 'l'), .is_one_host = true});
  CAPTURE(All(run));
  CHECK(run.codes == "90 90 ");
  for (const std::string& said : run.said)
    CHECK(said == Contains("ncclCrypt: TLS handshake with rank "));
}

struct Plain {
  std::string library, version, says;
};

TEST_CASE("nccl encryption: one that cannot goes on in the clear, and rank 0 says so once") {
  const std::string before =
      "ddp: what NCCL sends to other nodes is not encrypted, though the job has a token or "
      "certificates: NCCL ";
  const Plain rows[] = {
      {"libgpu_double_noregister.so", "", " cannot; 2.32 or newer can, if it is built with TLS"},
      {"libgpu_double.so", "", " cannot; 2.32 or newer can, if it is built with TLS"},
      {"libgpu_double.so", "23203", " was built without TLS; one that is built with TLS"}};
  for (const Plain& row : rows) {
    How how{.library = row.library, .groups = 3};
    if (!row.version.empty()) how.env["DDPRUN_DOUBLE_NCCL_VERSION"] = row.version;
    const Run run = RunWith(how);
    CAPTURE(All(run));
    CHECK(run.codes == "0 0 ");
    CHECK(KeysIn(run.log).empty());
    CHECK(run.err[0].starts_with(before));
    CHECK(run.err[0] == Contains(row.library + ")" + row.says));
    CHECK(run.err[0].find('\n') == run.err[0].size() - 1);
    CHECK(run.err[1].empty());
    how.is_one_host = true;
    CHECK((RunWith(how).err[0]).empty());
  }
}

TEST_CASE("nccl encryption: one whose file does not tell gets the key, and fails if it cannot") {
  const Run with = RunWith({.loses_file = true});
  CHECK_MESSAGE(with.codes == "0 0 ", All(with));
  CHECK(KeysIn(with.log).size() == kRanks);
  const Run without = RunWith({.library = "libgpu_double.so",
                               .env = {{"DDPRUN_DOUBLE_NCCL_VERSION", "23203"}},
                               .loses_file = true});
  CAPTURE(All(without));
  CHECK(without.codes == "90 90 ");
  for (const std::string& said : without.said) {
    CHECK(said == Contains("NCCL was built without TLS support"));
    CHECK(said == Contains("; name a build of NCCL with TLS_BACKEND=OPENSSL3 by DDPRUN_NCCL_LIB"));
  }
  CHECK(without.log != Contains("joined"));
}

TEST_CASE("nccl encryption: a key that NCCL refuses ends the group on all ranks with a sentence") {
  const Run run = RunWith({.env = {{"DDPRUN_DOUBLE_FAULT", "refuses_key"}}});
  CAPTURE(All(run));
  CHECK(run.codes == "90 90 ");
  for (const std::string& said : run.said) {
    CHECK(said == Contains("encrypt what NCCL sends, as the job's token or certificates ask for: "
                           "ncclSetEncryption: invalid argument"));
    CHECK(said == Contains(": the key was refused; name another build of NCCL than /"));
  }
  CHECK(run.log != Contains("joined"));
}

TEST_CASE("nccl encryption: where OpenSSL is missing the group ends and says what to install") {
  const Run run = RunWith({.env = {{"DDPRUN_DOUBLE_FAULT", "no_openssl"}}});
  CAPTURE(All(run));
  CHECK(run.codes == "90 90 ");
  for (const std::string& said : run.said) {
    CHECK(said ==
          Contains("join NCCL's group of 2 ranks: ncclCommInitRankConfig: unhandled system error"));
    CHECK(said == Contains("install OpenSSL 3 where the workers run (Debian: libssl3)"));
  }
  CHECK(run.log != Contains("joined"));
}

}  // namespace
}  // namespace ddprun::testing
