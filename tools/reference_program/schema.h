// A JSON schema of documents, from samples of them.
#ifndef DDPRUN_TOOLS_REFERENCE_PROGRAM_SCHEMA_H_
#define DDPRUN_TOOLS_REFERENCE_PROGRAM_SCHEMA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun::reference {

using Json = nlohmann::ordered_json;

// What all samples fit in, and no more: members and types are those that they have. A member is
// required if all have it. InvalidArgument names a member that no sample has a value for, or a list
// without an item: its type is unknown. REQUIRES: at least one sample.
absl::StatusOr<Json> SchemaOf(const std::vector<Json>& samples, const std::string& path = "$");

}  // namespace ddprun::reference

#endif  // DDPRUN_TOOLS_REFERENCE_PROGRAM_SCHEMA_H_
