#include "tests/support/cuda_emulation.h"

#include <barrier>
#include <sstream>
#include <thread>

#include "rendezvous/base/check.h"

namespace {

// Of the block whose threads are running; null when they run one after the other.
std::barrier<>* block_barrier = nullptr;

}  // namespace

void __syncthreads() {
  DDP_CHECK(block_barrier != nullptr);
  block_barrier->arrive_and_wait();
}

namespace ddprun::testing {
namespace {

template <typename Body>
void ForEach(EmulatedIndex size, const Body& body) {
  for (unsigned z = 0; z < size.z; ++z) {
    for (unsigned y = 0; y < size.y; ++y) {
      for (unsigned x = 0; x < size.x; ++x) body(EmulatedIndex{x, y, z});
    }
  }
}

}  // namespace

void RunEmulated(const EmulatedKernel& kernel, EmulatedIndex grid, EmulatedIndex block,
                 void** arguments) {
  const auto run = [&](EmulatedIndex in_grid, EmulatedIndex in_block) {
    threadIdx = in_block;
    blockIdx = in_grid;
    blockDim = block;
    gridDim = grid;
    kernel.run(arguments);
  };
  ForEach(grid, [&](EmulatedIndex in_grid) {
    if (!kernel.has_barrier) {
      ForEach(block, [&](EmulatedIndex in_block) { run(in_grid, in_block); });
      return;
    }
    std::barrier<> barrier(static_cast<std::ptrdiff_t>(block.x) * block.y * block.z);
    block_barrier = &barrier;
    std::vector<std::thread> threads;
    ForEach(block, [&](EmulatedIndex in_block) {
      threads.emplace_back([&, in_grid, in_block] {
        run(in_grid, in_block);
        barrier.arrive_and_drop();
      });
    });
    for (std::thread& thread : threads) thread.join();
    block_barrier = nullptr;
  });
}

std::vector<std::string> PtxParameters(const std::string& ptx, const std::string& name) {
  const std::string entry = ".visible .entry " + name + "(";
  const size_t begin = ptx.find(entry);
  if (begin == std::string::npos) return {};
  std::istringstream list(ptx.substr(begin, ptx.find(')', begin) - begin));
  std::vector<std::string> types;
  for (std::string word; list >> word;) {
    if (word == ".param" && list >> word) types.push_back(word.substr(1));
  }
  return types;
}

}  // namespace ddprun::testing
