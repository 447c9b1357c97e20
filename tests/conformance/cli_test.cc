// Command lines: what torchrun takes ddprun takes, what it refuses ddprun refuses, in one line that
// names what is wrong. When torchrun is recorded, its own code runs many of them in one process
// (parse_many.py).
#include <cstdio>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/conformance/recorder.h"
#include "tests/conformance/scenario.h"
#include "tests/support/temp_dir.h"
#include "tests/support/torch_python.h"

namespace ddprun::testing {
namespace {

using Words = std::vector<std::string>;

std::string FieldOf(Words line) {
  line.insert(line.begin(), "torchrun");
  return ShellLine(line);
}

std::string Json(const Words& words) {
  std::string text = "[";
  for (const std::string& word : words) {
    text += text.size() == 1 ? "\"" : ", \"";
    for (const char c : word)
      text += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    text += '"';
  }
  return text + "]";
}

std::string ClassOf(int code) { return code == 0 ? "taken" : "refused"; }

// Each command line, in `dir`, with what becomes of it.
Observed UnderTorchrun(const std::vector<Words>& lines, const TempDir& dir) {
  std::ofstream input(dir.File("lines"));
  for (const Words& line : lines) input << Json(line) << "\n";
  input.close();
  Subprocess many({"/bin/sh", "-c", "exec \"$0\" \"$1\" <lines", FindTorchPython().python,
                   Runfile("tests/conformance/programs/parse_many.py")},
                  {.env = {{"TMPDIR", dir.File("")}}, .working_dir = dir.File("")});
  CHECK_MESSAGE(many.Wait(std::chrono::seconds(240)) == 0, many.Describe());
  Observed observed;
  std::stringstream answers(many.out());
  for (const Words& line : lines) {
    int code = -1;
    answers >> code;
    CHECK_MESSAGE(code >= 0, many.Describe());
    observed[FieldOf(line)] = ClassOf(code);
  }
  return observed;
}

Observed UnderDdprun(const std::vector<Words>& lines, const TempDir& dir) {
  Observed observed;
  for (const Words& line : lines) {
    Job job;
    auto ddprun = job.RunRaw(line, {.env = {{"TMPDIR", dir.File("")}, {"OMP_NUM_THREADS", "1"}},
                                    .working_dir = dir.File("")});
    const std::optional<int> code = ddprun->Wait();
    REQUIRE_MESSAGE(code.has_value(), ddprun->Describe());
    observed[FieldOf(line)] = ClassOf(*code);
    if (*code == 0) continue;
    // One line, before anything was started.
    const std::string err = ddprun->err();
    CHECK_MESSAGE((*code == 2 || *code == 120 || *code == 121), ddprun->Describe());
    CHECK_MESSAGE(std::count(err.begin(), err.end(), '\n') == 1, ddprun->Describe());
    CHECK_MESSAGE(err.rfind("ddprun: ", 0) == 0, ddprun->Describe());
  }
  return observed;
}

void CompareLines(const std::string& scenario, const std::vector<Words>& lines) {
  const TempDir theirs;
  const TempDir ours;
  for (const TempDir* dir : {&theirs, &ours}) std::ofstream(dir->File("file")) << "a file\n";
  // A line that is in one of them alone is a difference.
  std::optional<Observed> torchrun;
  if (IsRecording()) {
    torchrun = UnderTorchrun(lines, theirs);
    Record(scenario, {.seen = *torchrun});
  } else {
    torchrun = Recorded(scenario, {});
  }
  if (!torchrun) return;
  const std::vector<std::string> complaints =
      Judge(DifferenceTable(), scenario, *torchrun, UnderDdprun(lines, ours));
  for (const std::string& complaint : complaints) FAIL_CHECK(complaint);
}

Words True(Words words) {
  words.insert(words.end(), {"--no_python", "/bin/true"});
  return words;
}

TEST_CASE("conformance: what is wrong with a command line is refused") {
  const std::string name = "refused";
  const std::string c10d = "--rdzv_backend=c10d";
  CompareLines(name, {True({"--nnodes=2:20:30"}),
                      True({"--nnodes=two"}),
                      True({"--nnodes=0"}),
                      True({"--nnodes=3:2"}),
                      True({"--nnodes="}),
                      True({"--nproc_per_node=0"}),
                      True({"--nproc_per_node=-1"}),
                      True({"--nproc_per_node=many"}),
                      True({"--nproc_per_node=xpu"}),
                      True({"--nproc_per_node=1.5"}),
                      True({"-r", "4"}),
                      True({"-r", "0:1,"}),
                      True({"-r", "0:4"}),
                      True({"--redirects=all"}),
                      True({"-t", "0:1,1"}),
                      True({"--tee", "x"}),
                      True({c10d, "--rdzv_endpoint=localhost:99999"}),
                      True({c10d, "--rdzv_endpoint=local host:1"}),
                      True({c10d, "--rdzv_endpoint=localhost:port"}),
                      True({"--rdzv_backend=nothing", "--rdzv_endpoint=localhost:1"}),
                      True({c10d, "--rdzv_conf=join_timeout"}),
                      True({c10d, "--rdzv_conf=join_timeout="}),
                      True({c10d, "--rdzv_conf=join_timeout=soon"}),
                      True({c10d, "--rdzv_conf=join_timeout=0"}),
                      True({c10d, "--rdzv_conf=last_call_timeout=-1"}),
                      True({c10d, "--rdzv_conf=is_host=maybe"}),
                      True({"--max_restarts=-1"}),
                      True({"--max_restarts=some"}),
                      True({"--monitor_interval=0"}),
                      True({"--monitor_interval=x"}),
                      True({"--shutdown_timeout=-1"}),
                      True({"--shutdown_timeout=x"}),
                      True({"--node_rank=x"}),
                      True({"--master_port=x"}),
                      True({"--standalone=1"}),
                      True({"--unknown"}),
                      True({"--n=1"}),
                      True({"--log_dir=file", "-r", "3"}),
                      {"--standalone"},
                      {},
                      {"--nnodes"},
                      {"--use_env", "/bin/true"}});
}

TEST_CASE("conformance: what is unusual about a command line is taken") {
  const std::string name = "taken";
  CompareLines(name, {True({"--nnodes=1:1"}),
                      True({"--nnodes", "1"}),
                      True({"-r3"}),
                      True({"--redirect=3"}),
                      True({"-t", "0:3"}),
                      True({"--max-restarts", "2"}),
                      True({"--monitor-interval", "5"}),
                      True({"--shutdown-timeout", "0"}),
                      True({"--standalone", "--rdzv_conf=unheard_of=1"}),
                      True({"--standalone", "--rdzv_conf=timeout=5, join_timeout = 60"}),
                      True({"--standalone", "--node_rank=0", "--rdzv_id=x"}),
                      True({"--standalone", "--master_addr=nowhere.invalid"}),
                      True({"--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0"}),
                      True({"--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0"}),
                      True({"--local_addr=127.0.0.1"}),
                      True({"--log_dir=new/folder", "--tee=3"}),
                      True({"--log-dir", "/dev/null"}),
                      True({"--role", ""}),
                      {"--no-python", "/bin/true", "--nnodes=two", "-r", "9"},
                      {"--help"}});
}

}  // namespace
}  // namespace ddprun::testing
