// Where the token and the keys are not: in nothing that a job writes or answers, in no form.
#include <doctest/doctest.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "tests/e2e/asking.h"
#include "tests/support/contains.h"
#include "tests/support/skip.h"

namespace ddprun::testing {
namespace {

namespace fs = std::filesystem;
using Node = std::unique_ptr<Subprocess>;
using Strings = std::vector<std::string>;

constexpr char kToken[] = "6b1f0c8e5a7d4b2390e1f4a6c8d7b5e3";

// As rendezvous/tls/identity.cc makes it.
std::string KeyOf(const std::string& token) {
  const std::unique_ptr<EVP_PKEY_CTX, void (*)(EVP_PKEY_CTX*)> hkdf(
      EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr), EVP_PKEY_CTX_free);
  const auto* bytes = reinterpret_cast<const unsigned char*>(token.data());
  const std::string label = "ddprun/1 agents";
  std::string key(32, '\0');
  size_t size = key.size();
  REQUIRE(EVP_PKEY_derive_init(hkdf.get()) > 0);
  REQUIRE(EVP_PKEY_CTX_set_hkdf_md(hkdf.get(), EVP_sha256()) > 0);
  REQUIRE(EVP_PKEY_CTX_set1_hkdf_key(hkdf.get(), bytes, static_cast<int>(token.size())) > 0);
  REQUIRE(EVP_PKEY_CTX_add1_hkdf_info(hkdf.get(),
                                      reinterpret_cast<const unsigned char*>(label.data()),
                                      static_cast<int>(label.size())) > 0);
  REQUIRE(EVP_PKEY_derive(hkdf.get(), reinterpret_cast<unsigned char*>(key.data()), &size) > 0);
  return key;
}

// How a secret could be written: raw, in hexadecimal, as a C string, and in base64, where it is cut
// in three ways, by what stands before it.
Strings FormsOf(const std::string& secret) {
  const std::string hex = absl::BytesToHexString(secret);
  Strings forms = {secret, hex, absl::AsciiStrToUpper(hex), absl::CEscape(secret),
                   absl::CHexEscape(secret)};
  for (const size_t before : {0, 1, 2}) {
    const std::string text = std::string(before, 'x') + secret;
    for (const std::string& base64 : {absl::Base64Escape(text), absl::WebSafeBase64Escape(text)}) {
      // The first and the last characters hold bits of neighbours, too.
      forms.push_back(base64.substr(4, base64.size() - 8));
    }
  }
  return forms;
}

// What of `secrets` the text shows, in whatever form; "": nothing.
std::string ShownIn(const std::string& text, const Strings& secrets) {
  for (const std::string& secret : secrets) {
    for (const std::string& form : FormsOf(secret)) {
      if (text.find(form) != std::string::npos) return "\"" + absl::CHexEscape(form) + "\"";
    }
  }
  return "";
}

// Checks all files below the folder, and their names. Their number.
int CheckFolder(const std::string& folder, const Strings& secrets) {
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    CAPTURE(entry.path().string());
    CHECK(ShownIn(entry.path().string(), secrets) == "");
    if (!entry.is_regular_file()) continue;
    ++files;
    CHECK(ShownIn(ReadFile(entry.path()), secrets) == "");
  }
  return files;
}

// A job of two nodes that writes all that it can, each into a folder of its own.
struct Talkative {
  Talkative() {
    for (const char* name : {"tmp", "run", "logs"}) {
      fs::create_directory(job.File(name));
      fs::permissions(job.File(name), fs::perms::owner_all);
    }
  }
  Subprocess::Options How() const {
    return {.env = {{"DDPRUN_TOKEN", kToken},
                    {"DDPRUN_LOG_LEVEL", "trace"},
                    {"TMPDIR", job.File("tmp")},
                    {"XDG_RUNTIME_DIR", job.File("run")},
                    {"DDPRUN_CONTROL_DIR", control.path()}},
            .working_dir = job.File("tmp")};
  }
  Node Run(const std::string& name) {
    return job.Run(job.NodeOptions(2, "2",
                                   {"--max-restarts=1", "--log-dir=" + job.File("logs"), "-r=3",
                                    "-t=3", "--report-file=" + job.File(name + ".report"),
                                    "--event-file=" + job.File(name + ".events"), "--metrics",
                                    "--dashboard", "--hang-timeout=600"}),
                   {"print:out {rank}", "err:err {rank}", "env:DDPRUN_ROUND_KEY_FD", "connect",
                    "touch:" + job.File("up{rank}.{restart}"), "until:" + job.File("go{restart}"),
                    "error-file:{}@1#0", "exit:3@1#0"},
                   How());
  }
  // Of the round that runs, as a worker has it.
  std::string RoundKey(const std::string& restart) {
    for (int rank = 0; rank < 4; ++rank) {
      REQUIRE(job.WaitForFile("up" + std::to_string(rank) + "." + restart));
    }
    const std::string key = ReadFile("/proc/" + std::to_string(job.PidOfRank(3)) + "/fd/199");
    REQUIRE(key.size() == 32);
    return key;
  }
  std::string Ask(const Strings& words) {
    const Node asks = job.RunRaw(words, How());
    CHECK_MESSAGE(asks->Wait() == 0, asks->Describe());
    return asks->out() + asks->err();
  }

