// A job whose agents agree by a real etcd on whose coordinator is theirs.
#ifndef DDPRUN_TESTS_E2E_ETCD_JOB_H_
#define DDPRUN_TESTS_E2E_ETCD_JOB_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/job.h"
#include "tests/support/etcd_cluster.h"

namespace ddprun::testing {

class EtcdJob {
 public:
  // Agents of one worker each, with the job's id `run`.
  EtcdJob(EtcdCluster& etcd, std::string run) : etcd_(etcd), run_(std::move(run)) {}

  // The options of one agent; `more` come last.
  std::vector<std::string> Options(const std::string& nodes, std::vector<std::string> more = {});
  // Starts an agent whose worker says that it runs and goes on until Finish().
  void StartNode(const std::string& nodes, std::vector<std::string> more = {},
                 Subprocess::Options how = {});
  void StartNodes(int count, const std::string& nodes, std::vector<std::string> more = {});
  void AwaitWorkers(int restart, int world_size);
  // Lets the workers end.
  void Finish() { job_.Touch("go"); }
  void CheckAllEndWith(int exit_code);

  // Which agent hosts the coordinator, by the order in which they said so; waits for the
  // `times`th time that one of them does.
  size_t Leading(size_t times = 1);
  // From now until an agent says for the `times`th time of all that it hosts.
  double SecondsUntilLeading(size_t times);
  // Waits likewise for a takeover, and checks that the watch of etcd's keys brings it: without, the
  // agents would find after 15 s that the coordinator does not answer.
  void CheckTakesOver(const std::string& after, size_t times);
  // How often the agent has said it.
  size_t Count(size_t node, const std::string& text) const;
  std::vector<int> Pids(int world_size) const;
  // The pid of the worker of an agent that has one.
  int WorkerOf(size_t node) const;
  std::string Describe() const;
  // What stands in etcd of the job.
  std::string Keys() const { return etcd_.KeysUnder("/ddprun/" + run_ + "/"); }

  Job& job() { return job_; }
  Subprocess& node(size_t index) { return *nodes_[index]; }
  size_t size() const { return nodes_.size(); }
  void Kill(size_t index);

 private:
  EtcdCluster& etcd_;
  const std::string run_;
  Job job_;
  std::vector<std::unique_ptr<Subprocess>> nodes_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_E2E_ETCD_JOB_H_
