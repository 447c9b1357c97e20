#include <doctest/doctest.h>

#include "tests/support/runner_fixture/untouched.h"

TEST_CASE("second change: finds the process untouched") { CheckAndChangeProcess(); }