  Job job;
  const ControlFolder control;  // a socket's name has to be short
};

// What the node's page and its figures say. The pages' addresses are in its words.
std::string Served(const Node& node) {
  std::string all;
  for (const char* what : {"dashboard: http://", "metrics: http://"}) {
    REQUIRE_MESSAGE(node->WaitForErr(what), node->Describe());
    const std::string err = node->err();
    const size_t from = err.find("http://", err.find(what));
    Subprocess curl({"/usr/bin/env", "curl", "-s", "-m", "10",
                     err.substr(from, err.find_first_of(" \n", from) - from)});
    CHECK_MESSAGE(curl.Wait() == 0, curl.Describe());
    all += curl.out();
  }
  CHECK(all == Contains("ddprun_"));
  return all;
}

TEST_CASE("leaks: the search finds a secret in whatever form it is written") {
  const Strings secrets = {kToken, KeyOf(kToken)};
  for (const std::string& secret : secrets) {
    for (const std::string& text :
         {secret, absl::BytesToHexString(secret), absl::CHexEscape(secret),
          absl::Base64Escape(secret), absl::Base64Escape("key=" + secret + " of"),
          absl::WebSafeBase64Escape("a token: " + secret)}) {
      CHECK(ShownIn("before " + text + " behind", secrets) != "");
    }
  }
  CHECK(ShownIn("nothing of it", secrets) == "");
}

TEST_CASE("leaks: nothing that a job writes or answers has its token or a key in it") {
  if (Subprocess({"/usr/bin/env", "curl", "--version"}).Wait() != 0)
    return SkipTest("no curl here");
  Talkative talks;
  Job& job = talks.job;
  const Node a = talks.Run("a"), b = talks.Run("b");
  Strings secrets = {kToken, KeyOf(kToken), talks.RoundKey("0")};
  const std::string served = Served(a) + Served(b);
  const std::string answered = talks.Ask({"status", "--json"}) + talks.Ask({"status"}) +
                               talks.Ask({"status", "--coordinator=" + job.endpoint(), "--json"}) +
                               talks.Ask({"logs", "--rank=1"}) +
                               talks.Ask({"dump", "--dir=" + job.File("tmp")});
  CheckFolder(job.File(""), secrets);
  job.Touch("go0");
  secrets.push_back(talks.RoundKey("1"));
  CHECK(secrets[2] != secrets[3]);
  const int files = CheckFolder(job.File(""), secrets);
  CHECK(files > 20);  // logs of four workers in two rounds, files of two nodes, a dump
  job.Touch("go1");
  CHECK_MESSAGE(a->Wait() == 0, a->Describe());
  CHECK_MESSAGE(b->Wait() == 0, b->Describe());
  CheckFolder(job.File(""), secrets);
  CHECK(fs::file_size(job.File("a.report")) > 0);
  CHECK(fs::file_size(job.File("a.events")) > 0);
  for (const Node* node : {&a, &b}) {
    const std::string said = (*node)->out() + (*node)->err();
    CHECK(said == Contains("ddprun: debug: "));
    CHECK(ShownIn(said, secrets) == "");
  }
  CHECK(ShownIn(served, secrets) == "");
  CHECK(ShownIn(answered, secrets) == "");
}

}  // namespace
}  // namespace ddprun::testing
