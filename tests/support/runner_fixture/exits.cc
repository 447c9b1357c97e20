#include <doctest/doctest.h>
#include <unistd.h>

TEST_CASE("exits: before") { CHECK(true); }

TEST_CASE("exits: here, and well") { _exit(0); }
