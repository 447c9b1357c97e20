// The events of --event_file: what each means, with the members that EventLine writes.
#ifndef DDPRUN_TOOLS_REFERENCE_PROGRAM_EVENTS_H_
#define DDPRUN_TOOLS_REFERENCE_PROGRAM_EVENTS_H_

#include <string>
#include <vector>

#include "launcher/report/job_event.h"

namespace ddprun::reference {

// One of each kind that EventLine names, with default values.
std::vector<launcher::JobEvent> EveryEvent();

// Of the members that each line begins with.
inline constexpr size_t kHeadMembers = 7;

// The table of events and their members. An event without a description here ends the program.
std::string EventsText();

}  // namespace ddprun::reference

#endif  // DDPRUN_TOOLS_REFERENCE_PROGRAM_EVENTS_H_
