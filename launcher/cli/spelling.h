// How torchrun's users write options, told to a parser that knows names only. [pure]
//
// CLI11 finds where the program begins, which word is whose value, and which option is unknown. It
// knows no abbreviations and no dashes for underscores, takes the next word for the value of
// `--rdzv_id=`, and `=3` for that of `-r=3`. So each spelling on the command line becomes one more
// name of its option, and a word that CLI11 would read otherwise gets a mark: a zero byte, which no
// argument can hold. It reads one word for each of ours, so what is the program's is found by
// counting from the end, and in a value the mark is taken away again.
#ifndef DDPRUN_LAUNCHER_CLI_SPELLING_H_
#define DDPRUN_LAUNCHER_CLI_SPELLING_H_

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "launcher/cli/option_table.h"

namespace ddprun::launcher {

class Spelling {
 public:
  // `rows` outlive it.
  Spelling(std::span<const OptionRow> rows, std::span<const std::string> words);

  // As CLI11 reads them, one for each word.
  const std::vector<std::string>& marked() const { return marked_; }
  // Whether some word might be the option.
  bool Mentions(const OptionRow& row) const { return spellings_.contains(&row); }
  // "--nnodes,--nno": the names that the option has on this command line, its own first.
  std::string NamesOf(const OptionRow& row) const;
  // What is wrong with an option that CLI11 did not know.
  absl::Status Refuse(const std::string& word) const;
  // The option whose value is missing behind `word`. REQUIRES: there is one.
  const OptionRow& OptionOf(const std::string& word) const;

 private:
  std::string Marked(const std::string& word);
  std::vector<const OptionRow*> FindLong(std::string_view name) const;
  const OptionRow* FindLetter(char letter) const;

  const std::span<const OptionRow> rows_;
  std::map<const OptionRow*, std::set<std::string>> spellings_;  // of those that words mention
  std::vector<std::string> marked_;
};

// Whether CLI11's text of a value is that of a flag that was given one: --standalone=yes.
bool IsMarked(std::string_view text);
// The text as the user gave it.
std::string Unmarked(std::string text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_SPELLING_H_
