#include "launcher/agent/file_helper.h"

#include <doctest/doctest.h>

#include <future>
#include <memory>

#include "rendezvous/base/steady_clock.h"

namespace ddprun::launcher {
namespace {

TEST_CASE("file helper: what is done in time has been done") {
  FileHelper helper(std::chrono::seconds(60));
  const auto count = std::make_shared<int>(0);
  for (int i = 0; i < 3; ++i) REQUIRE(helper.Run([count] { ++*count; }));
  CHECK(*count == 3);
}

TEST_CASE("file helper: what hangs is left behind, and nothing is begun until it ends") {
  FileHelper helper(std::chrono::milliseconds(1));
  const auto release = std::make_shared<std::promise<void>>();
  const auto count = std::make_shared<int>(0);
  CHECK_FALSE(helper.Run([release] { release->get_future().wait(); }));
  CHECK_FALSE(helper.Run([count] { ++*count; }));
  CHECK(*count == 0);
  release->set_value();
  const TimePoint deadline = SteadyNow() + std::chrono::seconds(60);
  bool ran = false;  // an attempt may take longer than 1 ms under load
  while (!ran && SteadyNow() < deadline) ran = helper.Run([] {});
  CHECK(ran);
}

}  // namespace
}  // namespace ddprun::launcher
