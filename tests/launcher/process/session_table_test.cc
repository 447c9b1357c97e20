#include "launcher/process/session_table.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <new>

#include <doctest/doctest.h>

#include "launcher/process/leftovers.h"

namespace ddprun::launcher {
namespace {

TEST_CASE("session_table: a fork sees what is written afterwards") {
  void* memory = mmap(nullptr, sizeof(SessionTable), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  SessionTable* const table = new (memory) SessionTable();
  int go[2];
  REQUIRE(pipe(go) == 0);
  const pid_t reader = fork();
  if (reader == 0) {
    close(go[1]);
    char byte;
    // The end of the writer, as for the guardian.
    _exit(read(go[0], &byte, 1) == 0 && table->Meet(5) && !table->Meet(6) && table->Meet(7));
  }
  table->Add(5);
  table->Add(6);
  table->Remove(6);
  table->Add(7);
  close(go[1]);
  int status = 0;
  REQUIRE(waitpid(reader, &status, 0) == reader);
  close(go[0]);
  munmap(memory, sizeof(SessionTable));
  CHECK(WEXITSTATUS(status) == 1);
}

TEST_CASE("session_table: removing a session that was added twice leaves none of it") {
  // A worker that was given up keeps its slot; its number may come again.
  SessionTable table;
  table.Add(5);
  table.Add(5);
  table.Remove(5);
  CHECK_FALSE(table.Meet(5));
}

TEST_CASE("session_table: what is beyond its capacity is not held, and harms nobody") {
  SessionTable table;
  const pid_t capacity = SessionTable::kCapacity;
  for (pid_t session = 1; session <= capacity + 5; ++session) table.Add(session);
  CHECK(table.Meet(capacity));
  CHECK_FALSE(table.Meet(capacity + 1));
  table.Remove(capacity + 1);
  table.Remove(7);
  table.Add(capacity + 2);
  CHECK(table.Meet(capacity + 2));
}

TEST_CASE("session_table: a free slot is nobody's session") {
  // The kernel's threads and processes from outside the pid namespace are in session 0.
  SessionTable table;
  CHECK_FALSE(table.Meet(0));
  CHECK(SignalLeftovers({.sessions = &table}, 0) == 0);
}

TEST_CASE("session_table: a session ends with the last member of its process group") {
  SessionTable table;
  int left[2];
  REQUIRE(pipe(left) == 0);
  // A leader that ends and leaves a helper in its group, which becomes our child.
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
  const pid_t leader = fork();
  if (leader == 0) {
    setsid();
    const pid_t helper = fork();
    if (helper == 0) {
      for (;;) pause();
    }
    _exit(write(left[1], &helper, sizeof(helper)) < 0);
  }
  pid_t helper = 0;
  REQUIRE(read(left[0], &helper, sizeof(helper)) == static_cast<ssize_t>(sizeof(helper)));
  REQUIRE(waitpid(leader, nullptr, 0) == leader);
  close(left[0]);
  close(left[1]);
  table.Add(leader);

  table.RemoveEnded();
  CHECK_FALSE(table.is_empty());

  kill(helper, SIGKILL);
  REQUIRE(waitpid(helper, nullptr, 0) == helper);
  table.RemoveEnded();
  CHECK(table.is_empty());
}

TEST_CASE("session_table: a session whose group is empty stays until a walk has not met it") {
  SessionTable table;
  const pid_t leader = fork();
  if (leader == 0) _exit(0);
  REQUIRE(waitpid(leader, nullptr, 0) == leader);
  table.Add(leader);

  CHECK(table.Meet(leader));
  CHECK_FALSE(table.Meet(leader + 1));
  table.RemoveEnded();
  CHECK_FALSE(table.is_empty());

  table.RemoveEnded();
  CHECK(table.is_empty());
}

}  // namespace
}  // namespace ddprun::launcher
