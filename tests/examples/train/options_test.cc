#include "examples/train/options.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "examples/train/exit_codes.h"
#include "rendezvous/base/unique_fd.h"

namespace train {
namespace {

using ddprun::UniqueFd;

// What the first write to stderr held while these were parsed.
std::string FirstWrite(std::vector<std::string> arguments) {
  int ends[2];
  REQUIRE(pipe2(ends, O_DIRECT | O_CLOEXEC | O_NONBLOCK) == 0);  // a read is a write's bytes
  const UniqueFd reader(ends[0]), writer(ends[1]);
  const UniqueFd before(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  arguments.insert(arguments.begin(), {"train", "--data", "digits"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  REQUIRE(dup2(writer.get(), STDERR_FILENO) == STDERR_FILENO);
  const auto parsed = ParseOptions(static_cast<int>(argv.size()), argv.data());
  REQUIRE(dup2(before.get(), STDERR_FILENO) == STDERR_FILENO);
  REQUIRE(std::get_if<int>(&parsed) != nullptr);
  CHECK(std::get<int>(parsed) == kExitUsage);
  std::string text(4096, '\0');
  const ssize_t length = read(reader.get(), text.data(), text.size());
  text.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return text;
}

// Ranks refuse the same at the same time, and all write to one terminal.
TEST_CASE("options: what is refused is a whole line in one write") {
  CHECK(FirstWrite({"--epochs", "0"}) ==
        "train: --epochs: expected a whole number from 1 to 1000000000, got '0'\n");
  CHECK(FirstWrite({"--epoch"}) ==
        "train: The following argument was not expected: --epoch; --help lists the options\n");
  CHECK(FirstWrite({"--resume"}) == "train: --resume needs --checkpoint_dir\n");
  CHECK(FirstWrite({"--checkpoint_every", "5"}) ==
        "train: --checkpoint_every needs --checkpoint_dir\n");
  CHECK(FirstWrite({"--zero", "--plant_drift=4"}) ==
        "train: --plant_drift does not go with --zero: each step replaces a rank's weights by "
        "those of the ranks that update them, and ends the drift\n");
}

}  // namespace
}  // namespace train
