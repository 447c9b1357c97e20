// What can go wrong with libtorch, for libtorch_test.cc: each rank prints one line, "rank 1: " and
// what it was told.
//
// usage: failures NAME. It starts its two ranks itself.
#include <unistd.h>

#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include <torch/torch.h>

#include "ddp/ddp.h"
#include "ddp/torch.h"

namespace {

using torch::nn::Linear;

void Say(int rank, const std::string& words) {
  std::cout << "rank " + std::to_string(rank) + ": " + words + "\n" << std::flush;
}

// In the middle of a network: backward calls `backward`, and passes the gradient on.
class Middle : public torch::autograd::Function<Middle> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::function<void()>* backward) {
    context->saved_data["backward"] = reinterpret_cast<int64_t>(backward);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    (*reinterpret_cast<const std::function<void()>*>(context->saved_data["backward"].toInt()))();
    return {gradients[0], at::Tensor()};
  }
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width = 8)
      : first(register_module("first", Linear(4, width))),
        second(register_module("second", Linear(width, 2))) {}
  at::Tensor forward(const at::Tensor& x) {
    if (in_forward) in_forward();
    at::Tensor y = torch::relu(first(x));
    if (in_backward) y = Middle::apply(y, &in_backward);
    return skips_second ? y : second(y);
  }

  Linear first, second;
  std::function<void()> in_forward, in_backward;
  bool skips_second = false;
};
TORCH_MODULE(Net);

using Case = std::function<void(ddp::ProcessGroup&)>;

at::Tensor Input() { return torch::ones({3, 4}); }

// Buckets of one parameter each.
ddp::DistributedDataParallelOptions Small() {
  return {.bucket_cap_bytes = 1, .first_bucket_bytes = 1};
}

template <typename Model>
void Step(Model& model, bool create_graph = false) {
  model.forward(Input()).square().sum().backward({}, /*retain_graph=*/create_graph, create_graph);
}

// Wraps `net` and takes one step.
template <typename Module>
void Train(Module net, ddp::ProcessGroup& group) {
  ddp::torch::DistributedDataParallel model(net, group, Small());
  Step(model);
}

