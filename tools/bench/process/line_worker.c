// line_worker LINES: writes LINES lines to stdout, as a training program's log would look, in
// writes of 8 KiB as stdio makes them for a pipe.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const char* rank = getenv("RANK");
  const long lines = strtol(argv[1], NULL, 10);
  static char buffer[8192];
  setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  for (long i = 0; i < lines; ++i) {
    printf("step %ld of rank %s: loss 0.6931 accuracy 0.8712 samples/s 171200\n", i, rank);
  }
  return fflush(stdout) == 0 ? 0 : 1;
}
