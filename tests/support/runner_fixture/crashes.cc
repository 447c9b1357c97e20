#include <doctest/doctest.h>
#include <signal.h>

TEST_CASE("crashes: before") { CHECK(true); }

TEST_CASE("crashes: here") { raise(SIGSEGV); }

TEST_CASE("crashes: after") { CHECK(true); }
