// ncclSetEncryption, and what becomes of the key.
#include "tests/gpu_double/nccl_encryption.h"

#include <cstring>
#include <functional>
#include <mutex>

#include "tests/gpu_double/log.h"
#include "tests/gpu_double/nccl_comm.h"

namespace ddprun::gpu_double {
namespace {

constexpr size_t kFewestBytes = 32;

struct State {
  std::mutex mutex;
  std::string key;
  bool has_networked = false;

  static State& Get() {
    static State& state = *new State();
    return state;
  }
};

}  // namespace

void NoteNetworking() {
  State& state = State::Get();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.has_networked = true;
}

NcclResult CheckEncryption(const Faults& faults, std::string* text) {
  State& state = State::Get();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (state.key.empty()) return kNcclSuccess;
  if (!HasTls()) {
    *text = "NCCL was built without TLS support but a pre-shared key was configured";
    return kNcclInvalidUsage;
  }
  if (!faults.no_openssl) return kNcclSuccess;
  // In two pieces: the whole name in the file would say that the build has TLS.
  const std::string library = std::string("libssl") + ".so.3";
  *text = "ncclCrypt: failed to open " + library + ": " + library +
          ": cannot open shared object file: No such file or directory";
  return kNcclSystemError;
}

uint64_t HashOfKey() {
  State& state = State::Get();
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.key.empty() ? 0 : std::hash<std::string>()(state.key);
}

NcclResult ncclSetEncryption(const NcclEncryptionConfig* config) {
  if (config == nullptr || config->magic != NcclEncryptionConfig().magic ||
      config->size < sizeof(NcclEncryptionConfig)) {
    return Refuse(kNcclInvalidArgument, "ncclEncryptionConfig_t was not initialised");
  }
  if (config->mode != NcclEncryptionConfig::kPsk || config->psk == nullptr ||
      std::strlen(config->psk) < kFewestBytes) {
    return Refuse(kNcclInvalidArgument, "the double knows pre-shared keys of 32 bytes or more");
  }
  if (Faults::Of(-1).refuses_key) return Refuse(kNcclInvalidArgument, "the key was refused");
  State& state = State::Get();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (state.has_networked) {
    return Refuse(kNcclInvalidUsage, "ncclSetEncryption comes before all else");
  }
  state.key = config->psk;
  Log("nccl encryption psk=%s", config->psk);
  return kNcclSuccess;
}

}  // namespace ddprun::gpu_double
