#include "rendezvous/tls/token_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <memory>
#include <utility>

namespace ddprun::rendezvous {
namespace {

constexpr std::string_view kGreetingName = "ddprun/1";
constexpr std::string_view kGreetingLabel = "ddprun/1 agents";
constexpr std::string_view kRunLabel = "ddprun/2 run ";

constexpr std::pair<TlsPurpose, std::string_view> kOfRun[] = {
    {TlsPurpose::kRendezvous, "ddprun/2 rendezvous "},
    {TlsPurpose::kStore, "ddprun/2 store "},
};

// One half of HKDF: `mode` says which. `label`: of the second one.
bool Derive(int mode, std::string_view from, std::string_view label, TokenKey& key) {
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> hkdf(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), EVP_PKEY_CTX_free);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from.data());
  const auto* info = reinterpret_cast<const unsigned char*>(label.data());
  size_t size = TokenKey::kBytes;
  const bool is_set =
      hkdf != nullptr && EVP_PKEY_derive_init(hkdf.get()) > 0 &&
      EVP_PKEY_CTX_set_hkdf_mode(hkdf.get(), mode) > 0 &&
      EVP_PKEY_CTX_set_hkdf_md(hkdf.get(), EVP_sha256()) > 0 &&
      EVP_PKEY_CTX_set1_hkdf_key(hkdf.get(), bytes, static_cast<int>(from.size())) > 0;
  const bool is_labelled =
      is_set && (label.empty() ||
                 EVP_PKEY_CTX_add1_hkdf_info(hkdf.get(), info, static_cast<int>(label.size())) > 0);
  return is_labelled && EVP_PKEY_derive(hkdf.get(), key.data(), &size) > 0 &&
         size == TokenKey::kBytes;
}

std::string_view TextOf(const TokenKey& key) {
  return {reinterpret_cast<const char*>(key.data()), TokenKey::kBytes};
}

bool Expand(const TokenKey& key, std::string_view label, TokenKey& to) {
  return Derive(EVP_PKEY_HKDEF_MODE_EXPAND_ONLY, TextOf(key), label, to);
}

}  // namespace

TokenKey::~TokenKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

std::optional<TokenKeys> TokenKeys::Of(std::string_view token, std::string_view run_id) {
  TokenKeys keys;
  if (!Derive(EVP_PKEY_HKDEF_MODE_EXTRACT_ONLY, token, "", keys.token_)) return std::nullopt;
  return keys.ForRun(run_id);
}

std::optional<TokenKeys> TokenKeys::ForRun(std::string_view run_id) const {
  TokenKeys keys = *this;
  TokenKey run;
  if (!Expand(token_, std::string(kRunLabel).append(run_id), run)) return std::nullopt;
  keys.run_ = TextOf(run);
  keys.is_any_run_ = run_id.empty();
  return keys;
}

std::optional<TokenKeys::Named> TokenKeys::Make(TlsPurpose purpose, std::string name) const {
  Named named{.purpose = purpose, .name = std::move(name), .key = {}};
  const std::string_view label = purpose == TlsPurpose::kGreeting ? kGreetingLabel : named.name;
  if (!Expand(token_, label, named.key)) return std::nullopt;
  return named;
}

std::optional<TokenKeys::Named> TokenKeys::Offer(TlsPurpose purpose) const {
  for (const auto& [of_run, prefix] : kOfRun) {
    if (of_run == purpose) return Make(purpose, std::string(prefix) + run_);
  }
  return Make(TlsPurpose::kGreeting, std::string(kGreetingName));
}

std::optional<TokenKeys::Named> TokenKeys::Find(std::string_view name) const {
  if (name == kGreetingName) return Make(TlsPurpose::kGreeting, std::string(name));
  for (const auto& [purpose, prefix] : kOfRun) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view run = name.substr(prefix.size());
    const bool is_ours = is_any_run_ ? run.size() == TokenKey::kBytes : run == run_;
    return is_ours ? Make(purpose, std::string(name)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace ddprun::rendezvous
