// Arguments and variables as they may be written to a file that others read. [pure]
#ifndef DDPRUN_WORKER_RUNTIME_MASK_SECRETS_H_
#define DDPRUN_WORKER_RUNTIME_MASK_SECRETS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddp::internal {

// What stands in place of a value: it was set, and that is all that is told.
inline constexpr char kMasked[] = "set";

// Whether TOKEN, KEY, SECRET, PASSW (as in PASSWORD and PASSWD), AUTH or CREDENTIAL is in the name,
// in upper or lower case. MONKEY, --author and --tokenizer are such names as well, on purpose: what
// is hidden without need costs a look into the script, and a key that is shown costs more.
bool IsSecretName(absl::string_view name);

// The variable's value: kMasked for a secret name, otherwise as MaskText has it.
std::string MaskValue(absl::string_view name, absl::string_view value);

// The password of each URL (scheme://user:password@host) becomes kMasked; so does a URL's user
// without a password, as which tokens are given.
std::string MaskUrls(absl::string_view text);

// MaskUrls, and what stands behind a secret name and `=` or `:`, or behind a word that is an option
// of a secret name, becomes kMasked to the end of the text.
std::string MaskText(absl::string_view text);

// The words of a command line. Beside what MaskText does: a word that follows an option of a secret
// name without `=` is its value, whatever it looks like.
std::vector<std::string> MaskArguments(const std::vector<std::string>& arguments);

}  // namespace ddp::internal

#endif  // DDPRUN_WORKER_RUNTIME_MASK_SECRETS_H_
