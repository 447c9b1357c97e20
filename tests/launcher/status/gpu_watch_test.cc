// GpuWatch over a double of NVML: none of this has seen a GPU.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "launcher/status/gpu_facts.h"
#include "rendezvous/base/steady_clock.h"
#include "tests/support/in_child.h"
#include "tests/support/subprocess.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using testing::Eventually;

constexpr int64_t kGiB = int64_t{1} << 30;
// No look that ends lasts as long, on however slow a machine.
constexpr std::chrono::hours kPatience{1};

GpuWatch::Options OfDouble(const std::string& name = "libnvml_double.so") {
  return {.every = milliseconds(5),  // no limit: an interval
          .patience = kPatience,
          .library = testing::Runfile("tests/launcher/status/" + name),
          .device_files = {"/nowhere", "/dev/null"}};
}

// What `body` says of a watch over a library with this trouble.
std::string Told(const std::string& trouble, const std::function<std::string(GpuWatch&)>& body) {
  return testing::InChild({{"DDPRUN_TEST_NVML", trouble}}, [&]() -> std::string {
    GpuWatch watch(OfDouble());
    return body(watch);
  });
}

GpuReading Await(const GpuWatch& watch, const std::function<bool(const GpuReading&)>& is_it) {
  GpuReading reading;
  Eventually([&] { return is_it(reading = watch.Read(SteadyNow())); });
  return reading;
}

// Judged when patience is over, of a call that has lasted for a while.
GpuReading AwaitHang(const GpuWatch& watch) {
  constexpr milliseconds kAWhile{50};  // lower bound: it never ends
  const double hang_s = std::chrono::duration<double>(kPatience + kAWhile).count();
  GpuReading reading;
  Eventually([&] { return (reading = watch.Read(SteadyNow() + kPatience)).hang_s > hang_s; });
  return reading;
}

bool HasGpus(const GpuReading& reading) { return !reading.gpus.empty(); }

TEST_CASE("gpu watch: without a driver's device file there is no thread and nothing is loaded") {
  GpuWatch::Options options = OfDouble();
  options.device_files = {"/nowhere"};
  const GpuWatch watch(options);
  CHECK_FALSE(watch.has_thread());
  CHECK(watch.Read(SteadyNow()) == GpuReading{});
}

TEST_CASE("gpu watch: what the library tells of two GPUs") {
  GpuWatch watch(OfDouble());
  const GpuReading reading = Await(watch, HasGpus);
  REQUIRE(reading.gpus.size() == 2);
  const GpuFacts first{.view = {.index = 0,
                                .name = "NVIDIA H100\\x1b[2J",
                                .utilisation = 0.97,
                                .memory_used = 60 * kGiB,
                                .memory_total = 80 * kGiB,
                                .temperature = 55,
                                .throttle = "software power cap"},
                       .throttle_reasons = 5,
                       .uses = {{.pid = 1000, .memory = kGiB}, {.pid = 1001}}};
  CHECK(reading.gpus[0] == first);
  CHECK(reading.gpus[1].view.throttle == "hardware thermal slowdown");
  CHECK(reading.gpus[1].view.temperature == 91);
  CHECK(reading.gpus[1].view.xids == std::vector<int>{45, 79, 94});
  CHECK(reading.gpus[1].uses[0].pid == 2000);
}

TEST_CASE("gpu watch: a driver of before R535 and without events") {
  GpuWatch watch(OfDouble("libnvml_double_old.so"));
  const GpuReading reading = Await(watch, HasGpus);
  REQUIRE(reading.gpus.size() == 2);
  CHECK(reading.gpus[1].view.throttle == "hardware thermal slowdown");
  CHECK(reading.gpus[1].view.xids.empty());
  CHECK(reading.gpus[1].uses.size() == 2);
}

