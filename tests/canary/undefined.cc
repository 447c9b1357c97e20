// A planted signed overflow, for the undefined behaviour sanitizer.
#include <climits>

int main(int argc, char**) {
  volatile int value = INT_MAX;
  value = value + argc;
  return 0;
}
