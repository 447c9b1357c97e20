// What is known of the job, as Prometheus and what speaks its language reads it. [pure]
#ifndef DDPRUN_LAUNCHER_METRICS_METRICS_TEXT_H_
#define DDPRUN_LAUNCHER_METRICS_METRICS_TEXT_H_

#include <string>
#include <string_view>

#include "launcher/status/snapshot.h"

namespace ddprun::launcher {

struct MetricsOptions {
  bool is_open_metrics = false;  // OpenMetrics 1.0; else Prometheus' text format 0.0.4
  bool has_all_nodes = false;    // also what is said of the other nodes, without their ranks
};

// The metrics of docs/reference/metrics.md: the job's, and those of the node with this id, its
// ranks and its GPUs. So a scrape has O(own ranks) samples, with all nodes O(nodes) more. What is
// not known has no sample. Labels are `run_id`, `node`, `rank`, `gpu` and `kind` alone; their
// values are printable UTF-8 of at most 128 bytes, whatever the view holds. No two samples have
// equal labels.
std::string MetricsText(const JobView& job, std::string_view own_node_id,
                        const MetricsOptions& options = {});

// The Content-Type of such a text.
std::string_view MetricsContentType(bool is_open_metrics);

// Whether a request with this Accept header wants OpenMetrics 1.0.
bool AcceptsOpenMetrics(std::string_view accept);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_METRICS_METRICS_TEXT_H_
