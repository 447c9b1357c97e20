// NVIDIA's own libnccl, as far as it goes without a GPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "nvidia_found.h"
#include "tests/support/contains.h"
#include "tests/support/in_child.h"
#include "tests/support/skip.h"
#include "worker_runtime/gpu/cuda_api.h"
#include "worker_runtime/gpu/nccl_api.h"
#include "worker_runtime/gpu/texts_of_file.h"

namespace ddp::internal {
namespace {

using ddprun::testing::InChild;
using ddprun::testing::SkipTest;
using std::chrono::milliseconds;

// That of tools/setup --with-nccl, else the system's; neither network cards nor a peer are asked.
std::string WithNccl(const std::function<std::string(const LoadedNccl&)>& body,
                     milliseconds patience = std::chrono::seconds(60)) {
  return InChild(
      {{"DDPRUN_NCCL_LIB", NVIDIA_NCCL_LIBRARY},
       {"NCCL_SOCKET_IFNAME", "lo"},
       {"NCCL_IB_DISABLE", "1"},
       {"NCCL_DEBUG", ""}},
      [&body] {
        const auto nccl = LoadNccl();
        return nccl.ok() ? body(*nccl) : nccl.status().ToString();
      },
      patience);
}

// Only where there is none: one that is there and that we cannot load is a failure.
std::string WhyAbsent() {
  if (NVIDIA_NCCL_LIBRARY[0] != '\0') return "";
  const std::string text = WithNccl([](const LoadedNccl&) { return std::string(); });
  if (!text.starts_with("NOT_FOUND")) return "";
  return "no libnccl.so.2, neither the system's nor that of tools/setup --with-nccl";
}

bool HasGpu() {
  return InChild({}, [] {
           const auto cuda = LoadCuda();
           int count = 0;
           if (!cuda.ok() || cuda->api.cuInit(0) != kCudaSuccess ||
               cuda->api.cuDeviceGetCount(&count) != kCudaSuccess) {
             return std::string("0");
           }
           return std::to_string(count);
         }) != "0";
}

TEST_CASE("real nccl: it is opened without a driver, and every function of its version is there") {
  if (const auto why = WhyAbsent(); !why.empty()) return SkipTest(why);
  CHECK(WithNccl([](const LoadedNccl& nccl) {
          std::string lacks;
          if (nccl.version >= NcclVersionCode(2, 19, 1) && !nccl.can_register())
            lacks += "register";
          if (nccl.version < kNcclOldest || nccl.path.empty()) lacks += "version";
          return lacks;
        }) == "");
}

TEST_CASE("real nccl: two unique ids differ and neither is empty") {
  if (const auto why = WhyAbsent(); !why.empty()) return SkipTest(why);
  CHECK(WithNccl([](const LoadedNccl& nccl) -> std::string {
          NcclUniqueId ids[2] = {};
          for (auto& id : ids) {
            const NcclResult result = nccl.api.ncclGetUniqueId(&id);
            const auto status = NcclStatus(nccl.api, "ncclGetUniqueId", result, nullptr);
            if (!status.ok()) return status.ToString();
            if (std::all_of(id.bytes, id.bytes + sizeof id.bytes, [](char c) { return c == 0; })) {
              return "empty";
            }
          }
          return std::equal(ids[0].bytes, ids[0].bytes + sizeof ids[0].bytes, ids[1].bytes)
                     ? "equal"
                     : "differ";
        }) == "differ");
}

std::string InitAlone(const LoadedNccl& nccl) {
  NcclUniqueId id{};
  if (nccl.api.ncclGetUniqueId(&id) != kNcclSuccess) return "no id";
  NcclConfig config;
  config.blocking = 1;
  NcclComm comm = nullptr;
  const NcclResult result = nccl.api.ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  if (result == kNcclSuccess) nccl.api.ncclCommAbort(comm);
  return NcclStatus(nccl.api, "ncclCommInitRankConfig", result, nullptr).ToString();
}

TEST_CASE(
    "real nccl: forming a group without a GPU fails with a cause, neither hangs nor crashes") {
  if (const auto why = WhyAbsent(); !why.empty()) return SkipTest(why);
  if (HasGpu()) return SkipTest("this machine has a GPU");
  const std::string text = WithNccl(InitAlone);
  INFO(text);
  CHECK(text.starts_with("INTERNAL: ncclCommInitRankConfig: unhandled cuda error"));
  // Without any driver, or with a driver and no device.
  CHECK((text == Contains("driver version is insufficient") ||
         text == Contains("no CUDA-capable device")));
}

// NVIDIA's own builds take a key although they are without TLS.
TEST_CASE("real nccl: our config of the encryption is taken, and a short key is refused") {
  if (const auto why = WhyAbsent(); !why.empty()) return SkipTest(why);
  CHECK(WithNccl([](const LoadedNccl& nccl) -> std::string {
          if (nccl.version < NcclVersionCode(2, 32, 0)) return "short OK";
          if (nccl.api.ncclSetEncryption == nullptr) return "it has no ncclSetEncryption";
          const auto set = [&nccl](const std::string& key) {
            NcclEncryptionConfig config;
            config.mode = NcclEncryptionConfig::kPsk;
            config.psk = key.c_str();
            const NcclResult result = nccl.api.ncclSetEncryption(&config);
            return NcclStatus(nccl.api, "ncclSetEncryption", result, nullptr);
          };
          const absl::Status refused = set(std::string(31, 'k'));
          const bool is_short = absl::IsInvalidArgument(refused) &&
                                refused.message().find("32 bytes") != std::string::npos;
          return (is_short ? "short " : refused.ToString()) + set(std::string(64, 'k')).ToString();
        }) == "short OK");
}

TEST_CASE("real nccl: what its file says of TLS is what it was built with") {
  if (const auto why = WhyAbsent(); !why.empty()) return SkipTest(why);
  if (NVIDIA_NCCL_LIBRARY[0] == '\0') return SkipTest("the system's NCCL may be of any build");
  CHECK(WithNccl([](const LoadedNccl& nccl) -> std::string {
          if (nccl.version < NcclVersionCode(2, 32, 0)) return "1";
          const std::string_view texts[] = {"libssl.so.3", "NCCL was built without TLS support"};
          const auto first = FirstTextOfFile(nccl.path, texts);
          return first ? std::to_string(*first) : "neither";
        }) == "1");
}

TEST_CASE("real nccl: wrong arguments are named as such") {
  if (const auto why = WhyAbsent(); !why.empty()) return SkipTest(why);
  const std::string text = WithNccl([](const LoadedNccl& nccl) {
    const NcclResult result =
        nccl.api.ncclAllReduce(nullptr, nullptr, 1, kNcclFloat32, kNcclSum, nullptr, nullptr);
    return NcclStatus(nccl.api, "ncclAllReduce", result, nullptr).ToString();
  });
  CHECK_MESSAGE(text.starts_with("INVALID_ARGUMENT: ncclAllReduce: invalid argument"), text);
}

}  // namespace
}  // namespace ddp::internal