struct OverlappingImpl : torch::nn::Module {
  OverlappingImpl() {
    const at::Tensor all = torch::zeros({6});
    register_parameter("low", all.slice(0, 0, 4));
    register_parameter("high", all.slice(0, 3, 6));
  }
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(Overlapping);

struct WordsImpl : torch::nn::Module {
  WordsImpl() : words(torch::nn::EmbeddingOptions(5, 3).sparse(true)) {
    register_module("words", words);
  }
  at::Tensor forward(const at::Tensor& /*x*/) {
    return words->forward(torch::tensor({1, 2}, torch::kLong));
  }
  torch::nn::Embedding words;
};
TORCH_MODULE(Words);

// What the program keeps of a gradient is its own once the wrapper is gone.
void KeepGradient(ddp::ProcessGroup& group) {
  Net net;
  at::Tensor kept, part;
  {
    ddp::torch::DistributedDataParallel model(net, group, Small());
    Step(model);
    kept = net->second->bias.grad();
    part = kept.slice(0, 1, 2);
  }
  const at::Tensor before = kept.clone();
  Step(*net);
  const at::Tensor twice = (before * 2 - net->second->bias.grad()).abs().max();
  Say(group.rank(), twice.item<float>() == 0 && part.item<float>() == kept[1].item<float>()
                        ? "the gradient is still there"
                        : "the gradient is lost");
}

// Both passes are reduced: the sum of the averages, as a single process has the sum.
void ForwardTwice(ddp::ProcessGroup& group) {
  Net net;
  ddp::torch::DistributedDataParallel model(net, group, Small());
  const auto loss = [&](double scale) {
    return model.forward(Input() * (scale + group.rank())).sum();
  };
  const at::Tensor one = loss(1), two = loss(5);
  one.backward();
  const at::Tensor after_one = net->first->weight.grad().clone();
  two.backward();
  const at::Tensor after_two = net->first->weight.grad().clone();
  Net alone;
  for (size_t i = 0; i < net->parameters().size(); ++i) {
    alone->parameters()[i].set_data(net->parameters()[i].detach().clone());
  }
  for (const double scale : {1, 2}) (alone->forward(Input() * scale).sum() / 2).backward();
  const bool is_first = torch::allclose(after_one, alone->first->weight.grad());
  for (const double scale : {5, 6}) (alone->forward(Input() * scale).sum() / 2).backward();
  const bool is_second = torch::allclose(after_two, alone->first->weight.grad());
  Say(group.rank(), is_first && is_second ? "both are averages" : "they are not averages");
}

void ForwardThrows(ddp::ProcessGroup& group) {
  Net net;
  if (group.rank() == 1) net->in_forward = [] { throw std::runtime_error("no such file"); };
  Train(net, group);
}

void BackwardThrows(ddp::ProcessGroup& group) {
  Net net;
  const bool is_one = group.rank() == 1;
  net->in_backward = [is_one] {
    if (is_one) throw std::runtime_error("a layer of mine failed");
  };
  Train(net, group);
}

void DiesInBackward(ddp::ProcessGroup& group) {
  Net net;
  net->in_backward = [&group] {
    if (group.rank() == 1) _exit(0);
  };
  Train(net, group);
}

// After an error the model says so again, and does not hang.
void GoesOn(ddp::ProcessGroup& group) {
  Net net;
  net->skips_second = true;
  ddp::torch::DistributedDataParallel model(net, group, Small());
  try {
    Step(model);
  } catch (const c10::Error&) {
    Step(model);
  }
}

void MovesNet(ddp::ProcessGroup& group) {
  Net net;
  ddp::torch::DistributedDataParallel model(net, group, Small());
  net->to(torch::kDouble);
  Step(model);
}

void Unfreezes(ddp::ProcessGroup& group) {
  Net net;
  net->first->weight.requires_grad_(false);
  ddp::torch::DistributedDataParallel model(net, group, Small());
  Step(model);
  net->first->weight.requires_grad_(true);
  Step(model);
}

void CreatesGraph(ddp::ProcessGroup& group) {
  Net net;
  ddp::torch::DistributedDataParallel model(net, group, Small());
  Step(model, /*create_graph=*/true);
}

// The second pass finds no graph any more.
void BackwardTwice(ddp::ProcessGroup& group) {
  Net net;
  ddp::torch::DistributedDataParallel model(net, group, Small());
  const at::Tensor loss = model.forward(Input()).square().sum();
  loss.backward();
  loss.backward();
}

void OtherOptions(ddp::ProcessGroup& group) {
  ddp::torch::DistributedDataParallel model(Net(), group, {.shard_gradients = true});
}

void SkipsSecond(ddp::ProcessGroup& group) {
  Net net;
  net->skips_second = true;
  Train(net, group);
}

void OtherFrozen(ddp::ProcessGroup& group) {
  Net net;
  net->first->weight.requires_grad_(false);
  if (group.rank() == 1) net->first->weight.set_data(net->first->weight.t().contiguous().t());
  Train(net, group);
}

void FewerFrozen(ddp::ProcessGroup& group) {
  Net net;
  net->first->weight.requires_grad_(false);
  if (group.rank() == 0) net->register_parameter("more", torch::zeros({3}), false);
  Train(net, group);
}

void SharedBuffers(ddp::ProcessGroup& group) {
  Net net;
  const at::Tensor both = torch::zeros({4});
  net->register_buffer("one", both);
  net->register_buffer("two", both.slice(0, 1, 3));
  Train(net, group);
}

void ExpandedBuffer(ddp::ProcessGroup& group) {
  Net net;
  net->register_buffer("mask", torch::zeros({1}).expand({4}));
  Train(net, group);
}

// The inner pass comes when the outer one has some of its gradients.
void Nested(ddp::ProcessGroup& group) {
  Net net;
  ddp::torch::DistributedDataParallel model(net, group, Small());
  const at::Tensor inner = model.forward(Input()).sum();
  net->in_backward = [&inner] { inner.backward(); };
  model.forward(Input()).sum().backward();
}

void OnTwoDevices(ddp::ProcessGroup& group) {
  Net net;
  net->register_parameter("elsewhere", torch::zeros({2}, at::Device(at::kMeta)));
  Train(net, group);
}

void Frozen(ddp::ProcessGroup& group) {
  Net net;
  for (at::Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
  Train(net, group);
}

void Complex(ddp::ProcessGroup& group) {
  Net net;
  net->first->to(at::kComplexFloat);
  Train(net, group);
}

const std::map<std::string, Case>& Cases() {
  static const std::map<std::string, Case> cases = {
      {"overlapping", [](ddp::ProcessGroup& group) { Train(Overlapping(), group); }},
      {"empty",
       [](ddp::ProcessGroup& group) { Train(torch::nn::Sequential(torch::nn::ReLU()), group); }},
      {"other_shapes",
       [](ddp::ProcessGroup& group) { Train(Net(group.rank() == 0 ? 8 : 6), group); }},
      {"sparse", [](ddp::ProcessGroup& group) { Train(Words(), group); }},
      {"frozen", Frozen},
      {"other_frozen", OtherFrozen},
      {"fewer_frozen", FewerFrozen},
      {"shared_buffers", SharedBuffers},
      {"expanded_buffer", ExpandedBuffer},
      {"nested", Nested},
      {"two_devices", OnTwoDevices},
      {"complex", Complex},
      {"forward_throws", ForwardThrows},
      {"backward_throws", BackwardThrows},
      {"dies_in_backward", DiesInBackward},
      {"unused", SkipsSecond},
      {"goes_on", GoesOn},
      {"moves", MovesNet},
      {"unfreezes", Unfreezes},
      {"create_graph", CreatesGraph},
      {"backward_twice", BackwardTwice},
      {"shard_gradients", OtherOptions},
      {"keep_gradient", KeepGradient},
      {"forward_twice", ForwardTwice},
  };
  return cases;
}

int RunRank(const std::string& name) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const auto group = ddp::ProcessGroup::FromEnv({});
  if (!group.ok()) return std::cerr << group.status() << "\n", 1;
  try {
    Cases().at(name)(**group);
  } catch (const c10::Error& error) {
    Say((*group)->rank(), std::string("c10::Error: ") + error.what_without_backtrace());
  } catch (const std::exception& error) {
    Say((*group)->rank(), error.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !Cases().contains(argv[1])) return std::cerr << "usage: failures NAME\n", 2;
  const absl::Status status = ddp::Spawn(2, [argv](int) { return RunRank(argv[1]); });
  if (!status.ok()) std::cout << status.message() << "\n";
  return 0;
}
