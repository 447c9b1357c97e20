// What is said of files that are no certificates or keys as they have to be.
#include "rendezvous/tls/pem_files.h"

#include <doctest/doctest.h>

#include <string>

#include "absl/strings/escaping.h"
#include "tests/rendezvous/tls/machine.h"
#include "tests/support/certificates.h"
#include "tests/support/contains.h"
#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace ddprun::rendezvous {
namespace {

using testing::Certificate;
using testing::MakeAuthority;
using testing::MakeServerCertificate;

TEST_CASE("pem files: what is wrong with a file is said, and which file it is") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate own = MakeServerCertificate(authority, "DNS:a");
  const Certificate other = MakeServerCertificate(authority, "DNS:b");
  const Machine good(dir, "good", own, authority.certificate);
  Machine missing = good;
  missing.files.cert = dir.File("nothing");
  CHECK(missing.Trouble() == Contains("nothing: No such file or directory"));
  const Machine no_pem(dir, "no_pem", {"no certificate", own.key}, authority.certificate);
  CHECK(no_pem.Trouble() == no_pem.files.cert + ": it holds no PEM certificate");
  const Machine no_key(dir, "no_key", {own.certificate, "no key"}, authority.certificate);
  CHECK(no_key.Trouble() == no_key.files.key + ": it holds no PEM private key");
  const Machine others(dir, "others", {own.certificate, other.key}, authority.certificate);
  CHECK(others.Trouble() == Contains("others.key: it is not the key of the certificate in "));
  const Machine no_ca(dir, "no_ca", own, "no authority");
  CHECK(no_ca.Trouble() == no_ca.files.ca + ": it holds no PEM certificate");
}

TEST_CASE("pem files: files in each other's place are told by what they hold") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate own = MakeServerCertificate(authority, "DNS:a");
  const Machine swapped(dir, "swapped", {own.key, own.certificate}, authority.certificate);
  CHECK(swapped.Trouble() ==
        swapped.files.cert + ": it holds no PEM certificate, but \"PRIVATE KEY\"");
  const Machine no_key(dir, "no_key", {own.certificate, own.certificate}, authority.certificate);
  CHECK(no_key.Trouble() ==
        no_key.files.key + ": it holds no PEM private key, but \"CERTIFICATE\"");
  const Machine no_ca(dir, "no_ca", own, authority.key);
  CHECK(no_ca.Trouble() == no_ca.files.ca + ": it holds no PEM certificate, but \"PRIVATE KEY\"");
  // OpenSSL takes it among authorities.
  const Machine list(dir, "list", own, MakeRevocationList(authority));
  CHECK(list.Trouble() == list.files.ca + ": it holds no PEM certificate, but \"X509 CRL\"");
  const Machine with_list(dir, "with_list", own,
                          authority.certificate + MakeRevocationList(authority));
  CHECK(with_list.Trouble() ==
        with_list.files.ca +
            ": it holds a list of revoked certificates, and such lists are not obeyed here: take "
            "it out, and name an authority that signs for this job's nodes alone");
}

// What is between a PEM block's first line and its last.
std::string Der(const std::string& pem) {
  const size_t begin = pem.find('\n'), end = pem.find("-----END");
  std::string bytes;
  REQUIRE(absl::Base64Unescape(pem.substr(begin, end - begin), &bytes));
  return bytes;
}

TEST_CASE("pem files: other forms than PEM are told by how they begin") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate own = MakeServerCertificate(authority, "DNS:a");
  const Machine der(dir, "der", {Der(own.certificate), own.key}, authority.certificate);
  CHECK(
      der.Trouble() ==
      der.files.cert +
          ": it looks like DER: expected a PEM certificate, as \"openssl x509 -inform DER\" writes "
          "it");
  const Machine key(dir, "key", {own.certificate, Der(own.key)}, authority.certificate);
  CHECK(key.Trouble() ==
        key.files.key +
            ": it looks like DER: expected a PEM private key, as \"openssl pkey -inform DER\" "
            "writes it");
  const std::string pkcs12("\x30\x82\x00\x05\x02\x01\x03\x30\x00", 9);
  const Machine both(dir, "both", {pkcs12, own.key}, authority.certificate);
  CHECK(both.Trouble() ==
        both.files.cert +
            ": it looks like PKCS#12: expected a PEM certificate, as \"openssl pkcs12 -nodes\" "
            "writes it");
  // A text, whose first letter is that of DER, too.
  const Machine text(dir, "text", {"0 certificates are in here", own.key}, authority.certificate);
  CHECK(text.Trouble() == text.files.cert + ": it holds no PEM certificate");
  const Machine ssh(dir, "ssh", {"ssh-ed25519 AAAAC3 me@here\n", own.key}, authority.certificate);
  CHECK(ssh.Trouble() ==
        ssh.files.cert + ": it is a public key of OpenSSH: expected a PEM certificate");
  const Machine empty(dir, "empty", own, "");
  CHECK(empty.Trouble() == empty.files.ca + ": it is empty");
}

