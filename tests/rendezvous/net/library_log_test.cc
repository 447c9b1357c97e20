#include "rendezvous/net/library_log.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace ddprun::rendezvous {
namespace {

TEST_CASE("library log: messages come while there is a scope, and are dropped otherwise") {
  std::vector<std::string> lines;
  LogFromLibrary("before");
  {
    const LibraryLogScope scope([&lines](const std::string& line) { lines.push_back(line); });
    LogFromLibrary("inside");
  }
  LogFromLibrary("after");
  CHECK(lines == std::vector<std::string>{"inside"});
}

TEST_CASE("library log: once a scope has ended no thread calls what it was given") {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&is_over] {
      while (!is_over) LogFromLibrary("line");
    });
  }
  size_t calls = 0;
  for (int round = 0; round < 200; ++round) {
    // What is called lives exactly as long as the scope: the sanitizers see a call that comes
    // later, and the count, which nothing guards but the scope, one that is still under way.
    auto count = std::make_unique<size_t>(0);
    auto scope = std::make_unique<LibraryLogScope>([&count](const std::string&) { ++*count; });
    LogFromLibrary("line");
    scope.reset();
    CHECK(*count > 0);
    calls += *count;
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(calls >= 200);
}

}  // namespace
}  // namespace ddprun::rendezvous
