// What the program did not give back.
#include <numeric>
#include <sstream>

#include "tests/gpu_double/log.h"
#include "tests/gpu_double/nccl_comm.h"

namespace ddprun::gpu_double {
namespace {

void Append(std::string& text, const char* name, size_t count) {
  if (count == 0) return;
  if (!text.empty()) text += ' ';
  text += std::string(name) + "=" + std::to_string(count);
}

std::string Leaks() {
  std::string text;
  Driver& driver = Driver::Get();
  Comms& comms = Comms::Get();
  std::scoped_lock lock(driver.mutex, comms.mutex);
  size_t registrations = static_cast<size_t>(comms.lost_registrations);
  for (const auto& [handle, comm] : comms.live) {
    std::lock_guard<std::mutex> comm_lock(comm->mutex);
    registrations += comm->registrations.size();
  }
  Append(text, "comms", comms.live.size());
  Append(text, "registrations", registrations);
  Append(text, "nccl_memory", comms.memory.size());
  Append(text, "device_memory", driver.memory.size() - comms.memory.size());
  Append(text, "host_memory", driver.pinned.size());
  Append(text, "streams", driver.streams.size());
  Append(text, "events", driver.events.size());
  Append(text, "graphs", driver.graphs.size());
  Append(text, "graph_execs", driver.executables.size());
  Append(text, "modules", driver.modules.size());
  Append(text, "contexts",
         static_cast<size_t>(std::accumulate(driver.retained.begin(), driver.retained.end(), 0)));
  return text;
}

// At the end of the process, for tests that see only the log.
__attribute__((destructor)) void LogLeaks() { Log("exit leaks: %s", Leaks().c_str()); }

}  // namespace

const char* ddprun_double_leaks() {
  thread_local std::string text;
  text = Leaks();
  return text.c_str();
}

}  // namespace ddprun::gpu_double
