#include "worker_runtime/mask_secrets.h"

#include <doctest/doctest.h>

namespace ddp::internal {
namespace {

using Strings = std::vector<std::string>;

TEST_CASE("mask: a value behind an option of a secret name is hidden, with = and as a next word") {
  const struct {
    Strings given, masked;
  } rows[] = {
      {{"--token=abc"}, {"--token=set"}},
      {{"--token", "abc"}, {"--token", "set"}},
      {{"--hf_token", "abc", "--lr", "1"}, {"--hf_token", "set", "--lr", "1"}},
      {{"--Api-Key=abc", "-k=v"}, {"--Api-Key=set", "-k=v"}},
      {{"-password", "-abc"}, {"-password", "set"}},
      {{"API_KEY=abc"}, {"API_KEY=set"}},
      {{"--env=API_KEY=a=b"}, {"--env=API_KEY=set"}},
      {{"--header", "X-Secret: abc"}, {"--header", "X-Secret:set"}},
      {{"--header", "Authorization: Basic abc"}, {"--header", "Authorization:set"}},
      {{"--credentials", "abc", "--passwd=abc"}, {"--credentials", "set", "--passwd=set"}},
      {{"{\"token\": \"abc\"}"}, {"{\"token\":set"}},
      {{"--use_token", "--passwd", "abc"}, {"--use_token", "set", "set"}},
      {{"--token"}, {"--token"}},
      {{"-c", "login --user me --password abc def"}, {"-c", "login --user me --password set"}},
      {{"--cmd=x --token\tabc"}, {"--cmd=x --token\tset"}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.given[0]);
    CHECK(MaskArguments(row.given) == row.masked);
  }
}

TEST_CASE("mask: what has no secret name stays") {
  CHECK(MaskArguments({"--data=digits", "--epochs", "3", "keys.txt", "next"}) ==
        Strings{"--data=digits", "--epochs", "3", "keys.txt", "next"});
  for (const char* text : {"tcp://host:29400", "user@host:path", "a=b", "", "://", "@"}) {
    CHECK(MaskText(text) == text);
  }
}

TEST_CASE("mask: the password of a URL is hidden, wherever the URL stands") {
  CHECK(MaskText("https://me:pw@host/x?y=1") == "https://me:set@host/x?y=1");
  CHECK(MaskText("--store=s3://me:p@w@host") == "--store=s3://me:set@host");
  CHECK(MaskText("https://abc@host") == "https://set@host");
  CHECK(MaskText("http://a:b@c,http://d:e@f") == "http://a:set@c,http://d:set@f");
  CHECK(MaskText("redis://me:pa,ss@host/0") == "redis://me:set@host/0");
  CHECK(MaskText("redis://me:it's@host") == "redis://me:set@host");
  CHECK(MaskText("https://host/a@b") == "https://host/a@b");
  CHECK(MaskText("https://me:pw@host/?key=abc") == "https://me:set@host/?key=set");
  CHECK(MaskText("https://me:token:x@host") == "https://me:set@host");
}

TEST_CASE("mask: a variable is judged by its name, in any case, and MONKEY has KEY in it") {
  CHECK(MaskValue("NCCL_TOKEN", "abc") == "set");
  CHECK(MaskValue("ddprun_secret_x", "abc") == "set");
  CHECK(MaskValue("OMP_PASSWORD", "abc") == "set");
  CHECK(MaskValue("DDPRUN_PASSWD", "abc") == "set");
  CHECK(MaskValue("NCCL_AUTH", "abc") == "set");
  CHECK(MaskValue("Aws_Credentials", "abc") == "set");
  CHECK(MaskValue("CUDA_MONKEY", "abc") == "set");
  CHECK(MaskValue("DDPRUN_TOKEN", "") == "set");
  CHECK(MaskValue("OMP_NUM_THREADS", "4") == "4");
  CHECK(MaskValue("DDPRUN_PROXY", "http://me:pw@host") == "http://me:set@host");
}

}  // namespace
}  // namespace ddp::internal
