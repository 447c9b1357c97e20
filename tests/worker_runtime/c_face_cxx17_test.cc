// ddp/c.h in C++17, as nvcc compiles it: nothing of C++20, and no header before it.
#include "ddp/c.h"

#include <doctest/doctest.h>

#include <cstring>

static_assert(__cplusplus == 201703L, "this file is for C++17");

TEST_CASE("c: the header serves C++17") {
  ddp_group_options options = {};
  options.timeout_ms = 1000;
  ddp_group* group = nullptr;
  REQUIRE(ddp_group_from_env(&options, &group) == DDP_OK);
  float value = 4;
  CHECK(ddp_complete(ddp_all_reduce(ddp_group_communicator(group), &value, 1, DDP_FLOAT32, DDP_SUM,
                                    nullptr)) == DDP_OK);
  CHECK(value == 4);
  CHECK(std::strcmp(ddp_group_description(group), "local: a group of one") == 0);
  CHECK(ddp_group_shutdown(group) == DDP_OK);
  ddp_group_free(group);
}
