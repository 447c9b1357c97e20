// The file by which an agent asks its workers to stop, from the agent's side.
#ifndef DDPRUN_TESTS_SUPPORT_STOP_FILE_H_
#define DDPRUN_TESTS_SUPPORT_STOP_FILE_H_

#include <string>

#include "worker_runtime/progress_word.h"

namespace ddprun::testing {

// As an agent makes it: nothing asked, nothing heard. Returns the path.
std::string MakeStopFile(const std::string& path);
// Asks. The file stays the same one, so that who has mapped it sees it.
void RequestStop(const std::string& path);
// Whether a worker has heard it.
bool HasHeardStop(const std::string& path);
// What a worker says of its progress there.
ddp::internal::ProgressShare ProgressIn(const std::string& path);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_STOP_FILE_H_
