// The peer with Gloo: RANK=r WORLD_SIZE=n gloo_bench DIR [bf16], once per rank, DIR empty and
// shared. Same sizes, same figure as allreduce_bench. Built by the bench script with -lgloo.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// Gloo has no bfloat16; PyTorch passes it a function like this one.
void SumBfloat16(void* out, const void* a, const void* b, size_t count) {
  const auto widen = [](uint16_t half) {
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  };
  auto* const sums = static_cast<uint16_t*>(out);
  const auto* const left = static_cast<const uint16_t*>(a);
  const auto* const right = static_cast<const uint16_t*>(b);
  for (size_t i = 0; i < count; ++i) {
    const float sum = widen(left[i]) + widen(right[i]);
    uint32_t bits;
    std::memcpy(&bits, &sum, sizeof bits);
    sums[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to nearest even
  }
}

void AllReduceBfloat16(const std::shared_ptr<gloo::Context>& context, std::vector<float>& memory) {
  gloo::AllreduceOptions options(context);
  options.setOutput(reinterpret_cast<uint16_t*>(memory.data()), 2 * memory.size());
  options.setReduceFunction(SumBfloat16);
  gloo::allreduce(options);
}

template <typename T>
void AllReduce(const std::shared_ptr<gloo::Context>& context, std::vector<T>& data, bool is_max) {
  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), data.size());
  void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<T>;
  void (*max)(void*, const void*, const void*, size_t) = &gloo::max<T>;
  options.setReduceFunction(is_max ? max : sum);
  gloo::allreduce(options);
}

}  // namespace

int main(int argc, char** argv) {
  const char* rank_text = std::getenv("RANK");
  const char* size_text = std::getenv("WORLD_SIZE");
  const bool is_bf16 = argc == 3 && std::string(argv[2]) == "bf16";
  if (argc != (is_bf16 ? 3 : 2) || rank_text == nullptr || size_text == nullptr) {
    std::fprintf(stderr, "usage: RANK=r WORLD_SIZE=n gloo_bench DIR [bf16]\n");
    return 2;
  }
  const int rank = std::atoi(rank_text);
  const int ranks = std::atoi(size_text);
  gloo::transport::tcp::attr attributes("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(argv[1]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  for (size_t bytes : {4 << 10, 64 << 10, 1 << 20, 25 << 20, 100 << 20}) {
    std::vector<float> data(bytes / sizeof(float));
    const int iterations =
        static_cast<int>(std::clamp<size_t>((size_t{400} << 20) / bytes, 9, 300));
    std::vector<double> times;
    for (int i = -3; i < iterations; ++i) {
      std::fill(data.begin(), data.end(), 1.0f);
      gloo::BarrierOptions barrier(context);
      gloo::barrier(barrier);
      const auto begin = Clock::now();
      is_bf16 ? AllReduceBfloat16(context, data) : AllReduce(context, data, false);
      if (i < 0) continue;
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    AllReduce(context, times, true);
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    if (rank == 0) {
      std::printf(
          "{\"backend\": \"gloo\", \"memory\": \"private\", \"ranks\": %d, "
          "\"bytes\": %zu, \"us\": %.1f}\n",
          ranks, bytes, times[times.size() / 2]);
    }
  }
  return 0;
}
