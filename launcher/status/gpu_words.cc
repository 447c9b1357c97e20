#include "launcher/status/gpu_words.h"

namespace ddprun::launcher {
namespace {

struct Xid {
  int number;
  const char* meaning;
};

// After "Xid Errors" and its "Xid Catalog", https://docs.nvidia.com/deploy/xid-errors/. Which of
// program, driver and hardware is to blame is a guess there too, but for those that say so.
constexpr Xid kXids[] = {
    {8, "it stopped processing"},
    {13, "a program's kernel went wrong, as by an index out of bounds"},
    {31, "a program accessed memory that it does not have (page fault)"},
    {32, "corrupted commands, or trouble on the PCIe bus"},
    {43, "a program's error stopped its work; the GPU is in order"},
    {45, "work was removed after the end of its program"},
    {48, "an uncorrectable memory error (double-bit ECC)"},
    {61, "its microcontroller stopped"},
    {62, "its microcontroller halted"},
    {63, "a broken piece of memory will be replaced at the next reset"},
    {64, "a broken piece of memory could not be recorded for replacement"},
    {69, "a program's commands went wrong (graphics engine class)"},
    {74, "an error of NVLink, at this end or the other"},
    {79, "it has fallen off the bus: it needs a reset, or the machine a restart"},
    {92, "many correctable memory errors (single-bit ECC)"},
    {94, "an uncorrectable memory error, contained: its program ended and others may go on"},
    {95, "an uncorrectable memory error, not contained: it needs a reset"},
    {109, "a program could not be switched away from in time"},
    {110, "a security fault: it needs a reset"},
    {119, "its system processor (GSP) did not answer"},
    {120, "an error of its system processor (GSP)"},
    {121, "a corrected error of the link between its chips (C2C)"},
    {122, "its flash memory could not be read"},
    {123, "its flash memory could not be written"},
    {124, "its flash memory could not be erased"},
    {140, "an uncorrectable memory error that was not handled: it needs a reset"},
};

struct Reason {
  uint64_t bit;
  const char* text;
};
constexpr Reason kReasons[] = {
    {kHardwareThermal, "hardware thermal slowdown"}, {kHardwarePowerBrake, "hardware power brake"},
    {kSoftwareThermal, "software thermal slowdown"}, {kSoftwarePowerCap, "software power cap"},
    {kSyncBoost, "sync boost with other GPUs"},
};

}  // namespace

std::string ThrottleText(uint64_t reasons) {
  std::string text;
  for (const Reason& reason : kReasons) {
    if ((reasons & reason.bit) == 0) continue;
    if (!text.empty()) text += ", ";
    text += reason.text;
  }
  // Set with the more exact ones, and alone where the GPU cannot tell them apart.
  const bool is_told = (reasons & (kHardwareThermal | kHardwarePowerBrake)) != 0;
  if ((reasons & kHardwareSlowdown) == 0 || is_told) return text;
  return text.empty() ? "hardware slowdown" : "hardware slowdown, " + text;
}

bool IsThrottleProblem(uint64_t reasons) {
  return (reasons &
          (kHardwareSlowdown | kHardwareThermal | kHardwarePowerBrake | kSoftwareThermal)) != 0;
}

std::string XidMeaning(int xid) {
  for (const Xid& known : kXids) {
    if (known.number == xid) return known.meaning;
  }
  return "";
}

bool IsXidProblem(int xid) { return xid != 45; }

}  // namespace ddprun::launcher
