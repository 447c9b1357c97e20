#include "rendezvous/etcd/etcd_credentials.h"

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/plain_text.h"
#include "rendezvous/tls/pem_files.h"

namespace ddprun::rendezvous {
namespace {

// What gRPC does not take it leaves out, or it tells of no reason.
absl::Status CheckFiles(const EtcdOptions& options) {
  const auto named = [](const std::string& option, const absl::Status& status) {
    return absl::FailedPreconditionError(
        absl::StrCat("--rdzv-conf ", option, ", for TLS with etcd: ", status.message()));
  };
  if (absl::Status status = CheckPemFiles("", "", options.authority_file); !status.ok()) {
    return named("cacert", status);
  }
  absl::Status status = CheckPemFiles(options.certificate_file, options.key_file, "");
  return status.ok() ? status : named("cert and key", status);
}

// Without a text gRPC would believe the system's authorities, and show no certificate.
absl::StatusOr<std::string> TextOf(const std::string& path) {
  std::ostringstream text;
  if (path.empty()) return text.str();
  text << std::ifstream(path, std::ios::binary).rdbuf();
  if (!text.str().empty()) return text.str();
  return absl::FailedPreconditionError(
      absl::StrCat("for TLS with etcd: ", EscapeControl(path), ": it has just gone away"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsFor(
    const EtcdOptions& options) {
  if (!options.is_tls) return grpc::InsecureChannelCredentials();
  if (absl::Status status = CheckFiles(options); !status.ok()) return status;
  grpc::SslCredentialsOptions tls;
  for (const auto& [path, text] : {std::pair{&options.authority_file, &tls.pem_root_certs},
                                   std::pair{&options.certificate_file, &tls.pem_cert_chain},
                                   std::pair{&options.key_file, &tls.pem_private_key}}) {
    absl::StatusOr<std::string> read = TextOf(*path);
    if (!read.ok()) return read.status();
    *text = *std::move(read);
  }
  return grpc::SslCredentials(tls);
}

}  // namespace ddprun::rendezvous
