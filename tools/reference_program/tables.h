// The product's tables as Markdown: the parts of the reference pages that nobody writes by hand.
#ifndef DDPRUN_TOOLS_REFERENCE_PROGRAM_TABLES_H_
#define DDPRUN_TOOLS_REFERENCE_PROGRAM_TABLES_H_

#include <string>
#include <vector>

namespace ddprun::reference {

// What stands in a page between `<!-- generated: name -->` and `<!-- end -->`.
struct Block {
  std::string page;  // "docs/reference/metrics.md"
  std::string name;
  std::string text;
};

std::vector<Block> Blocks();

}  // namespace ddprun::reference

#endif  // DDPRUN_TOOLS_REFERENCE_PROGRAM_TABLES_H_
