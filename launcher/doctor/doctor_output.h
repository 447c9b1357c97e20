// What is said of the facts, what each lack means, and the doctor's two forms of output. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_DOCTOR_OUTPUT_H_
#define DDPRUN_LAUNCHER_DOCTOR_DOCTOR_OUTPUT_H_

#include <string>
#include <vector>

#include "launcher/doctor/doctor_facts.h"

namespace ddprun::launcher {

struct Finding {
  std::string subject;  // "driver", "gpu 0", "/dev/shm"
  std::string value;
  std::string advice;  // what a lack means and what to do, one line; empty: nothing is lacking
};

// In the order they are shown.
std::vector<Finding> FindingsOf(const DoctorFacts& facts);

// "139.8 GiB", "64 MiB", "8 KiB".
std::string BytesText(uint64_t bytes);

// For people: a line for each thing that was looked at, its advice below it, the verdict last.
std::string DoctorText(const DoctorFacts& facts);

// For programs: one object. What was not found is null; sizes are bytes; no limit is null.
std::string DoctorJson(const DoctorFacts& facts);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_DOCTOR_OUTPUT_H_
