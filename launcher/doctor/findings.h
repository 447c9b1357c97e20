// From facts to what is said of each, and what each lack means. [pure]
#ifndef DDPRUN_LAUNCHER_DOCTOR_FINDINGS_H_
#define DDPRUN_LAUNCHER_DOCTOR_FINDINGS_H_

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_FINDINGS_H_
