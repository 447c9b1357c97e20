// Learns to read MNIST's digits on all ranks, with libtorch: no MPI, and no loop over gradients.
//
//     make_digits digits
//     ddprun --nproc-per-node=4 dist_mnist digits
//
// Each rank trains on its own share of the images. DistributedDataParallel gives all of them rank
// 0's weights, and averages the gradients while backward() runs.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <ddp/ddp.h>
#include <ddp/torch.h>

namespace {

constexpr size_t kBatchSize = 64;  // images per rank and step

struct NetImpl : torch::nn::Module {
  NetImpl()
      : conv1(register_module("conv1", torch::nn::Conv2d(1, 10, 5))),
        conv2(register_module("conv2", torch::nn::Conv2d(10, 20, 5))),
        norm(register_module("norm", torch::nn::BatchNorm2d(20))),
        fc1(register_module("fc1", torch::nn::Linear(320, 50))),
        fc2(register_module("fc2", torch::nn::Linear(50, 10))) {}

  at::Tensor forward(at::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(norm(conv2(x)), 2));
    x = torch::relu(fc1(x.flatten(1)));
    return torch::log_softmax(fc2(x), 1);
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Net);

struct Digits {
  at::Tensor images;  // n x 1 x 28 x 28
  at::Tensor labels;
};

// One of MNIST's files: a magic number, the sizes, then the bytes themselves. libtorch's own data
// set takes nothing but the original's 60000 images.
at::Tensor ReadIdx(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  TORCH_CHECK(bytes.size() > 4 && bytes.size() > 4 + 4 * static_cast<size_t>(bytes[3]), "read ",
              path, ": no file of MNIST's; make_digits makes them");
  std::vector<int64_t> sizes;
  size_t at = 4;
  for (int i = 0; i < bytes[3]; ++i) {
    int64_t size = 0;
    for (int k = 0; k < 4; ++k) size = size << 8 | static_cast<uint8_t>(bytes[at++]);
    sizes.push_back(size);
  }
  const at::Tensor values =
      torch::from_blob(const_cast<char*>(bytes.data()) + at,
                       {static_cast<int64_t>(bytes.size() - at)}, torch::kUInt8);
  return values.view(sizes).clone();
}

Digits Load(const std::string& folder, const std::string& name) {
  const at::Tensor pixels = ReadIdx(folder + "/" + name + "-images-idx3-ubyte");
  return {.images = ((pixels.to(torch::kFloat32) / 255 - 0.1307) / 0.3081).unsqueeze(1),
          .labels = ReadIdx(folder + "/" + name + "-labels-idx1-ubyte").to(torch::kInt64)};
}

at::Tensor Choose(const at::Tensor& tensor, std::vector<int64_t>& indices) {
  return tensor.index_select(
      0, torch::from_blob(indices.data(), {static_cast<int64_t>(indices.size())}, torch::kInt64));
}

// The replicas are equal, so one rank is enough. It uses the module itself: with DDP's forward() it
// would wait for the others' buffers.
double Accuracy(Net& net, const Digits& test) {
  const torch::NoGradGuard no_grad;
  net->eval();
  const at::Tensor guesses = net->forward(test.images).argmax(1);
  net->train();
  return 100 * guesses.eq(test.labels).to(torch::kFloat64).mean().item<double>();
}

void Train(ddp::ProcessGroup& group, const std::string& folder, int epochs) {
  const Digits train = Load(folder, "train"), test = Load(folder, "t10k");
  Net net;
  ddp::torch::DistributedDataParallel model(net, group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.5));
  ddp::DistributedSampler sampler(train.labels.size(0), group.rank(), group.world_size());
  int64_t step = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    sampler.SetEpoch(epoch);
    double loss_sum = 0;
    int steps = 0;
    for (auto batch = sampler.Next(kBatchSize); !batch.empty(); batch = sampler.Next(kBatchSize)) {
      optimizer.zero_grad();
      const at::Tensor guesses = model.forward(Choose(train.images, batch));
      const at::Tensor loss = torch::nll_loss(guesses, Choose(train.labels, batch));
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
      ++steps;
      ddp::ReportStep(++step, static_cast<int64_t>(batch.size()));
    }
    if (group.rank() != 0) continue;
    std::printf("epoch %d/%d: loss %.4f, test accuracy %.2f %%\n", epoch, epochs, loss_sum / steps,
                Accuracy(net, test));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: dist_mnist FOLDER [EPOCHS]   (started by ddprun or torchrun)\n");
    return 2;
  }
  const auto group = ddp::ProcessGroup::FromEnv({});
  if (!group.ok()) {
    std::fprintf(stderr, "dist_mnist: %s\n", std::string(group.status().message()).c_str());
    return 1;
  }
  try {
    Train(**group, argv[1], argc == 3 ? std::atoi(argv[2]) : 3);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "dist_mnist: %s\n", error.what_without_backtrace());
    return 1;
  }
  const absl::Status status = (*group)->Shutdown();
  if (!status.ok()) std::fprintf(stderr, "dist_mnist: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
