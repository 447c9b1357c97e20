// Puts what is generated into the reference pages.
#ifndef DDPRUN_TOOLS_REFERENCE_PROGRAM_PAGES_H_
#define DDPRUN_TOOLS_REFERENCE_PROGRAM_PAGES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun::reference {

// Paths of the files that are generated, whole or in parts, each once.
std::vector<std::string> GeneratedFiles();

// The file with its generated parts as the product's tables have them. `text`: as it is now, empty
// without a file. InvalidArgument: a mark in it is missing, no table is for a mark, or the samples
// of a schema lack something.
absl::StatusOr<std::string> UpToDate(const std::string& path, const std::string& text);

}  // namespace ddprun::reference

#endif  // DDPRUN_TOOLS_REFERENCE_PROGRAM_PAGES_H_
