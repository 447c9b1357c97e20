// The folder of `ddprun dump`: what is known of this node's ranks, each file readable by itself.
#ifndef DDPRUN_LAUNCHER_DUMP_DUMP_FOLDER_H_
#define DDPRUN_LAUNCHER_DUMP_DUMP_FOLDER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/dump/process_reading.h"
#include "launcher/dump/roll_call.h"
#include "launcher/dump/stack_reader.h"
#include "rendezvous/base/time.h"

namespace ddprun::launcher {

struct DumpProcess {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;  // 0: it has ended
};

struct DumpRequest {
  std::string folder;  // made here, for its owner alone; what it stands in is there already
  // Where it cannot be made: the first of these in which one of its name can.
  std::vector<std::string> other_places{};
  std::string run_id;
  std::string host;
  std::vector<DumpProcess> processes;
  StackTools tools;
  // Where the library writes its flight records (DDPRUN_FLIGHT_RECORDER_DIR, TMPDIR); empty: none
  // are taken.
  std::string flight_folder;
  TimePoint deadline;  // for the stacks; files are written after it too
};

struct DumpResult {
  // The first error, naming the file: the folder is there already, the disk is full. What could be
  // written has been.
  absl::Status status;
  std::string folder;            // that was made; empty: none could be
  std::string why_there;         // the error of the one asked for, where that is in another place
  std::vector<RankStack> ranks;  // by rank; known also where nothing could be written
  std::string sentence;          // the roll call's
};

// Writes rank-3/{stack,status,environment}.txt for each process, roll_call.txt, summary.json, and
// into rank-3 the flight records that bear its pid. Waits and touches files: a file thread's work.
DumpResult WriteDump(const DumpRequest& request);

// summary.json. `time` is in UTC, `errors` are those of writing.
std::string DumpSummary(const DumpRequest& request, const DumpResult& result,
                        const std::vector<ProcessReading>& readings, const std::string& time,
                        const std::vector<std::string>& errors);

// "stacks are in F", with what kept them from another place.
std::string DumpPlaceText(const std::string& folder, const std::string& why_there);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DUMP_DUMP_FOLDER_H_
