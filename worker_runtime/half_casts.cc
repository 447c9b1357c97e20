#include "worker_runtime/half_casts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_runtime/agree_on_status.h"
#include "worker_runtime/comm/kernels.h"

namespace ddp::internal {
namespace {

// The kernels that the CPU collectives round with.
class CpuHalfCasts final : public HalfCasts {
 public:
  explicit CpuHalfCasts(DType type) : type_(type) {}

  absl::Status Narrow(const float* input, void* output, size_t count, int divisor,
                      Stream) override {
    BestKernels().store(type_, input, output, count, divisor);
    return absl::OkStatus();
  }
  absl::Status Widen(const void* input, float* output, size_t count, Stream) override {
    BestKernels().load(type_, input, output, count);
    return absl::OkStatus();
  }

 private:
  const DType type_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HalfCasts>> MakeHalfCasts(Communicator& communicator, DType type) {
  if (communicator.device_type() == DeviceType::kCpu) return std::make_unique<CpuHalfCasts>(type);
  absl::StatusOr<std::unique_ptr<HalfCasts>> casts = communicator.MakeHalfCasts(type);
  absl::Status mine = casts.status();
  if (!mine.ok()) {
    mine = absl::Status(mine.code(),
                        absl::StrCat("rank ", communicator.rank(), " cannot cast gradients to ",
                                     Name(type), ": ", mine.message()));
  }
  absl::Status status = AgreeOnStatus(communicator.host(), mine);
  if (!status.ok()) return status;
  return casts;
}

}  // namespace ddp::internal
