#include "ddp/step_metrics.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "rendezvous/base/check.h"
#include "worker_runtime/comm/device_timer.h"
#include "worker_runtime/counters.h"
#include "worker_runtime/milliseconds_text.h"

namespace ddp {

using std::chrono::nanoseconds;

namespace {

// Steps whose times are awaited. Of a host that is further ahead of its GPU some do not count.
constexpr size_t kMaxEnded = 64;

// One of this process tells the launcher.
std::atomic<bool> is_told = false;

// Null: another one tells, or nobody wants to know.
internal::Counters* CountersToTell() {
  internal::Counters* const counters = internal::Counters::OfThisProcess();
  return counters == nullptr || is_told.exchange(true) ? nullptr : counters;
}

}  // namespace

nanoseconds ReductionTimes::Exposed() const {
  return std::max(nanoseconds(0), nanoseconds(communication_end - backward_end));
}

StepMetrics::StepMetrics(int world_size) : counters_(CountersToTell()), world_size_(world_size) {
  DDP_CHECK(world_size >= 1);
}

StepMetrics::StepMetrics(Communicator& communicator, Stream stream)
    : counters_(CountersToTell()),
      world_size_(communicator.world_size()),
      timer_(communicator.device_timer()),
      stream_(stream) {}

StepMetrics::~StepMetrics() {
  if (counters_ != nullptr) is_told = false;
}

void StepMetrics::BeginStep() {
  begin_ = Clock::now();
  if (timer_ != nullptr) device_begin_ = timer_->Mark(stream_);
}

void StepMetrics::EndStep(int64_t samples, const ReductionTimes& reduction) {
  if (timer_ == nullptr) return Add(samples, Clock::now() - begin_, reduction);
  Ended step{.begin = std::move(device_begin_),
             .end = timer_->Mark(stream_),
             .samples = samples,
             .reduction = reduction};
  if (step.begin == nullptr || step.end == nullptr) return;
  Collect();
  if (ended_.size() < kMaxEnded) ended_.push_back(std::move(step));
}

void StepMetrics::Collect() {
  while (!ended_.empty()) {
    const Ended& step = ended_.front();
    const std::optional<Clock::time_point> end = step.end->Time();
    if (!end.has_value()) return;
    const std::optional<Clock::time_point> begin = step.begin->Time();
    if (begin.has_value()) Add(step.samples, *end - *begin, step.reduction);
    ended_.pop_front();
  }
}

void StepMetrics::Add(int64_t samples, nanoseconds step, const ReductionTimes& reduction) {
  ++sums_.steps;
  sums_.samples += samples;
  sums_.time += step;
  if (knows_communication() || reduction.communication_end != Clock::time_point()) {
    sums_.measured_time += step;
  }
  sums_.communication += reduction.communication;
  sums_.exposed += reduction.Exposed();
  if (counters_ == nullptr) return;
  // Before the step, which whoever reads it looks at first.
  counters_->AddExposed(reduction.Exposed());
  if (!counters_->has_program_told()) counters_->ReportStep(++told_steps_, samples);
}

void StepMetrics::Reset() {
  sums_ = {};
  ended_.clear();
}

double StepMetrics::samples_per_second() const {
  if (sums_.time <= nanoseconds(0)) return 0;
  return static_cast<double>(sums_.samples) * world_size_ * 1e9 /
         static_cast<double>(sums_.time.count());
}

double StepMetrics::ShareOf(nanoseconds part) const {
  if (sums_.measured_time <= nanoseconds(0)) return 0;
  return static_cast<double>(part.count()) / static_cast<double>(sums_.measured_time.count());
}

double StepMetrics::step_ms() const {
  return sums_.steps == 0
             ? 0
             : static_cast<double>(sums_.time.count()) / 1e6 / static_cast<double>(sums_.steps);
}

// Steps that are not measured are taken to be like the others.
double StepMetrics::communication_ms() const { return ShareOf(sums_.communication) * step_ms(); }
double StepMetrics::exposed_ms() const { return ShareOf(sums_.exposed) * step_ms(); }

double StepMetrics::exposed_communication_share() const {
  return std::min(1.0, ShareOf(sums_.exposed));
}

std::string StepMetrics::Summary() const {
  if (sums_.steps > 0 && world_size_ > 1 && !knows_communication()) {
    return absl::StrFormat("%.0f samples/s, step %s, communication not measured",
                           samples_per_second(), internal::MillisecondsText(step_ms()));
  }
  return absl::StrFormat(
      "%.0f samples/s, step %s, communication %s, exposed %s (%.1f %%)", samples_per_second(),
      internal::MillisecondsText(step_ms()), internal::MillisecondsText(communication_ms()),
      internal::MillisecondsText(exposed_ms()), 100 * exposed_communication_share());
}

std::string StepMetrics::Warning(int hosts) const {
  if (exposed_communication_share() <= kExposedShareWarning) return "";
  return absl::StrFormat(
      "%.1f %% of the step is exposed communication (%.2f of %.2f ms; at most %.0f %% is good): "
      "larger batches%s would help",
      100 * exposed_communication_share(), exposed_ms(), step_ms(), 100 * kExposedShareWarning,
      hosts > 1 ? ", more accumulation or a faster network" : " or more accumulation");
}

}  // namespace ddp
