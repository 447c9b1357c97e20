// A link that is made where OpenSSL finds no memory. A file is a process of its own, and OpenSSL
// takes other functions for memory only before its first use.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "worker_runtime/comm/tcp/link_key.h"

namespace ddp::internal {
namespace {

bool is_out_of_memory = false;

void* Allocate(size_t bytes, const char*, int) {
  return is_out_of_memory ? nullptr : std::malloc(bytes);
}
void* Reallocate(void* memory, size_t bytes, const char*, int) {
  return is_out_of_memory ? nullptr : std::realloc(memory, bytes);
}
void Free(void* memory, const char*, int) { std::free(memory); }

TEST_CASE("link key: where OpenSSL has no memory it is as if there was none for us") {
  void* const library = dlopen("libcrypto.so.3", RTLD_NOW);
  REQUIRE(library != nullptr);
  using SetFunctions = int (*)(decltype(&Allocate), decltype(&Reallocate), decltype(&Free));
  const auto set = reinterpret_cast<SetFunctions>(dlsym(library, "CRYPTO_set_mem_functions"));
  REQUIRE((set != nullptr));
  REQUIRE(set(&Allocate, &Reallocate, &Free) == 1);
  const auto key = LinkKey::Make(std::string(32, 'k'));
  REQUIRE(key.ok());
  const Hello hello = MakeSealedHello(3, 1);
  const LinkSecrets before(**key, Nonce{1}, hello, Nonce{2});
  is_out_of_memory = true;
  bool is_refused = false;
  try {
    const LinkSecrets secrets(**key, Nonce{1}, hello, Nonce{2});
  } catch (const std::bad_alloc&) {
    is_refused = true;
  }
  is_out_of_memory = false;
  CHECK(is_refused);
  const LinkSecrets after(**key, Nonce{1}, hello, Nonce{2});
  CHECK(after.IsHelloProof(before.HelloProof()));
}

}  // namespace
}  // namespace ddp::internal
