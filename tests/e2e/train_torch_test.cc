// The PyTorch example under the real ddprun: a killed rank costs nothing of the result.
#include <fstream>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

// Importing PyTorch takes seconds, on a busy machine many.
constexpr std::chrono::seconds kTraining{300};

// Saves as the example does, and is killed once, right after its first checkpoint.
constexpr char kDieOnce[] =
    "import os, signal, sys\n"
    "sys.path.insert(0, os.path.dirname(sys.argv[1]))\n"
    "del sys.argv[0]\n"
    "import train_torch\n"
    "save = train_torch.save_checkpoint\n"
    "def save_and_die(path, state):\n"
    "    save(path, state)\n"
    "    if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
    "        os.kill(os.getpid(), signal.SIGKILL)\n"
    "train_torch.save_checkpoint = save_and_die\n"
    "train_torch.main()\n";

// The line of the last epoch without its speed.
std::string LastEpoch(const std::string& out) {
  const size_t at = out.find("epoch 3/3: ");
  if (at == std::string::npos) return "";
  return out.substr(at, out.find(" %", at) - at);
}

TEST_CASE("train_torch.py: a killed rank costs nothing of the result") {
  const std::string& python = FindTorchPython().python;
  if (python.empty()) return SkipWithoutTorch();
  Job job;
  Subprocess draw({Runfile("tools/make_digits/make_digits"), job.File("digits"), "--train", "500",
                   "--test", "200"});
  REQUIRE_MESSAGE(draw.Wait() == 0, draw.Describe());
  std::ofstream(job.File("die_once.py")) << kDieOnce;
  const Subprocess::Options how{.env = {{"PYTHON_EXEC", python}, {"PYTHONWARNINGS", "ignore"}}};
  const std::string example = Runfile("examples/train_torch.py");
  const std::string data = job.File("digits");

  auto whole = job.RunRaw({"--standalone", "--nproc-per-node=2", example, "--data", data}, how);
  REQUIRE_MESSAGE(whole->Wait(kTraining) == 0, whole->Describe());
  const std::string expected = LastEpoch(whole->out());
  REQUIRE_MESSAGE(!expected.empty(), whole->Describe());

  auto killed =
      job.RunRaw({"--standalone", "--nproc-per-node=2", "--max-restarts=1", job.File("die_once.py"),
                  example, "--data", data, "--checkpoint_dir", job.File("checkpoints"), "--resume"},
                 how);
  REQUIRE_MESSAGE(killed->Wait(kTraining) == 0, killed->Describe());
  const std::string out = killed->out();
  CHECK_MESSAGE(out.find("epoch 1/3: ") < out.find("resumed after epoch 1 from "), out);
  CHECK_MESSAGE(out.find("resumed after epoch 1 from ") < out.find("epoch 2/3: "), out);
  CHECK(LastEpoch(out) == expected);
}

}  // namespace
}  // namespace ddprun::testing
