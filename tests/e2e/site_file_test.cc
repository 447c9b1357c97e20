// The file with a site's defaults, as a ddprun finds it on disk.
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

std::string WriteSite(const Job& job, const std::string& text, mode_t mode = 0644) {
  return WriteFile(job.File("site.env"), text, mode);
}

// The error of a job that ends with 2 before a worker starts.
std::string RefusalOf(Job& job, const std::string& site) {
  auto ddprun =
      job.Run({}, {"touch:" + job.File("started")}, {.env = {{"DDPRUN_SITE_FILE", site}}});
  CHECK_MESSAGE(ddprun->Wait() == 2, ddprun->Describe());
  CHECK_FALSE(job.HasFile("started"));
  return ddprun->err();
}

TEST_CASE("site file: it gives options to a job, and the log says which") {
  Job job;
  const std::string site = WriteSite(
      job, "# all jobs\nPET_NPROC_PER_NODE=2\nDDPRUN_REPORT_FILE=" + job.File("report") + "\n");
  auto ddprun =
      job.Run({}, {"exit:3"}, {.env = {{"DDPRUN_SITE_FILE", site}, {"DDPRUN_LOG_LEVEL", "info"}}});
  CHECK_MESSAGE(ddprun->Wait() == 3, ddprun->Describe());
  CHECK(ddprun->err() == Contains("defaults of " + site + ": --nproc-per-node=2 --report-file=" +
                                  job.File("report") + "\n"));
  CHECK(ReadFile(job.File("report")) == Contains("\"exit_code\""));
}

TEST_CASE("site file: an empty name means none, and a name of nothing is an error") {
  Job job;
  auto none = job.RunProgram(
      {"/usr/bin/env", "DDPRUN_SITE_FILE=", Runfile("ddprun"), Runfile("tests/e2e/toy_worker")});
  CHECK_MESSAGE(none->Wait() == 0, none->Describe());
  CHECK(RefusalOf(job, job.File("missing")) ==
        "ddprun: error: the site's defaults, '" + job.File("missing") +
            "': No such file or directory; without them: DDPRUN_SITE_FILE= ddprun ...\n");
}

TEST_CASE("site file: a wrong line ends the job with 2 and is named") {
  Job job;
  const std::string site = WriteSite(job, "\nNCCL_DEBUG=INFO\n");
  CHECK(RefusalOf(job, site) ==
        Contains("ddprun: error: " + site + ":2: 'NCCL_DEBUG' is no option's variable"));
}

TEST_CASE("site file: one that others may write or that is no plain file is refused") {
  Job job;
  const std::string site = WriteSite(job, "PET_ROLE=x\n");
  for (const mode_t mode : {0664, 0646}) {
    REQUIRE(chmod(site.c_str(), mode) == 0);
    CHECK(RefusalOf(job, site) == Contains("so others may write it; chmod 644 it"));
  }
  REQUIRE(chmod(site.c_str(), 0644) == 0);
  CHECK(RefusalOf(job, job.File(".")) == Contains("it is no regular file"));
  const std::string fifo = job.File("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(RefusalOf(job, fifo) == Contains("it is no regular file"));
  CHECK(RefusalOf(job, WriteSite(job, std::string(64 * 1024 + 1, '\n'))) ==
        Contains("it is too long; expected at most 65536 bytes"));
  auto most = job.Run(
      {}, {}, {.env = {{"DDPRUN_SITE_FILE", WriteSite(job, std::string(64 * 1024, '\n'))}}});
  CHECK_MESSAGE(most->Wait() == 0, most->Describe());
}

TEST_CASE("site file: one of another user is refused") {
  if (geteuid() != 0) return SkipTest("only root gives a file away");
  Job job;
  const std::string site = WriteSite(job, "PET_ROLE=x\n");
  REQUIRE(chown(site.c_str(), 65534, 65534) == 0);
  CHECK(RefusalOf(job, site) == Contains("it belongs to user 65534; expected root's or your own"));
}

}  // namespace
}  // namespace ddprun::testing
