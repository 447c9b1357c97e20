// --token-file and what may stand in its place.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/cli/option_values.h"

namespace ddprun::launcher {

TrustFiles ReadTrustFiles(OptionReader& read) {
  TrustFiles files;
  read.Into("token_file", files.token, ParsePath);
  if (const GivenValue* given = read.Find("token_file")) files.token_source = given->source;
  read.Into("tls_cert", files.cert, ParsePath);
  read.Into("tls_key", files.key, ParsePath);
  read.Into("tls_ca", files.ca, ParsePath);
  const bool has_all = !files.cert.empty() && !files.key.empty() && !files.ca.empty();
  const bool has_any = !files.cert.empty() || !files.key.empty() || !files.ca.empty();
  if (has_any && !has_all) {
    read.Fail(absl::InvalidArgumentError(
        absl::StrCat(files.cert.empty()  ? "--tls-cert"
                     : files.key.empty() ? "--tls-key"
                                         : "--tls-ca",
                     " is missing: own certificates need --tls-cert, --tls-key and --tls-ca")));
  }
  if (has_any && !files.token.empty()) {
    read.Fail(absl::InvalidArgumentError(
        "--token-file and --tls-cert: expected one of them, as each says whom this node believes"));
  }
  return files;
}

}  // namespace ddprun::launcher
