#include "launcher/cli/launch_config.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/cli/option_values.h"
#include "launcher/cli/text.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

GivenOptions Given(const std::vector<std::pair<std::string, std::string>>& options) {
  GivenOptions given;
  for (const auto& [name, text] : options) given[name] = {.text = text, .source = Dashed(name)};
  return given;
}

LaunchConfig Built(const std::vector<std::pair<std::string, std::string>>& options) {
  const auto config = BuildLaunchConfig(
      Given(options),
      {.cpu_count = 6, .fresh_run_id = "fresh", .names = {"node1", "10.0.0.7", "fd00::7"}});
  INFO("status: ", config.status().ToString());
  REQUIRE(config.ok());
  return *config;
}

std::string Text(const Endpoint& endpoint) {
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

TEST_CASE("launch config: -n counts the workers of all nodes, as mpirun's") {
  struct Row {
    std::vector<std::pair<std::string, std::string>> options;
    int nodes;
    int workers_each;
  };
  const std::vector<Row> rows = {
      {{{"workers", "4"}}, 1, 4},
      {{{"workers", "8"}, {"nproc_per_node", "4"}}, 2, 4},
      {{{"workers", "12"}, {"nproc_per_node", "cpu"}}, 2, 6},
      {{{"workers", "8"}, {"nnodes", "2"}}, 2, 4},
      {{{"workers", "6"}, {"nnodes", "2"}, {"nproc_per_node", "3"}}, 2, 3},
  };
  for (const Row& row : rows) {
    const LaunchConfig config = Built(row.options);
    CHECK(config.nodes.min == row.nodes);
    CHECK(config.nodes.max == row.nodes);
    CHECK(config.workers_per_node == row.workers_each);
  }
  const auto error = [](const std::vector<std::pair<std::string, std::string>>& options) {
    return std::string(BuildLaunchConfig(Given(options), {.cpu_count = 6}).status().message());
  };
  CHECK(error({{"workers", "7"}, {"nnodes", "2"}}) ==
        "--workers '7': expected 2 nodes times an equal number, at most 4096, of workers");
  CHECK(error({{"workers", "7"}, {"nproc_per_node", "2"}}) ==
        "--workers '7': expected some number of nodes times 2 workers");
  CHECK(error({{"workers", "7"}, {"nnodes", "2"}, {"nproc_per_node", "2"}}) ==
        "--workers '7': expected 2 nodes times 2 workers");
  CHECK(error({{"workers", "0"}}).find("--workers '0': expected") == 0);
  CHECK(error({{"workers", "100000"}, {"nproc_per_node", "1"}}) ==
        "--workers '100000': expected at most 65536 nodes");
  const std::string unknown = "their number is not known; expected --nproc-per-node alone";
  CHECK(error({{"workers", "4"}, {"nproc_per_node", "gpu"}}) == Contains(unknown));
  CHECK(error({{"workers", "4"}, {"nnodes", "1:2"}}) == Contains(unknown));
  // A list of GPUs is a number.
  CHECK(Built({{"workers", "6"}, {"nproc_per_node", "gpu:1,3,5"}}).nodes.max == 2);
  CHECK(error({{"workers", "7"}, {"nproc_per_node", "gpu:1,3,5"}}) ==
        "--workers '7': expected some number of nodes times 3 workers");
}

TEST_CASE("launch config: what is not said about the rendezvous follows from what is") {
  constexpr auto kAlone = RendezvousKind::kStandalone;
  constexpr auto kC10d = RendezvousKind::kC10d;
  constexpr auto kStatic = RendezvousKind::kStatic;
  struct Row {
    std::vector<std::pair<std::string, std::string>> options;
    RendezvousKind kind;
    std::string endpoint;
  };
  const std::vector<Row> rows = {
      {{}, kAlone, ":0"},
      {{{"rdzv_endpoint", "h"}}, kC10d, "h:29400"},
      {{{"rdzv_endpoint", "0.0.0.0:1"}, {"rdzv_conf", "is_host=1"}}, kC10d, "0.0.0.0:1"},
      {{{"rdzv_endpoint", "h:1"}}, kC10d, "h:1"},
      {{{"rdzv_endpoint", "[::1]"}}, kC10d, "[::1]:29400"},
      {{{"rdzv_endpoint", "::1"}}, kC10d, "[::1]:29400"},
      {{{"rdzv_endpoint", "::1:29500"}}, kC10d, "[::1]:29500"},
      {{{"rdzv_endpoint", "fe80::1%eth0:29500"}}, kC10d, "[fe80::1%eth0]:29500"},
      {{{"rdzv_endpoint", "1:2:3:4:5:6:7:8:9"}}, kC10d, "[1:2:3:4:5:6:7:8]:9"},
      {{{"rdzv_endpoint", "1:2:3:4:5:6:7:8"}}, kC10d, "[1:2:3:4:5:6:7:8]:29400"},
      {{{"rdzv_endpoint", " h:7\n"}}, kC10d, "h:7"},
      {{{"master_addr", "[::1]"}, {"nnodes", "2"}}, kStatic, "[::1]:29500"},
      {{{"rdzv_endpoint", "h:1"}, {"node_rank", "0"}}, kStatic, "h:1"},
      {{{"rdzv_endpoint", "h:1"}, {"master_addr", "x"}}, kStatic, "h:1"},
      {{{"rdzv_endpoint", "h:1"}, {"master_port", "5"}}, kStatic, "h:1"},
      {{{"rdzv_endpoint", "h:1"}, {"node_rank", "0"}, {"rdzv_backend", "c10d"}}, kC10d, "h:1"},
      {{{"rdzv_endpoint", "h:1"}, {"rdzv_backend", "grpc"}}, kC10d, "h:1"},
      {{{"rdzv_endpoint", "h:1"}, {"rdzv_backend", "static"}}, kStatic, "h:1"},
      {{{"rdzv_backend", "c10d"}, {"nnodes", "2"}}, kC10d, "localhost:29400"},
      {{{"rdzv_backend", "c10d"}}, kAlone, ":0"},
      {{{"rdzv_backend", "c10d"}, {"rdzv_endpoint", "localhost:0"}}, kAlone, ":0"},
      {{{"rdzv_endpoint", "node1:0"}}, kAlone, ":0"},
      {{{"rdzv_endpoint", "Node1.cluster.:0"}}, kAlone, ":0"},
      {{{"rdzv_endpoint", "10.0.0.7:0"}}, kAlone, ":0"},
      {{{"rdzv_endpoint", "[fd00::7]:0"}}, kAlone, ":0"},
      {{{"rdzv_endpoint", "node1:1"}}, kC10d, "node1:1"},
      {{{"rdzv_backend", "static"}}, kAlone, ":0"},
      {{{"master_addr", "x"}}, kAlone, ":0"},
      {{{"master_port", "5"}}, kStatic, "127.0.0.1:5"},
      {{{"master_addr", "x"}, {"nnodes", "2"}}, kStatic, "x:29500"},
      {{{"nnodes", "2"}, {"node_rank", "1"}}, kStatic, "127.0.0.1:29500"},
      {{{"standalone", "1"}, {"rdzv_backend", "static"}, {"rdzv_endpoint", "h:1"}}, kAlone, ":0"},
      {{{"standalone", "0"}, {"rdzv_endpoint", "h:1"}}, kC10d, "h:1"},
  };
  for (const Row& row : rows) {
    std::string words;
    for (const auto& [name, text] : row.options) words += " --" + name + "=" + text;
    CAPTURE(words);
    const LaunchConfig config = Built(row.options);
    CHECK(config.rendezvous == row.kind);
    CHECK(Text(config.endpoint) == row.endpoint);
    CHECK(config.node_rank.has_value() ==
          (row.kind == kStatic || words.find("node_rank") != std::string::npos));
  }
}

TEST_CASE("launch config: a short name is the machine of the full one, and no other") {
  const std::vector<std::string> own = {"node1.a", "10.0.0.7"};
  for (const char* host : {"node1", "NODE1.A", "node1.a.", "10.0.0.7", "localhost", "127.0.0.9"}) {
    CAPTURE(host);
    CHECK(NamesThisMachine(host, own));
  }
  for (const char* host : {"node1.b", "node10", "node", "10.0.0", "10.0.0.70", "a", ""}) {
    CAPTURE(host);
    CHECK(!NamesThisMachine(host, own));
  }
}

TEST_CASE("launch config: etcd is its members, and what --rdzv_conf says of it") {
  const LaunchConfig config =
      Built({{"rdzv_backend", "etcd"},
             {"rdzv_id", "j"},
             {"rdzv_endpoint", "h1, h2:7,[::1]:8"},
             {"rdzv_conf", "protocol=https,cacert=/ca,cert=/c,key=/k,user=u,etcd_prefix=/a/b/"},
             {"nnodes", "2"}});
  CHECK(config.rendezvous == RendezvousKind::kEtcd);
  REQUIRE(config.etcd_members.size() == 3);
  CHECK(Text(config.etcd_members[0]) == "h1:2379");
  CHECK(Text(config.etcd_members[1]) == "h2:7");
  CHECK(Text(config.etcd_members[2]) == "[::1]:8");
  const rendezvous::EtcdOptions& etcd = config.rendezvous_options.etcd;
  CHECK(etcd.is_tls);
  CHECK(etcd.authority_file == "/ca");
  CHECK(etcd.certificate_file == "/c");
  CHECK(etcd.key_file == "/k");
  CHECK(etcd.user == "u");
  CHECK(etcd.prefix == "/a/b");
  CHECK(config.warnings.size() == 1);  // it has no password
  const LaunchConfig plain = Built(
      {{"rdzv_backend", "etcd"}, {"rdzv_id", "j"}, {"rdzv_endpoint", "h"}, {"node_rank", "0"}});
  CHECK(plain.rendezvous == RendezvousKind::kEtcd);
  CHECK_FALSE(plain.rendezvous_options.etcd.is_tls);
  CHECK(plain.rendezvous_options.etcd.prefix == "/ddprun");
}

TEST_CASE("launch config: what is for etcd is named where nobody reads it, and a bare password") {
  const auto warning = [](const std::vector<std::pair<std::string, std::string>>& options) {
    const LaunchConfig config = Built(options);
    return config.warnings.empty() ? "" : config.warnings.front();
  };
  CHECK(warning({{"rdzv_endpoint", "h"}, {"rdzv_conf", "protocol=https,user=u"}}) ==
        "--rdzv-conf: protocol, user is not used: only the etcd backend reads it");
  const GivenOptions given = {{"rdzv_backend", {"etcd", "--rdzv-backend"}},
                              {"rdzv_id", {"j", "--rdzv-id"}},
                              {"rdzv_endpoint", {"h", "--rdzv-endpoint"}},
                              {"rdzv_conf", {"user=u", "--rdzv-conf"}}};
  for (const bool has_password : {false, true}) {
    const auto config = BuildLaunchConfig(given, {.has_etcd_password = has_password});
    REQUIRE(config.ok());
    REQUIRE(config->warnings.size() == 1);
    CHECK(config->warnings[0] ==
          (has_password ? "--rdzv-conf: the password goes over the network as it is; with "
                          "protocol=https it would not"
                        : "--rdzv-conf: the user 'u' has no password: DDPRUN_ETCD_PASSWORD is not "
                          "set, or empty"));
  }
  // As etcdctl has it, and as a key of its own.
  for (const char* conf :
       {"protocol=https,user=u:geheim", "protocol=https,user=u,password=geheim"}) {
    GivenOptions open = given;
    open["rdzv_conf"].text = conf;
    const auto config = BuildLaunchConfig(open, {.has_etcd_password = true});
    REQUIRE(config.ok());
    CHECK(config->rendezvous_options.etcd.user == "u");
    CHECK(config->warnings ==
          std::vector<std::string>{"--rdzv-conf: the password in it is not used, as others can "
                                   "read command lines and logs: "
                                   "DDPRUN_ETCD_PASSWORD is for it"});
  }
  GivenOptions nobody = given;
  nobody.erase("rdzv_conf");
  const auto without = BuildLaunchConfig(nobody, {.has_etcd_password = true});
  REQUIRE(without.ok());
  CHECK(without->warnings ==
        std::vector<std::string>{"DDPRUN_ETCD_PASSWORD is not used: --rdzv-conf user=NAME, whose "
                                 "password it is, is missing"});
}

TEST_CASE("launch config: an endpoint is assumed where nobody named its host") {
  CHECK(Built({{"nnodes", "2"}}).is_endpoint_assumed);
  CHECK(Built({{"nnodes", "2"}, {"master_port", "5"}}).is_endpoint_assumed);
  CHECK(Built({{"nnodes", "2"}, {"rdzv_backend", "c10d"}}).is_endpoint_assumed);
  CHECK_FALSE(Built({{"nnodes", "2"}, {"master_addr", "127.0.0.1"}}).is_endpoint_assumed);
  CHECK_FALSE(Built({{"nnodes", "2"}, {"rdzv_endpoint", "127.0.0.1:1"}}).is_endpoint_assumed);
  CHECK_FALSE(
      Built({{"nnodes", "2"}, {"rdzv_endpoint", "h:1"}, {"node_rank", "0"}}).is_endpoint_assumed);
  CHECK_FALSE(Built({}).is_endpoint_assumed);
}

TEST_CASE("config: a rank beside an endpoint means static, and one line says so") {
  const LaunchConfig config =
      Built({{"nnodes", "2"}, {"rdzv_endpoint", "h:1"}, {"node_rank", "0"}});
  CHECK(config.rendezvous == RendezvousKind::kStatic);
  REQUIRE(config.warnings.size() == 1);
  CHECK(config.warnings[0].find("--node-rank beside --rdzv-endpoint means --rdzv-backend=static") ==
        0);
  // Who has said which, or has named what only static knows, knows it.
  for (const std::string backend : {"static", "c10d"}) {
    CHECK(Built({{"nnodes", "2"},
                 {"rdzv_endpoint", "h:1"},
                 {"node_rank", "0"},
                 {"rdzv_backend", backend}})
              .warnings.empty());
  }
  CHECK(Built({{"nnodes", "2"}, {"master_addr", "h"}, {"node_rank", "0"}}).warnings.empty());
}

TEST_CASE("launch config: the run id is the given one, fresh when alone, else torchrun's none") {
  CHECK(Built({{"rdzv_id", "j"}}).run_id == "j");
  CHECK(Built({}).run_id == "fresh");
  CHECK(Built({{"rdzv_endpoint", "h:1"}}).run_id == "none");
  // An empty one is a fresh one in torchrun, too, which only a job of one node can use.
  CHECK(Built({{"rdzv_endpoint", "h:1"}, {"rdzv_id", ""}}).run_id == "fresh");
  CHECK(Built({{"rdzv_id", ""}}).run_id == "fresh");
}

TEST_CASE("launch config: node and worker counts") {
  CHECK(Built({{"nnodes", "1:4"}, {"rdzv_endpoint", "h"}}).nodes.min == 1);
  CHECK(Built({{"nnodes", "1:4"}, {"rdzv_endpoint", "h"}}).nodes.max == 4);
  CHECK(Built({{"nproc_per_node", "cpu"}}).workers_per_node == 6);
  CHECK(Built({{"nproc_per_node", "64"}}).workers_per_node == 64);
}

TEST_CASE("launch config: workers by GPU are left open, whatever depends on their number too") {
  const LaunchConfig config = Built({{"nproc_per_node", "gpu"}, {"tee", "0:1,7:1"}});
  CHECK(config.workers_by == WorkersBy::kGpu);
  CHECK(Built({{"nproc_per_node", "auto"}}).workers_by == WorkersBy::kGpuOrCpu);
  const LaunchConfig chosen = Built({{"nproc_per_node", "gpu:5,1,3"}});
  CHECK(chosen.workers_by == WorkersBy::kGpu);
  CHECK(chosen.gpus == std::vector<int>{5, 1, 3});
  CHECK(Built({{"nproc_per_node", "2"}}).workers_by == WorkersBy::kNumber);
}

TEST_CASE("launch config: rdzv_conf becomes typed options, with or without quotes") {
  for (const std::string quote : {"", "\"", "'"}) {
    const RendezvousConf options =
        Built({{"rdzv_conf", quote +
                                 "join_timeout=5, last_call_timeout = 0.25,is_host=true,"
                                 "keep_alive_interval=2,close_timeout=9" +
                                 quote}})
            .rendezvous_options;
    CHECK(options.join_timeout == seconds(5));
    CHECK(options.orphan_timeout == seconds(5));
    CHECK(options.last_call == milliseconds(250));
    CHECK(options.is_host == true);
    CHECK(options.evict_after == seconds(6));
    CHECK(options.keep_alive_interval == seconds(2));
  }
  const RendezvousConf defaults = Built({}).rendezvous_options;
  CHECK(defaults.join_timeout == seconds(600));
  CHECK(defaults.last_call == seconds(30));
  CHECK_FALSE(defaults.evict_after.has_value());
  CHECK_FALSE(defaults.is_host.has_value());
  CHECK(Built({{"rdzv_conf", "timeout=7"}}).rendezvous_options.join_timeout == seconds(7));
  CHECK(Built({{"rdzv_conf", "timeout=7,join_timeout=8,orphan_timeout=3"}})
            .rendezvous_options.orphan_timeout == seconds(3));
  CHECK(Built({{"rdzv_conf", "timeout=7,timeout=8"}}).rendezvous_options.join_timeout ==
        seconds(8));
}

TEST_CASE("launch config: torchrun's keys without a meaning here are taken in silence") {
  const LaunchConfig config = Built({{"rdzv_conf",
                                      "close_timeout=30,heartbeat_timeout=5,read_timeout=60,rank=1,"
                                      "store_type=TCP,timeout=900,cas_backoff_max_seconds=0"}});
  CHECK(config.warnings.empty());
  CHECK(config.rendezvous_options.join_timeout == seconds(900));
}

TEST_CASE("launch config: an unknown key of rdzv_conf is a warning that names the nearest") {
  const LaunchConfig config = Built({{"rdzv_conf", "jion_timeout=5,zzzzzzzzz=1"}});
  REQUIRE(config.warnings.size() == 2);
  CHECK(config.warnings[0] == Contains("'jion_timeout' is ignored; did you mean join_timeout?"));
  CHECK(config.warnings[1] == Contains("known keys: join_timeout"));
  CHECK(config.rendezvous_options.join_timeout == seconds(600));
}

TEST_CASE("launch config: the monitor interval is any number Python reads, and changes nothing") {
  for (const std::string text : {"0.1", "5", ".5", "1e-1", " 2 ", "inf"}) {
    CAPTURE(text);
    CHECK(Built({{"monitor_interval", text}}).warnings.empty());
  }
}

TEST_CASE("launch config: seconds may have decimals down to a nanosecond") {
  CHECK(Built({{"shutdown_timeout", "0"}}).shutdown_timeout == seconds(0));
  CHECK(Built({{"shutdown_timeout", "1.5"}}).shutdown_timeout == milliseconds(1500));
  CHECK(Built({{"shutdown_timeout", "0.0000000019"}}).shutdown_timeout == Duration(1));
}

TEST_CASE("launch config: streams for everyone or for each local rank, two digits included") {
  const LaunchConfig config =
      Built({{"nproc_per_node", "16"}, {"redirects", "0:1,12:3,12:2"}, {"tee", "3"}});
  CHECK(config.redirects.For(0) == Streams{.out = true, .err = false});
  CHECK(config.redirects.For(1) == Streams{});
  CHECK(config.redirects.For(12) == Streams{.out = false, .err = true});
  CHECK(config.tee.For(15) == Streams{.out = true, .err = true});
  CHECK(Built({}).tee.is_none());
}

TEST_CASE("launch config: options of the other backend are warned of") {
  const LaunchConfig config =
      Built({{"rdzv_backend", "c10d"}, {"rdzv_endpoint", "h:1"}, {"master_port", "5"}});
  REQUIRE(config.warnings.size() == 1);
  CHECK(config.warnings[0].find("--master-port '5' is not used") == 0);
}

}  // namespace
}  // namespace ddprun::launcher
