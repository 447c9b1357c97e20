// Whole files, as tests read and write them.
#ifndef DDPRUN_TESTS_SUPPORT_FILES_H_
#define DDPRUN_TESTS_SUPPORT_FILES_H_

#include <sys/types.h>

#include <string>

namespace ddprun::testing {

// Empty as well when there is no such file, or when it ends while it is read, as files of /proc do.
std::string ReadFile(const std::string& path);
// Makes or replaces the file, with exactly this mode; returns the path. A failure ends the test.
std::string WriteFile(const std::string& path, const std::string& bytes, mode_t mode = 0644);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_FILES_H_
