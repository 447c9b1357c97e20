// The file that one coordinator leaves to the next: "ddprun-job 1 ...", a line feed, a verdict as
// on the wire. The checksum at the line's end is put there here: no mutation would find it.
#include "rendezvous/server/job_file.h"

#include <stdlib.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "rendezvous/base/fnv1a.h"
#include "tests/fuzz/promise.h"

namespace ddprun::rendezvous {
namespace {

using fuzz::Promise;

// In $TMPDIR, which whoever runs this removes.
std::string MakeFolder() {
  const char* const base = getenv("TMPDIR");
  std::string folder = std::string(base == nullptr ? "/tmp" : base) + "/job-XXXXXX";
  Promise(mkdtemp(folder.data()) != nullptr, "there is a folder for the job's file");
  return folder;
}

void Write(const std::string& run_dir, std::string_view text) {
  std::filesystem::create_directory(run_dir);
  std::ofstream(run_dir + "/job", std::ios::binary) << text;
}

std::string WithChecksum(std::string_view text) {
  const std::string_view values = text.substr(0, text.find('\n'));
  const std::string_view rest = text.substr(std::min(values.size() + 1, text.size()));
  Fnv1a checksum;
  checksum.Add(values.data(), values.size());
  checksum.Add(rest.data(), rest.size());
  char hex[20];
  std::snprintf(hex, sizeof(hex), " %016llx\n", static_cast<unsigned long long>(checksum.value()));
  return std::string(values) + hex + std::string(rest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string run_dir = MakeFolder() + "/run";
  Write(run_dir, WithChecksum(fuzz::TextOf(data, size)));
  const absl::StatusOr<Beginning> began = BeginJob(run_dir);
  Promise(began.ok(), "whatever the file holds, a job begins", began.status().ToString());
  Promise(began->instance.is_known(), "a job that begins knows its instance");
  const absl::StatusOr<Beginning> again = BeginJob(run_dir);
  Promise(again.ok(), "a job begins again", again.status().ToString());
  // No coordinator counts that far.
  const bool is_last = began->epoch == Epoch{UINT64_MAX};
  Promise(is_last || again->epoch > began->epoch, "the next coordinator's epoch is greater");
  // A new instance is not written before a node has heard it.
  if (is_last || !began->is_remembered) return 0;
  Promise(again->is_remembered && again->instance == began->instance &&
              again->restart_count == began->restart_count && again->verdict == began->verdict,
          "the next coordinator remembers what this one did");
  return 0;
}

}  // namespace ddprun::rendezvous
