// Programs that hang, and tools, for the tests of dumps.
#ifndef DDPRUN_TESTS_LAUNCHER_DUMP_DUMP_TESTING_H_
#define DDPRUN_TESTS_LAUNCHER_DUMP_DUMP_TESTING_H_

#include <memory>
#include <string>

#include "launcher/dump/stack_reader.h"
#include "tests/support/subprocess.h"

namespace ddprun::testing {

// The program `stuck`, which hangs as `how` says: "asleep", "lock", "pipe", "busy", "secretive".
// Returns once the kernel says that it does.
std::unique_ptr<Subprocess> StartStuck(const std::string& how);

// A Python program that sleeps in train_step, line 3 of `file`, which it writes. Null: no Python.
std::unique_ptr<Subprocess> StartStuckPython(const std::string& file);

// The letter of /proc/<pid>/stat.
char StateLetter(int pid);

// A folder of $PATH in which `name` is, or, for py-spy, $DDPRUN_TEST_PY_SPY's; empty: none.
std::string FolderOfTool(const std::string& name);

// Of a folder with nothing but a shell script of that name, which it writes.
launcher::StackTools FakeTool(const std::string& folder, const std::string& name,
                              const std::string& script);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_LAUNCHER_DUMP_DUMP_TESTING_H_
