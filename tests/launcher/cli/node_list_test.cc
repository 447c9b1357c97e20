#include "launcher/cli/node_list.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace ddprun::launcher {
namespace {

std::string Expanded(const std::string& text) {
  const absl::StatusOr<std::vector<std::string>> names = ExpandNodeList(text);
  if (!names.ok()) return "error: " + std::string(names.status().message());
  return absl::StrJoin(*names, " ");
}

// Lists that Slurm reads, and what scontrol (22.05.8) makes of them.
const std::vector<std::vector<std::string>> kLists = {
    {"n1", "n1"},
    {"n[1-3]", "n1 n2 n3"},
    {"n[1-3,7],gpu[01-03]", "n1 n2 n3 n7 gpu01 gpu02 gpu03"},
    {"r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"},
    {"r[1-2]n[1-3]", "r1n1 r1n2 r1n3 r2n1 r2n2 r2n3"},
    {"a[1-2]b[1-2]c[1-2]", "a1b1c1 a1b1c2 a2b1c1 a2b1c2 a1b2c1 a1b2c2 a2b2c1 a2b2c2"},
    {"a[1-2]b[1-2]c[1-2]d[1-2]",
     "a1b1c1d1 a1b1c1d2 a2b1c1d1 a2b1c1d2 a1b2c1d1 a1b2c1d2 a2b2c1d1 a2b2c1d2 a1b1c2d1 a1b1c2d2 "
     "a2b1c2d1 a2b1c2d2 a1b2c2d1 a1b2c2d2 a2b2c2d1 a2b2c2d2"},
    {"a[1,3]b[2,1]", "a1b2 a1b1 a3b2 a3b1"},
    {"a[1-2]b[1-2],c[1-2]", "a1b1 a1b2 a2b1 a2b2 c1 c2"},
    {"a[1-2]b1[1-2]", "a1b11 a1b12 a2b11 a2b12"},
    {"n[1-3][1-2]", "n11 n12 n21 n22 n31 n32"},
    {"n1[2-3]", "n12 n13"},
    {"[1-3]", "1 2 3"},
    {"n[01-03]", "n01 n02 n03"},
    {"n[1-03]", "n1 n2 n3"},
    {"n[9-11]", "n9 n10 n11"},
    {"n[09-11]", "n09 n10 n11"},
    {"n[009-11]", "n009 n010 n011"},
    {"n[08-10,100]", "n08 n09 n10 n100"},
    {"n[001,010,100]", "n001 n010 n100"},
    {"n[0-0]", "n0"},
    {"n[99-101]", "n99 n100 n101"},
    {"n[99999998-99999999]", "n99999998 n99999999"},
    {"a,b,c", "a b c"},
    {"a,a", "a a"},
    {"n[1,1]", "n1 n1"},
    {"n[1-2],n[2-3]", "n1 n2 n2 n3"},
    {"n[3,1-2]", "n3 n1 n2"},
    {"n[1-2],", "n1 n2"},
    {",n1", "n1"},
    {"n1,,n2", "n1 n2"},
    {"n1 n2", "n1 n2"},
    {"n[1,2] n3", "n1 n2 n3"},
    {"node-1.example.com", "node-1.example.com"},
    {"node[1-2],login.example.com", "node1 node2 login.example.com"},
    {"10.0.0.[1-3]", "10.0.0.1 10.0.0.2 10.0.0.3"},
    {"ip-10-0-0-[5,9]", "ip-10-0-0-5 ip-10-0-0-9"},
    {"n.[1-2]", "n.1 n.2"},
    {"n_[1-2]", "n_1 n_2"},
    {"n-[1-2]", "n-1 n-2"},
    {"N[1-2]", "N1 N2"},
    {"queue1-dy-p4d24xlarge-[1-2]", "queue1-dy-p4d24xlarge-1 queue1-dy-p4d24xlarge-2"},
    {"jwb[0001-0002,1247]", "jwb0001 jwb0002 jwb1247"},
    {"nid[005001-005003]", "nid005001 nid005002 nid005003"},
    {"x1000c0s0b0n[0-1]", "x1000c0s0b0n0 x1000c0s0b0n1"},
};

// What it does not take, or only by accident.
const std::vector<std::vector<std::string>> kWrong = {
    {"", "expected the name of a node at least"},
    {",", "expected the name of a node at least"},
    {"n[3-1]", "'3-1' is no range"},
    {"n[]", "'' is no range"},
    {"n[1-]", "'1-' is no range"},
    {"n[-1]", "'-1' is no range"},
    {"n[a-b]", "'a-b' is no range"},
    {"n[1-3,]", "'' is no range"},
    {"n[,1]", "'' is no range"},
    {"n[1--3]", "'1--3' is no range"},
    {"n[1-3-5]", "'1-3-5' is no range"},
    {"n[ 1-2]", "' 1-2' is no range"},
    {"n[0x1-0x2]", "'0x1-0x2' is no range"},
    {"n[1e2]", "'1e2' is no range"},
    {"n[18446744073709551615-18446744073709551616]", "is no range"},
    {"n[1-2", "its brackets do not match"},
    {"n]1", "its brackets do not match"},
    {"n[[1-2]]", "its brackets do not match"},
    {"n[1-2]]", "its brackets do not match"},
    {"n[1-2]-ib", "expected nothing behind the last ]"},
    {"n[1-2]x,y", "expected nothing behind the last ]"},
    {"n[1-65537]", "expected at most 65536 names"},
    {"n[1-65536],m", "expected at most 65536 names"},
    {"n[0-999999999999999999]", "expected at most 65536 names"},
    {"n[1-300]m[1-300]", "expected at most 65536 names"},
    {"a[1-999]b[1-999]c[1-999]d[1-999]e[1-999]f[1-999]g[1-999]h[1-999]",
     "expected at most 65536 names"},
};

TEST_CASE("node list: what Slurm writes") {
  for (const std::vector<std::string>& list : kLists) CHECK(Expanded(list[0]) == list[1]);
}

TEST_CASE("node list: what is none is refused") {
  for (const std::vector<std::string>& list : kWrong) {
    CAPTURE(list[0]);
    const std::string error = Expanded(list[0]);
    CHECK_MESSAGE(error.find("error: ") == 0, error);
    CHECK(error == Contains(list[1]));
  }
}

TEST_CASE("node list: ten thousand nodes and more") {
  const auto names = ExpandNodeList("n[00001-10000]");
  REQUIRE(names.ok());
  CHECK(names->size() == 10000);
  CHECK(names->front() == "n00001");
  CHECK(names->back() == "n10000");
  CHECK(ExpandNodeList("n[1-65536]")->size() == 65536);
  CHECK(ExpandNodeList("n[1-256]m[1-256]")->size() == 65536);
}

TEST_CASE("node list: any text is a list or an error, and names stand for themselves") {
  const std::string alphabet = "n[]-,019 x\xc3";
  std::mt19937 random(7);
  size_t good = 0;
  for (int run = 0; run < 50000; ++run) {
    std::string text;
    for (size_t length = random() % 16; length > 0; --length) {
      text += alphabet[random() % alphabet.size()];
    }
    CAPTURE(text);
    const auto names = ExpandNodeList(text);
    if (!names.ok()) {
      CHECK(!names.status().message().empty());
      continue;
    }
    ++good;
    REQUIRE(!names->empty());
    REQUIRE(names->size() <= 65536);
    const auto again = ExpandNodeList(absl::StrJoin(*names, ","));
    REQUIRE(again.ok());
    REQUIRE(*again == *names);
  }
  CHECK(good > 5000);
}

TEST_CASE("node list: scontrol says the same") {
  const std::string scontrol = "/usr/bin/scontrol";
  if (access(scontrol.c_str(), X_OK) != 0) {
    return testing::SkipTest("no scontrol here; tools/setup --with-slurm installs it");
  }
  const testing::TempDir folder;
  const std::string conf = folder.path() / "slurm.conf";
  testing::WriteFile(
      conf, "ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n");
  for (const std::vector<std::string>& list : kLists) {
    testing::Subprocess judge({scontrol, "show", "hostnames", list[0]},
                              {.env = {{"SLURM_CONF", conf}}});
    REQUIRE_MESSAGE(judge.Wait() == 0, judge.Describe());
    const std::vector<std::string> names = absl::StrSplit(judge.out(), '\n', absl::SkipEmpty());
    CHECK(absl::StrJoin(names, " ") == list[1]);
  }
}

}  // namespace
}  // namespace ddprun::launcher
