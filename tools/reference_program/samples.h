// Samples of the documents that ddprun prints or writes for programs. Their schemas come from
// these.
#ifndef DDPRUN_TOOLS_REFERENCE_PROGRAM_SAMPLES_H_
#define DDPRUN_TOOLS_REFERENCE_PROGRAM_SAMPLES_H_

#include <string>
#include <vector>

#include "tools/reference_program/schema.h"

namespace ddprun::reference {

struct Document {
  std::string name;   // of the file, "status"
  std::string title;  // "ddprun status --json"
  std::vector<Json> samples;
};

// Together the samples of a document have each member: with a value, with null if it may be null,
// and each list with an item. The product's own functions write them.
std::vector<Document> Documents();

}  // namespace ddprun::reference

#endif  // DDPRUN_TOOLS_REFERENCE_PROGRAM_SAMPLES_H_
