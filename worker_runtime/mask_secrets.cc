#include "worker_runtime/mask_secrets.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddp::internal {
namespace {

using absl::string_view;

// Where the value begins of a word of `text` that is an option of a secret name, as in
// "login --password abc"; the text's size where there is none.
size_t ValueOfSecretOption(string_view text) {
  constexpr string_view kBlanks = " \t\n";
  for (size_t end = text.find_first_of(kBlanks); end != string_view::npos;
       end = text.find_first_of(kBlanks, end + 1)) {
    const size_t blank = text.substr(0, end).find_last_of(kBlanks);
    const string_view word = text.substr(blank + 1, end - blank - 1);
    if (absl::StartsWith(word, "-") && IsSecretName(word)) return end + 1;
  }
  return text.size();
}

}  // namespace

// Each URL as far as its host: what comes before the last @ of the authority.
std::string MaskUrls(string_view text) {
  std::string out;
  for (;;) {
    const size_t scheme_end = text.find("://");
    if (scheme_end == string_view::npos) return absl::StrCat(out, text);
    const size_t begin = scheme_end + 3;
    absl::StrAppend(&out, text.substr(0, begin));
    text.remove_prefix(begin);
    const size_t authority_end = text.find_first_of("/?# \t\n");
    const size_t at = text.substr(0, authority_end).rfind('@');
    if (at == string_view::npos) continue;
    const size_t colon = text.substr(0, at).find(':');
    if (colon != string_view::npos) absl::StrAppend(&out, text.substr(0, colon + 1));
    absl::StrAppend(&out, kMasked);
    text.remove_prefix(at);
  }
}

bool IsSecretName(string_view name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  for (const char* word : {"TOKEN", "KEY", "SECRET", "PASSW", "AUTH", "CREDENTIAL"}) {
    if (absl::StrContains(upper, word)) return true;
  }
  return false;
}

std::string MaskValue(string_view name, string_view value) {
  return IsSecretName(name) ? kMasked : MaskText(value);
}

std::string MaskText(string_view text) {
  // First, as a password may hold the words of a name.
  const std::string shown = MaskUrls(text);
  for (size_t at = 0; (at = shown.find_first_of("=:", at)) != std::string::npos; ++at) {
    if (IsSecretName(shown.substr(0, at))) return shown.substr(0, at + 1) + kMasked;
  }
  const size_t value = ValueOfSecretOption(shown);
  return value == shown.size() ? shown : shown.substr(0, value) + kMasked;
}

std::vector<std::string> MaskArguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  bool is_secret = false;
  for (const std::string& argument : arguments) {
    out.push_back(is_secret ? kMasked : MaskText(argument));
    // Of the word itself, also where it was hidden: of "--use_token --password abc" nothing shows.
    is_secret = absl::StartsWith(argument, "-") && !absl::StrContains(argument, '=') &&
                IsSecretName(argument);
  }
  return out;
}

}  // namespace ddp::internal
