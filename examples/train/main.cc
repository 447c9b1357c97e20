// Learns to read digits, on as many processes as the launcher starts; also without a launcher.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "ddp/ddp.h"
#include "examples/train/agree_on_status.h"
#include "examples/train/cpu_network.h"
#include "examples/train/exit_codes.h"
#include "examples/train/idx_data.h"
#include "examples/train/make_network.h"
#include "examples/train/options.h"
#include "examples/train/signal_watch.h"
#include "examples/train/summary.h"
#include "examples/train/trainer.h"

namespace {

// The other ranks, or the network between: not this rank's fault.
bool IsCommunicationError(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsAborted(status) || absl::IsInternal(status);
}

// Every rank that fails says why, also where all fail of the same: the launcher reports the rank
// that ends first, with what that one wrote, and which it is only chance decides.
int Fail(const ddp::ProcessGroup& group, const absl::Status& status) {
  const std::string message(status.message());
  if (IsCommunicationError(status)) {
    std::fprintf(stderr, "train: rank %d: %s\n", group.rank(), message.c_str());
    return EXIT_FAILURE;
  }
  std::fprintf(stderr, "train: %s\n", message.c_str());
  return train::kExitMachine;
}

struct Data {
  train::ImageSet training, test;
};

absl::StatusOr<Data> Load(const std::string& directory) {
  Data data;
  for (const auto& [name, set] :
       {std::pair("train", &data.training), std::pair("t10k", &data.test)}) {
    absl::StatusOr<train::ImageSet> loaded = train::LoadImageSet(directory, name);
    if (!loaded.ok()) return loaded.status();
    *set = *std::move(loaded);
  }
  if (data.training.size == data.test.size) return data;
  return absl::DataLossError("\"" + directory + "\": the training images are " +
                             std::to_string(data.training.size) + " pixels wide, the test images " +
                             std::to_string(data.test.size));
}

// What the run is made of; only rank 0 tells.
absl::StatusOr<ddp::RunRecord> MakeRecord(ddp::ProcessGroup& group, const Data& data,
                                          const std::vector<std::string>& arguments) {
  if (group.rank() != 0) return ddp::RunRecord();
  ddp::RunRecord record = ddp::MakeRunRecord(group, arguments);
  record.versions.emplace_back("Eigen", train::EigenVersion());
  for (const train::ImageSet* set : {&data.training, &data.test}) {
    for (const std::string& path : set->files) {
      absl::StatusOr<ddp::DataFile> file = ddp::DescribeDataFile(path);
      if (!file.ok()) return file.status();
      record.data.push_back(*std::move(file));
    }
  }
  return record;
}

int RunRank(const train::Options& options, ddp::ProcessGroup& group,
            const std::vector<std::string>& arguments, train::SignalWatch& signals) {
  ddp::Communicator& communicator = group.communicator();
  const absl::StatusOr<Data> data = Load(options.data);
  absl::Status status = train::AgreeOnStatus(communicator.host(), data.status());
  if (!status.ok()) return Fail(group, status);

  absl::StatusOr<ddp::RunRecord> record = MakeRecord(group, *data, arguments);
  status = train::AgreeOnStatus(communicator.host(), record.status());
  if (!status.ok()) return Fail(group, status);

  // Before it computes, a rank knows that all can.
  absl::StatusOr<std::unique_ptr<train::Network>> network =
      train::MakeNetwork(options, group, data->training.pixels_per_image());
  status = train::AgreeOnStatus(communicator.host(), network.status());
  if (!status.ok()) return Fail(group, status);
  if (group.rank() == 0) std::printf("%s\n", group.description().c_str());

  train::Trainer trainer(
      options, communicator, *std::move(network), [&group] { return group.ShouldStop(); },
      data->training, data->test, stdout, *std::move(record));
  signals.SetLastWord([&trainer](int signal) { trainer.EndedBy(signal); });
  absl::StatusOr<train::Summary> summary = trainer.Run();
  signals.SetLastWord(nullptr);
  if (!summary.ok()) return Fail(group, summary.status());
  if (group.rank() == 0 && !options.summary_file.empty()) {
    summary->restart_count = group.restart_count();
    status = train::WriteSummary(*summary, options.summary_file);
    if (!status.ok()) return Fail(group, status);
  }
  status = group.Shutdown();
  return status.ok() ? EXIT_SUCCESS : Fail(group, status);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // also into a pipe, line by line
  const std::variant<train::Options, int> parsed = train::ParseOptions(argc, argv);
  if (const int* exit_code = std::get_if<int>(&parsed)) return *exit_code;
  const train::Options& options = std::get<train::Options>(parsed);
  ddp::ReportPhase(ddp::Phase::kStart);
  train::SignalWatch signals;
  const absl::StatusOr<std::unique_ptr<ddp::ProcessGroup>> group =
      ddp::ProcessGroup::FromEnv({.backend = options.backend,
                                  .timeout = std::chrono::seconds(options.comm_timeout),
                                  .device = options.device});
  if (!group.ok()) {
    const char* rank = std::getenv("RANK");
    std::fprintf(stderr, "train: rank %s: %s\n", rank == nullptr ? "0" : rank,
                 std::string(group.status().message()).c_str());
    // A GPU, a library or a driver that is not there.
    return absl::IsFailedPrecondition(group.status()) ? train::kExitMachine : EXIT_FAILURE;
  }
  return RunRank(options, **group, {argv, argv + argc}, signals);
}