TEST_CASE("pem files: a PEM block that is damaged is told from one that is not there") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate own = MakeServerCertificate(authority, "DNS:a");
  const auto half = [](const std::string& text) { return text.substr(0, text.size() / 2); };
  const auto emptied = [](const std::string& text) {
    const size_t begin = text.find('\n') + 1, end = text.rfind("-----END");
    return text.substr(0, begin) + "bm90aGluZw==\n" + text.substr(end);
  };
  for (const std::string& broken : {half(own.certificate), emptied(own.certificate)}) {
    const Machine cert(dir, "cert", {broken, own.key}, authority.certificate);
    CHECK(cert.Trouble() == cert.files.cert + ": the PEM certificate that it holds is damaged");
    const Machine ca(dir, "ca", own, broken);
    CHECK(ca.Trouble() == ca.files.ca + ": the PEM certificate that it holds is damaged");
  }
  for (const std::string& broken : {half(own.key), emptied(own.key)}) {
    const Machine key(dir, "key", {own.certificate, broken}, authority.certificate);
    CHECK(key.Trouble() == key.files.key + ": the PEM private key that it holds is damaged");
  }
}

TEST_CASE("pem files: a key with a password is refused, and it is said how it loses that") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  Certificate own = MakeServerCertificate(authority, "DNS:a");
  own.key = testing::WithPassword(own.key, "secret");
  const Machine locked(dir, "locked", own, authority.certificate);
  CHECK(locked.Trouble() == locked.files.key +
                                ": its private key has a password, for which nobody is asked: "
                                "write it without one (openssl pkey)");
}

TEST_CASE("pem files: of a key that is too short it is said how long it must be") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Machine enough(dir, "enough", testing::MakeRsaCertificate(authority, 2048),
                       authority.certificate);
  CHECK(enough.Read() != nullptr);
  const Machine brief(dir, "brief", testing::MakeRsaCertificate(authority, 1024),
                      authority.certificate);
  CHECK(brief.Trouble() == Contains("brief.cert: the RSA key of a certificate has 1024 bits: "
                                    "2048 or more are needed"));
}

TEST_CASE("pem files: a certificate signed with SHA-1 is refused for that, wherever it stands") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate own = MakeServerCertificate(authority, "DNS:a");
  const Certificate weak = testing::MakeSha1Certificate(authority);
  const std::string why =
      ": a certificate in it is signed with a hash that is too weak, as SHA-1 and MD5 are: have it "
      "signed with SHA-256";
  const Machine first(dir, "first", weak, authority.certificate);
  CHECK(first.Trouble() == first.files.cert + why);
  const Machine behind(dir, "behind", {own.certificate + weak.certificate, own.key},
                       authority.certificate);
  CHECK(behind.Trouble() == behind.files.cert + why);
}

std::string KeyBlock(const std::string& kind, const std::string& base64) {
  const std::string title = kind + "PRIVATE KEY-----\n";
  return "-----BEGIN " + title + base64 + "\n-----END " + title;
}

TEST_CASE("pem files: a key that is whole is not called damaged, and it is said what it is") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Certificate own = MakeServerCertificate(authority, "DNS:a");
  // As ssh-keygen writes it.
  const std::string begin = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gt";
  const Machine ssh(dir, "ssh", {own.certificate, KeyBlock("OPENSSH ", begin)},
                    authority.certificate);
  CHECK(ssh.Trouble() == ssh.files.key +
                             ": it is an OpenSSH key: expected PKCS#8 or PKCS#1 in PEM, as openssl "
                             "makes it");
  // Of X25519, with which nothing is signed.
  const Machine other(
      dir, "other",
      {own.certificate,
       KeyBlock("", "MC4CAQAwBQYDK2VuBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC")},
      authority.certificate);
  CHECK(other.Trouble() ==
        other.files.key +
            ": OpenSSL does not take the PEM private key that it holds: unknown certificate type");
}

TEST_CASE("pem files: a certificate that is not valid today is refused with its date") {
  const testing::TempDir dir;
  const Certificate authority = MakeAuthority();
  const Machine old(dir, "old", MakeServerCertificate(authority, "DNS:a", -7200, -3600),
                    authority.certificate);
  CHECK(old.Trouble() == Contains("old.cert: the certificate was valid until 20"));
  CHECK(old.Trouble() == Contains(" UTC; make a new one, or set this machine's clock right"));
  const Machine early(dir, "early", MakeServerCertificate(authority, "DNS:a", 3600, 7200),
                      authority.certificate);
  CHECK(early.Trouble() == Contains("early.cert: the certificate is not valid before 20"));
  CHECK(early.Trouble() == Contains(" UTC; is this machine's clock right?"));
}

}  // namespace
}  // namespace ddprun::rendezvous
