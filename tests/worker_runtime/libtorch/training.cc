// Trains each scenario of a file with libtorch, as training.py does with Python, for
// libtorch_test.cc.
//
// usage: training SCENARIOS FOLDER RANKS. It starts its ranks itself.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "ddp/ddp.h"
#include "ddp/torch.h"

namespace {

struct Scenario {
  std::string name;
  std::vector<std::string> options;
  std::vector<std::string> passes;

  bool Has(const std::string& option) const {
    return std::find(options.begin(), options.end(), option) != options.end();
  }
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Scenario& scenario)
      : first(register_module("first", torch::nn::Linear(16, 32))),
        norm(scenario.Has("norm") ? register_module("norm", torch::nn::BatchNorm1d(32)) : nullptr),
        second(register_module("second", torch::nn::Linear(32, 16))),
        left(register_module("left", torch::nn::Linear(16, 4))),
        right(register_module("right", scenario.Has("tied") ? left : torch::nn::Linear(16, 4))) {
    if (scenario.Has("type=bfloat16")) to(torch::kBFloat16);
    if (scenario.Has("type=mixed")) {
      left->to(torch::kBFloat16);
      right->to(torch::kBFloat16);
    }
    if (scenario.Has("channels")) first->weight.set_data(first->weight.t().contiguous().t());
    if (scenario.Has("frozen")) {
      for (at::Tensor& parameter : first->parameters()) parameter.requires_grad_(false);
    }
  }

  at::Tensor forward(at::Tensor x, const std::string& heads) {
    x = first(x.to(first->weight.scalar_type()));
    if (!norm.is_empty()) x = norm(x);
    x = torch::tanh(second(x));
    x = x.to(left->weight.scalar_type());
    at::Tensor y = torch::zeros({8, 4});
    if (heads.find('l') != std::string::npos) y = y + left(x);
    if (heads.find('r') != std::string::npos) y = y + 2 * right(x);
    return y;
  }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second, left, right;
};
TORCH_MODULE(Net);

class Record {
 public:
  explicit Record(const std::string& path) : file_(path) {}
  void Add(const at::Tensor& tensor) {
    const at::Tensor values = tensor.detach().contiguous().to(torch::kFloat64);
    file_.write(static_cast<const char*>(values.data_ptr()),
                static_cast<std::streamsize>(values.nbytes()));
  }
  void Number(double value) { file_.write(reinterpret_cast<const char*>(&value), sizeof value); }

 private:
  std::ofstream file_;
};

// Python's parameters(): each once.
std::vector<at::Tensor> ParametersOf(const Net& net) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : net->parameters()) {
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(parameters.begin(), parameters.end(), is_same)) {
      parameters.push_back(parameter);
    }
  }
  return parameters;
}

template <typename Model>
at::Tensor LossOf(Model& model, size_t number, int rank, const std::string& heads) {
  torch::manual_seed(1000 * number + static_cast<size_t>(rank));
  const at::Tensor x = torch::randn({8, 16});
  return (model.forward(x, heads) - x.slice(/*dim=*/1, /*start=*/0, /*end=*/4)).square().mean();
}

std::string HeadsOf(const std::string& pass, int rank) {
  const size_t begin = pass[0] == 'n' || pass[0] == 'e' ? 1 : 0;
  const size_t slash = pass.find('/');
  if (slash == std::string::npos) return pass.substr(begin);
  return rank % 2 == 0 ? pass.substr(begin, slash - begin) : pass.substr(slash + 1);
}

void Train(const Scenario& scenario, ddp::ProcessGroup& group, Record& record) {
  const int rank = group.rank();
  torch::manual_seed(1 + static_cast<size_t>(rank));
  Net net(scenario);
  ddp::DistributedDataParallelOptions options;
  if (scenario.Has("small")) options.bucket_cap_bytes = options.first_bucket_bytes = 1024;
  options.find_unused_parameters = scenario.Has("unused");
  options.static_graph = scenario.Has("static");
  options.rebuild_buckets = scenario.Has("rebuild");
  ddp::torch::DistributedDataParallel model(net, group, options);
  const std::vector<at::Tensor> parameters = ParametersOf(net);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.05));
  std::optional<decltype(model)::JoinGuard> join;
  if (scenario.Has("join=initial")) join.emplace(model.Join());
  if (scenario.Has("join=effective")) join.emplace(model.Join(false));
  bool is_fresh = true;
  for (size_t number = 0; number < scenario.passes.size(); ++number) {
    const std::string& pass = scenario.passes[number];
    const std::string heads = HeadsOf(pass, rank);
    if (heads == "-") continue;
    if (pass[0] == 'e') {
      const torch::NoGradGuard no_grad;
      record.Add(LossOf(model, number, rank, heads));
      for (const at::Tensor& buffer : net->buffers()) record.Add(buffer);
      continue;
    }
    if (is_fresh) optimizer.zero_grad(/*set_to_none=*/!scenario.Has("keep"));
    is_fresh = pass[0] != 'n';
    at::Tensor loss;
    {
      // backward() is outside of it: forward() is what counts.
      const auto no_sync = model.NoSync(pass[0] == 'n');
      loss = LossOf(model, number, rank, heads);
    }
    record.Add(loss);
    for (const at::Tensor& buffer : net->buffers()) record.Add(buffer);
    loss.backward();
    if (pass[0] == 'n') continue;
    for (const at::Tensor& parameter : parameters) {
      if (!parameter.requires_grad()) continue;
      record.Number(parameter.grad().defined() ? 1 : 0);
      if (parameter.grad().defined()) record.Add(parameter.grad());
    }
    optimizer.step();
  }
  if (join.has_value()) join->Wait();
  for (const at::Tensor& parameter : parameters) record.Add(parameter);
  for (const at::Tensor& buffer : net->buffers()) record.Add(buffer);
}

std::vector<Scenario> ReadScenarios(const char* path) {
  std::vector<Scenario> scenarios;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    Scenario& scenario = scenarios.emplace_back();
    std::istringstream words(line);
    words >> scenario.name;
    std::vector<std::string>* list = &scenario.options;
    for (std::string word; words >> word;) {
      word == "|" ? list = &scenario.passes : (list->push_back(word), list);
    }
  }
  return scenarios;
}

int RunRank(const char* const* arguments) {
  torch::set_num_threads(1);
  const auto group = ddp::ProcessGroup::FromEnv({});
  if (!group.ok()) return std::cerr << group.status() << "\n", 1;
  for (const Scenario& scenario : ReadScenarios(arguments[1])) {
    Record record(std::string(arguments[2]) + "/" + scenario.name + "." +
                  std::to_string((*group)->rank()));
    try {
      Train(scenario, **group, record);
    } catch (const c10::Error& error) {
      std::cerr << scenario.name << ": " << error.what_without_backtrace() << "\n";
      return 1;
    }
  }
  return (*group)->Shutdown().ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::cerr << "usage: training SCENARIOS FOLDER RANKS\n", 2;
  const absl::Status status = ddp::Spawn(std::atoi(argv[3]), [argv](int) { return RunRank(argv); });
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
