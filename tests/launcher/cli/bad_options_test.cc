// What the command line refuses: each row is one input, and what its one line must say.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/cli/cli.h"
#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

std::string ErrorOf(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"ddprun"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const Environment environment = {.machine = {.cpu_count = 6, .fresh_run_id = "f00d"}};
  const absl::StatusOr<ParseResult> result =
      ParseCommandLine(static_cast<int>(argv.size()), argv.data(), environment);
  if (result.ok()) return "accepted";
  CHECK(result.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

struct BadRow {
  std::vector<std::string> words;
  std::string quoted;    // the value, as the message quotes it
  std::string accepted;  // part of what it says instead
};

// About the command line as such, nodes and workers.
std::vector<BadRow> BadShapeRows() {
  return {
      {{}, "no program given", "PROGRAM"},
      {{"--nnodes=1"}, "no program given", "PROGRAM"},
      {{"stop", ""}, "stop ''", "the id of a job"},
      {{"status", "--json", ""}, "status ''", "the id of a job"},
      {{"--nnodes=1", "--"}, "no program given", "PROGRAM"},
      {{"--nproc_per_nodes=4", "p"}, "'--nproc_per_nodes'", "--nproc-per-node?"},
      {{"--nproc-pre-node=4", "p"}, "'--nproc-pre-node'", "--nproc-per-node?"},
      {{"--no_such_thing_at_all", "p"}, "'--no_such_thing_at_all'", "ddprun --help"},
      {{"--n=1", "p"}, "'--n'", "could be --nnodes, --nproc-per-node, --node-rank"},
      {{"--=1", "p"}, "'--'", "unknown option"},
      {{"--use-env", "p"}, "'--use-env'", "torch.distributed.launch's; leave it out"},
      {{"--logs-specs=mine", "p"}, "'mine'", "--redirects"},
      {{"--start-method=thread", "p"}, "'thread'", "spawn, fork, forkserver"},
      {{"--event-log-handler=mine", "p"},
       "'mine'",
       "expected null, console, dynamic_rendezvous (a handler registered in Python is out of"},
      {{"--nprocs=4", "p"}, "'--nprocs'", "; use --nproc-per-node "},
      {{"--num-machines", "2", "p"}, "'--num-machines'", "; use --nnodes "},
      {{"-x", "p"}, "'-x'", "unknown option"},
      {{"-5", "p"}, "'-5'", "unknown option"},
      {{"-hx", "p"}, "'-hx'", "unknown option"},
      {{"-mx", "pkg"}, "'-mx'", "unknown option"},
      {{"--numa-binding=nodes", "p"}, "'nodes'", "node, socket, exclusive or core-complex"},
      {{"--report-file=a", "--termination-message-file=a", "p"}, "'a'", "--report-file names it"},
      {{"--report-file=", "p"}, "--report-file ''", "expected a path"},
      {{"--termination-message-file=", "p"}, "--termination-message-file ''", "expected a path"},
      {{"--event-file=", "p"}, "--event-file ''", "expected a path"},
      {{"--numa-binding=", "p"}, "''", "node, socket, exclusive or core-complex"},
      {{"--virtual-local-rank=1", "p"}, "'1'", "no value"},
      {{"--nnodes"}, "'--nnodes'", "needs a value"},
      {{"--standalone=yes", "p"}, "'yes'", "no value"},
      {{"--nnodes=0", "p"}, "'0'", "1 <= MIN <= MAX"},
      {{"--nnodes=-1", "p"}, "'-1'", "1 <= MIN <= MAX"},
      {{"--nnodes=3:2", "p"}, "'3:2'", "1 <= MIN <= MAX"},
      {{"--nnodes=1:", "p"}, "'1:'", "1 <= MIN <= MAX"},
      {{"--nnodes=:3", "p"}, "':3'", "1 <= MIN <= MAX"},
      {{"--nnodes=2:20:30", "p"}, "'2:20:30'", "MIN:MAX"},
      {{"--nnodes=1e3", "p"}, "'1e3'", "MIN:MAX"},
      {{"--nnodes=4294967296", "p"}, "'4294967296'", "MIN:MAX"},
      {{"--nnodes=4294967297", "p"}, "'4294967297'", "MIN:MAX"},
      {{"--nnodes= 2", "p"}, "' 2'", "MIN:MAX"},
      {{"--nnodes=\xd9\xa2", "p"}, "'\xd9\xa2'", "MIN:MAX"},
      {{"--nproc-per-node=0", "p"}, "'0'", "cpu"},
      {{"--nproc-per-node=gpus", "p"}, "'gpus'", "gpu, gpu:INDEX,..., auto, or cpu (6 here)"},
      {{"--nproc-per-node=many", "p"}, "'many'", "auto, or cpu (6 here)"},
      {{"--nproc-per-node=99999999999", "p"}, "'99999999999'", "expected a number from 1 to 4096"},
      {{"--nproc-per-node=GPU", "p"}, "'GPU'", "gpu, gpu:INDEX"},
      {{"--nproc-per-node=gpu ", "p"}, "'gpu '", "gpu, gpu:INDEX"},
      {{"--nproc-per-node=xpu", "p"},
       "'xpu'",
       "Intel's GPUs are not counted; expected a number from 1"},
      {{"--nproc-per-node=gpu:", "p"}, "'gpu:'", "as in gpu:1,3,5"},
      {{"--nproc-per-node=gpu:1,,3", "p"}, "'gpu:1,,3'", "each once"},
      {{"--nproc-per-node=gpu:1,3,1", "p"}, "'gpu:1,3,1'", "each once"},
      {{"--nproc-per-node=gpu:-1", "p"}, "'gpu:-1'", "each once"},
      {{"--nproc-per-node=gpu", "--nnodes=0", "p"}, "'0'", "1 <= MIN <= MAX"},
      {{"--nproc-per-node=-3", "p"}, "'-3'", "from 1"},
      {{"--node-rank=2", "--nnodes=2", "p"}, "'2'", "from 0 to 1"},
      {{"--node-rank=5", "--nnodes=2", "--master-addr=127.0.0.1", "p"}, "'5'", "from 0 to 1"},
      {{"--node-rank=x", "p"}, "'x'", "a number"},
  };
}

// About etcd.
std::vector<BadRow> BadEtcdRows() {
  return {
      {{"--rdzv-backend=etcd", "--rdzv-id=j", "p"}, "'etcd'", "--rdzv-endpoint HOST:PORT"},
      {{"--rdzv-backend=etcd", "--rdzv-endpoint=h", "p"}, "'etcd'", "--rdzv-id"},
      {{"--rdzv-backend=etcd", "--rdzv-id=j", "--rdzv-endpoint=h,:1", "p"}, "'h,:1'", "HOST:PORT"},
      {{"--rdzv-backend=etcd", "--rdzv-id=j", "--rdzv-endpoint=h,,i", "p"}, "'h,,i'", "HOST:PORT"},
      {{"--rdzv-backend=etcd", "--rdzv-id=j", "--rdzv-endpoint=h:0", "p"}, "'h:0'", "members"},
      {{"--rdzv-backend=etcd", "--rdzv-id=j", "--rdzv-endpoint=http://h:1", "p"},
       "'http://h:1'",
       "protocol=https"},
      {{"--rdzv-endpoint=http://joe:hush@h:1", "p"}, "'http://joe:...@h:1'", "HOST:PORT"},
      {{"--rdzv-endpoint=http://hush@h:1", "p"}, "'http://...@h:1'", "HOST:PORT"},
      {{"--rdzv-backend=etcd", "--rdzv-id=j",
        "--rdzv-endpoint=https://joe:h,u@sh@h:1,http://i:2,http://ann:hush@j:3", "p"},
       "'https://joe:...@h:1,http://i:2,http://ann:...@j:3'",
       "HOST:PORT"},
      {{"--rdzv-backend=etcd-v2", "p"}, "'etcd-v2'", "use --rdzv-backend=etcd"},
      {{"--rdzv-conf=protocol=ftp", "p"}, "'protocol=ftp'", "http or https"},
      {{"--rdzv-conf=cacert=/ca", "p"}, "'cacert=/ca'", "protocol=https"},
      {{"--rdzv-conf=protocol=https,cert=/c", "p"}, "'protocol=https,cert=/c'", "cert and key"},
      {{"--rdzv-conf=user=u:geheim,password=geheim,timeout=x", "p"}, "timeout 'x'", "seconds"},
      {{"--rdzv-conf=user=u:geheim,password=geheim,cacert=/c", "p"},
       "'user=u:...,password=...,cacert=/c'",
       "protocol=https"},
      {{"--rdzv-conf=etcd_prefix=/", "p"}, "'etcd_prefix=/'", "/ddprun"},
  };
}

// About the rendezvous, limits and output.
// no limit: all are refused
std::vector<BadRow> BadValueRows() {
  const std::string long_host(300, 'h');
  return {
      {{"--rdzv-endpoint=host:70000", "p"}, "'host:70000'", "between 0 and 65535"},
      {{"--rdzv-endpoint=host:", "p"}, "'host:'", "HOST:PORT"},
      {{"--rdzv-endpoint=host:0", "p"}, "'host:0'", "no name or address of it is that host"},
      {{"--nnodes=2", "--rdzv-endpoint=localhost:0", "p"}, "'localhost:0'", "--nnodes=1"},
      {{"--nnodes=2", "--rdzv-endpoint=0.0.0.0:1", "p"}, "'0.0.0.0:1'", "no machine's address"},
      {{"--nnodes=2", "--rdzv-endpoint=[0::0]:1", "p"}, "'[0::0]:1'", "no machine's address"},
      {{"--nnodes=2", "--rdzv-endpoint=[::]:1", "p"}, "'[::]:1'", "no machine's address"},
      {{"--nnodes=2", "--rdzv-endpoint=0:1", "p"}, "'0:1'", "no machine's address"},
      {{"--nnodes=2", "--rdzv-endpoint=0x0.00:1", "p"}, "'0x0.00:1'", "no machine's address"},
      {{"--nnodes=2", "--rdzv-endpoint=[::FFFF:0.0.0.0]:1", "p"},
       "'[::FFFF:0.0.0.0]:1'",
       "no machine's address"},
      {{"--nnodes=2", "--rdzv-endpoint=[::ffff:0:0]:1", "p"},
       "'[::ffff:0:0]:1'",
       "no machine's address"},
      {{"--node-rank=1", "--nnodes=2", "--master-addr=0.0.0.0", "p"}, "'0.0.0.0'", "no machine's"},
      {{"--nnodes=2", "--rdzv-endpoint=fe80::1:29400", "p"}, "'fe80::1:29400'", "[fe80::1%eth0]"},
      {{"--nnodes=2", "--rdzv-endpoint=[FEBF::1]", "p"}, "'[FEBF::1]'", "[FEBF::1%eth0]"},
      {{"--node-rank=1", "--nnodes=2", "--master-addr=fe80::1", "p"}, "'fe80::1'", "%eth0"},
      {{"--rdzv-endpoint=:29500", "p"}, "':29500'", "HOST:PORT"},
      {{"--rdzv-endpoint=[::1", "p"}, "'[::1'", "[IPV6]:PORT"},
      {{"--rdzv-endpoint=[host]:1", "p"}, "'[host]:1'", "[IPV6]:PORT"},
      {{"--rdzv-endpoint=[::1]29500", "p"}, "'[::1]29500'", "[IPV6]:PORT"},
      {{"--rdzv-endpoint=http://h:1", "p"}, "'http://h:1'", "HOST:PORT"},
      {{"--rdzv-endpoint=a\nb:1", "p"}, "'a\\nb:1'", "HOST:PORT"},
      {{"--rdzv-endpoint=" + long_host, "p"}, "'hhhhh", "HOST:PORT"},
      {{"--nnodes=2", "--rdzv-endpoint=", "p"},
       "--rdzv-endpoint ''",
       "is a shell variable in it unset?"},
      {{"--rdzv-endpoint=fe80::1:2940", "p"}, "'fe80::1:2940'", "[fe80::1]:2940"},
      {{"--rdzv-endpoint=a:b:1", "p"}, "'a:b:1'", "[IPV6]:PORT"},
      {{"--rdzv-endpoint=::1::2:5", "p"}, "'::1::2:5'", "[IPV6]:PORT"},
      {{"--rdzv-backend=zookeeper", "p"}, "'zookeeper'", "expected c10d, grpc, etcd or static"},
      {{"--rdzv-backend=c10", "p"}, "'c10'", "static; did you mean c10d?"},
      {{"--rdzv-backend=static", "--rdzv-endpoint=host", "p"}, "'host'", "HOST:PORT"},
      {{"--rdzv-backend=static", "--rdzv-endpoint=h:0", "p"}, "'h:0'", "above 0"},
      {{"--rdzv-backend=static", "--nnodes=1:2", "p"}, "'1:2'", "fixed number"},
      {{"--nnodes=1:2", "p"}, "'1:2'", "--rdzv-endpoint"},
      {{"--standalone", "--nnodes=2", "p"}, "'2'", "--nnodes=1"},
      {{"--rdzv-conf=join_timeout", "p"}, "'join_timeout'", "<key>=<value>"},
      {{"--rdzv-conf=join_timeout=", "p"}, "'join_timeout='", "needs a value"},
      {{"--rdzv-conf=join_timeout=0", "p"}, "'0'", "more than 0"},
      {{"--rdzv-conf=join_timeout=5x", "p"}, "'5x'", "seconds"},
      {{"--rdzv-conf=join_timeout=1e400", "p"}, "'1e400'", "seconds"},
      {{"--rdzv-conf=is_host=maybe", "p"}, "'maybe'", "true or false"},
      {{"--rdzv-conf=store_type=file", "p"}, "'file'", "tcp"},
      {{"--rdzv-conf=close_timeout=x", "p"}, "close_timeout 'x'", "seconds"},
      {{"--rdzv-conf=heartbeat_timeout=0", "p"}, "heartbeat_timeout '0'", "more than 0"},
      {{"--rdzv-conf=read_timeout=-1", "p"}, "read_timeout '-1'", "more than 0"},
      {{"--rdzv-conf=keep_alive_max_attempt=1.5", "p"}, "'1.5'", "a number"},
      {{"--rdzv-conf=keep_alive_interval=0.05,keep_alive_max_attempt=5", "p"},
       "keep_alive_max_attempt is 0.25 s",
       "at least 0.3 s"},
      {{"--rdzv-conf=keep_alive_interval=0.09", "p"}, "is 0.27 s", "at least 0.3 s"},
      {{"--rdzv-conf=rank=x", "p"}, "rank 'x'", "a number"},
      {{"--rdzv-endpoint=:29400", "--nnodes=2", "p"}, "':29400'", "the host is missing"},
      {{"--rdzv-id=", "--nnodes=2", "p"}, "--rdzv-id ''", "the same on all nodes"},
      {{"--rdzv-id", "", "--nnodes=1:2", "--rdzv-endpoint=h", "p"}, "''", "the same on all nodes"},
      {{"--rdzv-id=a\nb", "p"}, "'a\\nb'", "printable"},
      {{"--max-restarts=-1", "p"}, "'-1'", "from 0"},
      {{"--max-restarts=1.5", "p"}, "'1.5'", "a number"},
      {{"--monitor-interval=0", "p"}, "'0'", "more than 0"},
      {{"--monitor-interval=x", "p"}, "'x'", "more than 0"},
      {{"--monitor-interval=nan", "p"}, "'nan'", "more than 0"},
      {{"--shutdown-timeout=-5", "p"}, "'-5'", "0 to 31536000"},
      {{"--shutdown-timeout=5x", "p"}, "'5x'", "seconds"},
      {{"--master-port=99999", "--nnodes=2", "p"}, "'99999'", "from 1 to 65535"},
      {{"--master-addr=a b", "--nnodes=2", "p"}, "'a b'", "host name"},
      {{"--local-addr=a/b", "p"}, "'a/b'", "host name"},
      {{"-r", "4", "p"}, "'4'", "3 (both)"},
      {{"-r", "0:1,", "p"}, "'0:1,'", "0:1,12:3"},
      {{"-t", "0:1,1:9", "p"}, "'0:1,1:9'", "0:1,12:3"},
      {{"-t", "0:1,4096:3", "p"}, "'0:1,4096:3'", "0:1,12:3"},
      {{"--local-ranks-filter=0;1", "p"}, "'0;1'", "as in 0,1,12"},
      {{"--duplicate-stdout-filters=a,", "p"}, "'a,'", ",, for a comma"},
      {{"--duplicate-stderr-filters", ",", "p"}, "','", ",, for a comma"},
  };
}

std::vector<BadRow> BadRows() {
  std::vector<BadRow> rows = BadShapeRows();
  for (BadRow& row : BadEtcdRows()) rows.push_back(std::move(row));
  for (BadRow& row : BadValueRows()) rows.push_back(std::move(row));
  return rows;
}

TEST_CASE("cli: every bad input is one line that quotes the value and says what is accepted") {
  for (const BadRow& row : BadRows()) {
    const std::string error = ErrorOf(row.words);
    CAPTURE(row.quoted);
    CAPTURE(error);
    CHECK(error != Contains("\n"));
    CHECK(error.size() < 500);
    CHECK(error == Contains(row.quoted));
    CHECK(error == Contains(row.accepted));
  }
}

}  // namespace
}  // namespace ddprun::launcher
