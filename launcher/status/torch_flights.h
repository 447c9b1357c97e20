// What PyTorch's flight recorder tells of a rank's process groups.
#ifndef DDPRUN_LAUNCHER_STATUS_TORCH_FLIGHTS_H_
#define DDPRUN_LAUNCHER_STATUS_TORCH_FLIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

// `json` is one of the worker server's FlightRecords, of version 2 of the recorder (PyTorch 2.5 and
// newer), at `unix_now_ns` on the rank's machine. A group is left out whose ranks it does
// not tell (with Gloo all but the default one), or whose last collective it has forgotten; what is
// no such answer has none.
std::vector<GroupView> GroupsOfFlights(const std::string& json, int rank, int world_size,
                                       int64_t unix_now_ns);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STATUS_TORCH_FLIGHTS_H_
