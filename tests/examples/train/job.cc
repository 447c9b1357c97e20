#include "tests/examples/train/job.h"

#include <utility>

#include "tests/support/store_server.h"

namespace ddprun::testing {

Job::Job(int world_size, const std::vector<std::string>& args) : store_(StartStoreServer()) {
  const std::string world = std::to_string(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    const std::string number = std::to_string(rank);
    Subprocess::Options how;
    how.env = {{"RANK", number},
               {"WORLD_SIZE", world},
               {"LOCAL_RANK", number},
               {"LOCAL_WORLD_SIZE", world},
               {"MASTER_ADDR", "127.0.0.1"},
               {"MASTER_PORT", std::to_string(store_->port())},
               {"DDPRUN_ROUND", "1"},
               {"DDPRUN_EPOCH", "1"},
               {"TORCHELASTIC_RESTART_COUNT", "0"}};
    ranks_.push_back(std::make_unique<Subprocess>(args, std::move(how)));
  }
}

std::vector<int> Job::Wait() {
  std::vector<int> codes;
  for (const auto& rank : ranks_) codes.push_back(rank->Wait().value_or(-1));
  return codes;
}

std::string Job::Stderr() const {
  std::string all;
  for (const auto& rank : ranks_) all += rank->err();
  return all;
}

}  // namespace ddprun::testing
