#include "ddp/step_metrics.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "rendezvous/base/check.h"

namespace ddp {

using std::chrono::nanoseconds;

nanoseconds ReductionTimes::Exposed() const {
  return std::max(nanoseconds(0), nanoseconds(communication_end - backward_end));
}

StepMetrics::StepMetrics(int world_size) : world_size_(world_size) { DDP_CHECK(world_size >= 1); }

void StepMetrics::BeginStep() { begin_ = Clock::now(); }

void StepMetrics::EndStep(int64_t samples, const ReductionTimes& reduction) {
  Add(samples, Clock::now() - begin_, reduction);
}

void StepMetrics::Add(int64_t samples, nanoseconds step, const ReductionTimes& reduction) {
  ++steps_;
  samples_ += samples;
  time_ += step;
  communication_ += reduction.communication;
  exposed_ += reduction.Exposed();
}

void StepMetrics::Reset() { *this = StepMetrics(world_size_); }

double StepMetrics::samples_per_second() const {
  if (time_ <= nanoseconds(0)) return 0;
  return static_cast<double>(samples_) * world_size_ * 1e9 / static_cast<double>(time_.count());
}

double StepMetrics::MeanMs(nanoseconds total) const {
  return steps_ == 0 ? 0 : static_cast<double>(total.count()) / 1e6 / static_cast<double>(steps_);
}

double StepMetrics::step_ms() const { return MeanMs(time_); }
double StepMetrics::communication_ms() const { return MeanMs(communication_); }
double StepMetrics::exposed_ms() const { return MeanMs(exposed_); }

double StepMetrics::exposed_communication_share() const {
  if (time_ <= nanoseconds(0)) return 0;
  return std::min(1.0, static_cast<double>(exposed_.count()) / static_cast<double>(time_.count()));
}

std::string StepMetrics::Summary() const {
  return absl::StrFormat(
      "%.0f samples/s, step %.2f ms, communication %.2f ms, exposed %.2f ms (%.1f %%)",
      samples_per_second(), step_ms(), communication_ms(), exposed_ms(),
      100 * exposed_communication_share());
}

std::string StepMetrics::Warning() const {
  if (exposed_communication_share() <= kExposedShareWarning) return "";
  return absl::StrFormat(
      "%.1f %% of the step is exposed communication (%.2f of %.2f ms; at most %.0f %% is good): "
      "larger batches, more accumulation or a faster network would help",
      100 * exposed_communication_share(), exposed_ms(), step_ms(), 100 * kExposedShareWarning);
}

}  // namespace ddp