TEST_CASE("gpu watch: a library that is not there, or does not serve, is told") {
  GpuWatch::Options options = OfDouble();
  options.library = "/nowhere/libnvml.so";
  const auto has_error = [](const GpuReading& reading) { return !reading.error.empty(); };
  {
    GpuWatch watch(options);
    CHECK(Await(watch, has_error).error.starts_with("NVML: /nowhere/libnvml.so"));
  }
  options = OfDouble("libnvml_double_broken.so");
  {
    GpuWatch watch(options);
    const std::string error = Await(watch, has_error).error;
    CHECK(error.ends_with(": it has no nvmlDeviceGetName"));
  }
  CHECK(Told("init_fails", [&](GpuWatch& watch) { return Await(watch, has_error).error; }) ==
        "nvmlInit: nvmlReturn_t 9");
}

TEST_CASE("gpu watch: an initialisation that hangs is told, and held by nobody") {
  const std::string told = Told("init_hangs", [](GpuWatch& watch) {
    const GpuReading reading = AwaitHang(watch);
    return std::to_string(reading.gpus.size()) + " " + GpuProblems(reading)[0].kind;
  });
  CHECK(told == "0 gpu");
}

TEST_CASE("gpu watch: a look that hangs leaves what cannot have changed") {
  const std::string told = Told("look_hangs", [](GpuWatch& watch) -> std::string {
    const GpuReading before = Await(watch, HasGpus);
    if (!before.gpus[0].view.utilisation) return "no utilisation before";
    const GpuReading reading = AwaitHang(watch);
    if (reading.gpus.size() != 2) return "no GPUs";
    const GpuFacts& gpu = reading.gpus[1];
    if (gpu.view.utilisation || gpu.view.temperature || gpu.throttle_reasons != 0) return "stale";
    return gpu.view.name.substr(0, 11) + " " + std::to_string(gpu.view.xids.size());
  });
  CHECK(told == "NVIDIA H100 3");
}

TEST_CASE("gpu watch: a call that hangs keeps it from being idle, one that ends does not") {
  const auto is_idle_at_last = [](GpuWatch& watch) -> std::string {
    watch.End();
    return Eventually([&] { return watch.is_idle(); }) ? "idle" : "busy";
  };
  CHECK(Told("", is_idle_at_last) == "idle");
  for (const char* trouble : {"init_hangs", "look_hangs"}) {
    const std::string told = Told(trouble, [&](GpuWatch& watch) -> std::string {
      AwaitHang(watch);
      watch.End();
      return watch.is_idle() ? "idle" : "busy";
    });
    CHECK(told == "busy");
  }
}

TEST_CASE("gpu watch: what fails is not known, and the rest is") {
  const std::string told = Told("all_fail", [](GpuWatch& watch) -> std::string {
    const GpuReading reading = Await(watch, HasGpus);
    const GpuFacts& gpu = reading.gpus[0];
    const bool is_unknown = !gpu.view.utilisation && !gpu.view.memory_used &&
                            !gpu.view.temperature && gpu.view.throttle.empty() && gpu.uses.empty();
    return std::string(is_unknown ? "unknown" : "known") + (gpu.is_lost ? " lost" : "");
  });
  CHECK(told == "unknown");
}

TEST_CASE("gpu watch: a lost GPU keeps its place and its errors") {
  const std::string told = Told("lost", [](GpuWatch& watch) {
    const GpuReading reading = Await(watch, HasGpus);
    std::string text = reading.gpus[0].is_lost ? "first lost " : "";
    for (const Problem& problem : GpuProblems(reading)) {
      text += problem.text.substr(problem.text.find(") ") + 2) + "; ";
    }
    return text;
  });
  CHECK(told ==
        "reported XID 79: it has fallen off the bus: it needs a reset, or the machine a restart; "
        "reported XID 94: an uncorrectable memory error, contained: its program ended and others "
        "may go on; is lost: the driver reaches it no more; ");
}

TEST_CASE("gpu watch: a driver without GPUs, and a GPU with a crowd on it") {
  CHECK(Told("none", [](GpuWatch& watch) {
          return std::to_string(watch.Read(SteadyNow()).gpus.size());
        }) == "0");
  CHECK(Told("crowded", [](GpuWatch& watch) {
          return std::to_string(Await(watch, HasGpus).gpus[0].uses.size());
        }) == "100");
}

}  // namespace
}  // namespace ddprun::launcher
