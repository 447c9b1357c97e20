// How many workers, by --nproc-per-node and -n.
#include "absl/strings/str_cat.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {
namespace {

// Counting GPUs takes a probe of the driver: no business of a reader of options.
void ReadShare(OptionReader& read, const MachineFacts& machine, LaunchConfig& config) {
  const GivenValue* value = read.Find("nproc_per_node");
  if (value != nullptr && (value->text == "gpu" || value->text == "auto")) {
    config.workers_by = value->text == "gpu" ? WorkersBy::kGpu : WorkersBy::kGpuOrCpu;
    return;
  }
  if (value != nullptr && value->text.starts_with("gpu:")) {
    config.workers_by = WorkersBy::kGpu;
    return read.Into("nproc_per_node", config.gpus,
                     [](const std::string& text) { return ParseGpus(text.substr(4)); });
  }
  read.Into("nproc_per_node", config.workers_per_node,
            [&](const std::string& text) { return ParseWorkersPerNode(text, machine.cpu_count); });
}

// -n, as mpirun has it: the workers of all nodes.
void ReadTotal(OptionReader& read, LaunchConfig& config) {
  const GivenValue* value = read.Find("workers");
  if (value == nullptr) return;
  int total = 0;
  read.Into("workers", total, [](const std::string& text) {
    return ParseNumber(text, 1, kMaxNodes * kMaxWorkersPerNode);
  });
  if (total == 0) return;
  const bool has_nodes = read.Find("nnodes") != nullptr;
  const bool has_share = read.Find("nproc_per_node") != nullptr;
  const bool has_list = !config.gpus.empty();
  const int share = has_list ? static_cast<int>(config.gpus.size()) : config.workers_per_node;
  if (config.nodes.is_elastic() || (config.workers_by != WorkersBy::kNumber && !has_list)) {
    return read.Refuse(*value,
                       "with a range of nodes, gpu or auto their number is not known; "
                       "expected --nproc-per-node alone");
  }
  if (has_share && !has_nodes && total % share == 0) {
    const int nodes = total / share;
    if (nodes > kMaxNodes) {
      return read.Refuse(*value, absl::StrCat("expected at most ", kMaxNodes, " nodes"));
    }
    config.nodes = {.min = nodes, .max = nodes};
  } else if (!has_share && total % config.nodes.max == 0 &&
             total / config.nodes.max <= kMaxWorkersPerNode) {
    config.workers_per_node = total / config.nodes.max;
  } else if (!has_share || !has_nodes || total != config.nodes.max * share) {
    const std::string nodes = has_nodes ? absl::StrCat(config.nodes.max) : "some number of";
    const std::string workers =
        has_share ? absl::StrCat(share)
                  : absl::StrCat("an equal number, at most ", kMaxWorkersPerNode, ", of");
    read.Refuse(*value, absl::StrCat("expected ", nodes, " nodes times ", workers, " workers"));
  }
}

}  // namespace

void ReadWorkers(OptionReader& read, const MachineFacts& machine, LaunchConfig& config) {
  ReadShare(read, machine, config);
  ReadTotal(read, config);
}

}  // namespace ddprun::launcher
