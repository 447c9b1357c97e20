// The trainer as users start it, without the launcher: processes, shared memory and sockets.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <thread>

#include "launcher/process/exit_status.h"
#include "tests/examples/train/job.h"
#include "tests/examples/train/step_losses.h"
#include "tests/support/contains.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::testing {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

constexpr char kTrain[] = "examples/train/train";
constexpr char kMakeDigits[] = "tools/make_digits/make_digits";

// 600 + 100 digits, drawn once.
const std::string& Data() {
  static const TempDir dir;
  static const std::string path = [] {
    Subprocess draw({kMakeDigits, dir.File("digits"), "--train=600", "--test", "100"});
    REQUIRE(draw.Wait() == 0);
    return dir.File("digits");
  }();
  return path;
}

// The value of a field of the summary, as text.
std::string Field(const std::string& json, const std::string& name) {
  const size_t begin = json.find("\"" + name + "\": ");
  REQUIRE_MESSAGE(begin != std::string::npos, json);
  const size_t value = begin + name.size() + 4;
  return json.substr(value, json.find_first_of(",\n", value) - value);
}

Strings Command(const Strings& more) {
  Strings args = {kTrain, "--data", Data(), "--epochs", "2", "--hidden", "32"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// Runs to a good end and returns the summary.
std::string Succeed(const TempDir& dir, int world_size, Strings more) {
  more.insert(more.end(), {"--summary_file", dir.File("summary.json")});
  Job job(world_size, Command(more));
  const std::vector<int> codes = job.Wait();
  REQUIRE_MESSAGE(codes == std::vector<int>(world_size, 0), job.Stderr());
  return ReadFile(dir.File("summary.json"));
}

TEST_CASE("train: 1, 2 and 4 ranks have the same losses, and shm and tcp the same bits") {
  TempDir dir;
  const std::string alone =
      Succeed(dir, 1, {"--batch_size", "20", "--step_log", dir.File("alone")});
  CHECK(Field(alone, "backend") == "\"local\"");
  CHECK(Field(alone, "steps") == "60");
  const std::vector<double> expected = StepLosses(dir.File("alone"));
  REQUIRE(expected.size() == 60);
  for (const int world_size : {2, 4}) {
    Strings hashes;
    for (const std::string backend : {"shm", "tcp"}) {
      INFO(world_size, " ranks, ", backend);
      const std::string log = dir.File(backend + std::to_string(world_size));
      const std::string summary = Succeed(dir, world_size,
                                          {"--batch_size", std::to_string(20 / world_size),
                                           "--backend", backend, "--step_log", log});
      CHECK(Field(summary, "backend") == "\"" + backend + "\"");
      CHECK(Field(summary, "world_size") == std::to_string(world_size));
      hashes.push_back(Field(summary, "parameters_checksum"));
      // "loss" comes first in the first epoch.
      const double mean = std::stod(Field(summary, "loss"));
      CHECK(std::abs(mean - std::stod(Field(alone, "loss"))) < 2e-3 * mean);
      const std::vector<double> losses = StepLosses(log);
      REQUIRE(losses.size() == 60);
      for (int step = 0; step < 20; ++step) {
        INFO("step ", step, ": ", losses[step], ", alone ", expected[step]);
        CHECK(std::abs(losses[step] - expected[step]) < 1e-5 * expected[step]);
      }
    }
    CHECK(hashes[0].size() == 34);
    CHECK(hashes[0] == hashes[1]);
  }
}

TEST_CASE("train: compressed gradients learn as well, and shm and tcp give the same bits") {
  TempDir dir;
  const std::string plain =
      Succeed(dir, 2, {"--batch_size", "10", "--step_log", dir.File("plain")});
  const std::vector<double> expected = StepLosses(dir.File("plain"));
  REQUIRE(expected.size() == 60);
  for (const std::string compression : {"bf16", "fp16"}) {
    Strings hashes;
    for (const std::string backend : {"shm", "tcp"}) {
      INFO(compression, " over ", backend);
      const std::string log = dir.File(backend + compression);
      const std::string summary = Succeed(dir, 2,
                                          {"--batch_size", "10", "--backend", backend,
                                           "--compression", compression, "--step_log", log});
      hashes.push_back(Field(summary, "parameters_checksum"));
      CHECK(hashes.back() != Field(plain, "parameters_checksum"));
      const std::vector<double> losses = StepLosses(log);
      REQUIRE(losses.size() == 60);
      CHECK(losses[0] == expected[0]);  // before the first gradient
      // Each gradient is off by up to 2^-8 (bf16) or 2^-11 of itself, and the weights drift apart;
      // 20 steps on, losses differ by 1.3 % and 0.1 %.
      const double tolerance = compression == "bf16" ? 0.05 : 0.01;
      for (int step = 0; step < 20; ++step) {
        INFO("step ", step, ": ", losses[step], ", uncompressed ", expected[step]);
        CHECK(std::abs(losses[step] - expected[step]) < tolerance * expected[step]);
      }
      const double mean = std::stod(Field(summary, "loss"));
      CHECK(std::abs(mean - std::stod(Field(plain, "loss"))) < tolerance * mean);
    }
    CHECK(hashes[0] == hashes[1]);
  }
}

TEST_CASE("train: without a launcher it is a group of one") {
  Subprocess train(Command({}));
  CHECK(train.Wait() == 0);
  CHECK(train.out() == Contains("1 rank (local)"));
  CHECK(train.out() == Contains("epoch 2/2: loss "));
  CHECK(train.out() == Contains("\ncheckpoint: none\n"));
}

TEST_CASE("train: with nothing but defaults 95 % of unseen digits are read after three epochs") {
  TempDir dir;
  Subprocess draw({kMakeDigits, dir.File("digits")});
  REQUIRE(draw.Wait() == 0);
  const std::string summary = dir.File("summary.json");
  Subprocess train(
      {kTrain, "--data", dir.File("digits"), "--epochs", "3", "--summary_file", summary});
  REQUIRE_MESSAGE(train.Wait() == 0, train.err());
  const std::string json = ReadFile(summary);
  const std::string last = json.substr(json.find("\"epoch\": 3"));
  CHECK_MESSAGE(std::stod(Field(last, "accuracy")) >= 0.95, json);
}

// The step log is a full pipe that nobody reads, so that the run cannot end before the kill.
void KillRank1(const TempDir& dir, const Strings& more) {
  const std::string pipe = dir.File("steps");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(::fcntl(reader.get(), F_SETPIPE_SZ, 4096) == 4096);
  Strings args = more;
  args.insert(args.end(), {"--step_log", pipe});
  Job job(2, Command(args));

  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto has_checkpoint = [&dir] {
    std::error_code error;
    const fs::directory_iterator files(dir.File("ck"), error);
    return !error && std::any_of(begin(files), end(files), [](const fs::directory_entry& entry) {
      return entry.path().extension() == ".ckpt";
    });
  };
  while (!has_checkpoint()) {
    REQUIRE_MESSAGE(std::chrono::steady_clock::now() < deadline, job.Stderr());
    std::this_thread::yield();
  }
  job.rank(1).Signal(SIGKILL);
  CHECK(job.rank(1).Wait() == 137);
  ::fcntl(reader.get(), F_SETFL, 0);
  char bytes[4096];
  while (::read(reader.get(), bytes, sizeof(bytes)) > 0) {
  }
  CHECK(job.rank(0).Wait() == 1);
  CHECK(job.Stderr() == Contains("rank 1"));
}

TEST_CASE("train: after a killed rank it resumes and ends with the bits of an undisturbed run") {
  for (const std::string backend : {"shm", "tcp"}) {
    INFO(backend);
    const Strings run = {"--batch_size", "2", "--backend", backend};
    TempDir calm, disturbed;
    const std::string expected = Succeed(calm, 2, run);
    Strings with_checkpoints = run;
    with_checkpoints.insert(with_checkpoints.end(), {"--checkpoint_dir", disturbed.File("ck"),
                                                     "--checkpoint_every", "7", "--resume"});
    KillRank1(disturbed, with_checkpoints);
    const std::string resumed = Succeed(disturbed, 2, with_checkpoints);
    CHECK(std::stoi(Field(resumed, "start_step")) > 0);
    CHECK(Field(resumed, "steps") == "300");
    CHECK(Field(resumed, "parameters_checksum") == Field(expected, "parameters_checksum"));
  }
}

int Lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

// Whichever of the two ranks a launcher reports, it must have said why.
std::string OneLineOfEach(Job& job) {
  const std::string error = job.rank(0).err();
  CHECK(Lines(error) == 1);
  CHECK(job.rank(1).err() == error);
  return error;
}

TEST_CASE("train: bad data ends every rank with 120 and a line each that names the file") {
  const struct {
    const char* what;
    const char* file;
    size_t keep;
    const char* says;
  } rows[] = {
      {"truncated images", "train-images-idx3-ubyte", 1000, "truncated: it holds 984 of 470400"},
      {"wrong magic number", "t10k-labels-idx1-ubyte", 0, "wrong magic number"},
  };
  for (const auto& row : rows) {
    INFO(row.what);
    TempDir dir;
    fs::copy(Data(), dir.File("bad"));
    const std::string path = dir.File(std::string("bad/") + row.file);
    std::string bytes = ReadFile(path);
    if (row.keep > 0)
      bytes.resize(row.keep);
    else
      bytes[2] = 'x';
    WriteFile(path, bytes);
    Job job(2, {kTrain, "--data", dir.File("bad")});
    CHECK(job.Wait() == std::vector<int>{launcher::kExitMachine, launcher::kExitMachine});
    const std::string error = OneLineOfEach(job);
    INFO(error);
    CHECK(error.find("train: \"" + path + "\": " + row.says) == 0);
  }
  Job missing(2, {kTrain, "--data", "/nonexistent"});
  CHECK(missing.Wait() == std::vector<int>{launcher::kExitMachine, launcher::kExitMachine});
  CHECK(OneLineOfEach(missing).find(
            "train: \"/nonexistent/train-images-idx3-ubyte\": no such file") == 0);
}

TEST_CASE("train: what cannot be written is told before the first step") {
  TempDir dir;
  WriteFile(dir.File("file"), "in the way");
  const struct {
    const char* option;
    std::string path;
    const char* cause;
  } rows[] = {
      {"--checkpoint_dir", dir.File("file"), "Not a directory"},
      {"--checkpoint_dir", "/proc/self", "No such file or directory"},
      {"--summary_file", dir.File("none/summary.json"), "No such file or directory"},
      {"--summary_file", dir.path().string(), "Is a directory"},
      {"--step_log", dir.File("none/steps"), "No such file or directory"},
  };
  for (const auto& row : rows) {
    Job job(2, Command({row.option, row.path}));
    CHECK(job.Wait() == std::vector<int>{launcher::kExitMachine, launcher::kExitMachine});
    const std::string error = OneLineOfEach(job);
    INFO(error);
    CHECK(error == Contains("\"" + row.path));
    CHECK(error == Contains(row.cause));
    CHECK(error == Contains(std::string("; ") + row.option + " takes a "));
    CHECK(job.rank(0).out() != Contains("training on"));
  }
}

TEST_CASE("train: a run that starts anew never goes on from another run's checkpoints") {
  TempDir dir;
  const std::string folder = dir.File("ck");
  Succeed(dir, 2, {"--checkpoint_dir", folder});
  const Strings anew = {"--checkpoint_dir", folder, "--batch_size", "100"};
  Job second(2, Command(anew));
  const std::vector<int> codes = second.Wait();
  INFO(second.Stderr());
  REQUIRE(codes == std::vector<int>{0, 0});
  CHECK(second.Stderr().find("train: starting anew; earlier checkpoints are now in \"" + folder +
                             "/earlier-1\"") == 0);
  Strings resume = anew;
  resume.push_back("--resume");
  CHECK(Field(Succeed(dir, 2, resume), "start_step") == "6");
  resume[1] = folder + "/earlier-1";
  CHECK(Field(Succeed(dir, 2, resume), "start_step") == "10");
}

TEST_CASE("train: a corrupt checkpoint is refused, named, and the one before it used") {
  TempDir dir;
  const Strings run = {"--checkpoint_dir", dir.File("ck"), "--resume", "--batch_size", "10"};
  Succeed(dir, 1, run);
  {
    Job again(1, Command(run));
    REQUIRE(again.Wait() == std::vector<int>{0});
    const std::string out = again.rank(0).out();
    CHECK(out == Contains("all 2 epochs were done before: a larger --epochs trains further\n"));
    CHECK(out != Contains("speed:"));
  }
  const std::string newest = dir.File("ck/checkpoint-000002-step-120.ckpt");
  std::string bytes = ReadFile(newest);
  REQUIRE(bytes.size() > 1000);
  bytes[bytes.size() / 2] ^= 1;
  WriteFile(newest, bytes);
  {
    Job job(2, Command(run));
    REQUIRE(job.Wait() == std::vector<int>{0, 0});
    CHECK(job.Stderr().find("train: refused checkpoint \"" + newest + "\": the checksum") == 0);
    CHECK(CountOf(job.Stderr(), "refused") == 1);
    CHECK(job.rank(0).out() ==
          Contains("resumed at step 60 from " + dir.File("ck/checkpoint-000001-step-60.ckpt")));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(dir.File("ck"))) {
    WriteFile(entry.path().string(), "garbage");
  }
  Job job(2, Command(run));
  CHECK(job.Wait() == std::vector<int>{launcher::kExitMachine, launcher::kExitMachine});
  CHECK(job.Stderr() == Contains("no usable checkpoint in"));
}

TEST_CASE("train: a rank that does not fit the number of ranks is refused in one line") {
  const struct {
    std::map<std::string, std::string> environment;
    const char* says;
  } rows[] = {
      {{{"RANK", "3"}, {"WORLD_SIZE", "2"}}, "RANK=\"3\": expected a whole number from 0 to 1"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE=\"0\": expected a whole number from 1 to"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}},
       "LOCAL_WORLD_SIZE=\"3\": expected a whole number from 1 to 2"},
  };
  for (const auto& row : rows) {
    Subprocess::Options how;
    how.env = row.environment;
    how.env.insert({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
    Subprocess train(Command({}), how);
    CHECK(train.Wait() == 1);
    INFO(train.err());
    CHECK(Lines(train.err()) == 1);
    CHECK(train.err() == Contains(row.says));
  }
}

TEST_CASE("train: usage errors end with 2 and one line that quotes the value") {
  const struct {
    Strings args;
    const char* quotes;
    const char* accepts;
  } rows[] = {
      {{"--epochs", "0"}, "'0'", "from 1 to"},
      {{"--epochs", "-3"}, "'-3'", "from 1 to"},
      {{"--epochs", "1e3"}, "'1e3'", "a whole number"},
      {{"--epochs", "0x10"}, "'0x10'", "a whole number"},
      {{"--batch_size", "many"}, "'many'", "a whole number"},
      {{"--batch_size", "0"}, "'0'", "from 1 to"},
      {{"--batch_size", "99999999999999999999"}, "'99999999999999999999'", "from 1 to"},
      {{"--hidden", "0"}, "'0'", "from 1 to"},
      {{"--accumulate", "-1"}, "'-1'", "from 1 to"},
      {{"--checkpoint_every", "-1"}, "'-1'", "from 0 to"},
      {{"--seed", "-1"}, "'-1'", "from 0 to"},
      {{"--compression", "int8"}, "'int8'", "none, bf16 or fp16"},
      {{"--bucket_cap_mb", "0"}, "'0'", "above 0"},
      {{"--bucket_cap_mb", "-0.5"}, "'-0.5'", "above 0"},
      {{"--bucket_cap_mb", "nan"}, "'nan'", "above 0"},
      {{"--lr", "-1"}, "'-1'", "above 0"},
      {{"--lr", "0"}, "'0'", "above 0"},
      {{"--lr", "nan"}, "'nan'", "above 0"},
      {{"--lr", "inf"}, "'inf'", "at most"},
      {{"--lr", "1e-60"}, "'1e-60'", "above 0"},
      {{"--lr", "0.1x"}, "'0.1x'", "above 0"},
      {{"--backend", "carrier-pigeon"}, "'carrier-pigeon'", "auto, nccl, shm or tcp"},
      {{"--device", "tpu"}, "'tpu'", "cpu, cuda or auto"},
      {{"--comm_timeout", "0"}, "'0'", "from 1 to"},
      {{"--no_such_option"}, "--no_such_option", "--help"},
      {{"--resume"}, "--resume", "--checkpoint_dir"},
      {{"--checkpoint_every", "5"}, "needs", "--checkpoint_dir"},
      {{"--plant_drift", "3", "--zero"}, "--zero", "ends the drift"},
  };
  for (const auto& row : rows) {
    Job job(2, Command(row.args));
    CHECK(job.Wait() == std::vector<int>{launcher::kExitUsage, launcher::kExitUsage});
    const std::string error = OneLineOfEach(job);
    INFO(error);
    CHECK(error.find("train: ") == 0);
    CHECK(error == Contains(row.args[0]));
    CHECK(error == Contains(row.quotes));
    CHECK(error == Contains(row.accepts));
  }
}

}  // namespace
}  // namespace ddprun::testing
