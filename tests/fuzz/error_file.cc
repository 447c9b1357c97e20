// What a worker wrote of its own end.
#include <cstdint>
#include <string>

#include "launcher/report/last_words.h"
#include "tests/fuzz/promise.h"

namespace ddprun::launcher {

using fuzz::Promise;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::TextOf(data, size);
  const std::string plain = WithoutEscapeSequences(std::string(text));
  Promise(plain.size() <= size, "a text without escape sequences is not longer");

  rendezvous::FailureReport report;
  const absl::Status status = ParseErrorText(text, report);
  const absl::StatusOr<std::string> for_parent = ErrorTextForParent(text, 3);
  Promise(status.ok() == for_parent.ok(), "the parent gets what we have read");
  if (!status.ok()) return 0;
  Promise(report.error.has_value(), "an error file that is read is an error");
  const rendezvous::WorkerError& error = *report.error;
  Promise(error.message.size() <= kMaxErrorMessageBytes, "a message is bounded");
  Promise(error.traceback.size() <= kMaxTracebackBytes, "a traceback is bounded");

  rendezvous::FailureReport of_parent;
  Promise(ParseErrorText(*for_parent, of_parent).ok(), "the parent can read it", *for_parent);
  Promise(of_parent.error == error, "the parent reads the same", *for_parent);
  Promise(!of_parent.left_peer, "the parent hears of no rank of this job");

  // A text that was cut may be cut within a character.
  if (error.message.find("bytes left out") != std::string::npos ||
      error.traceback.find("bytes left out") != std::string::npos) {
    return 0;
  }
  rendezvous::FailureReport again;
  Promise(ParseErrorText(ErrorTextOf(error, 3), again).ok(), "what we write can be read");
  Promise(again.error == error, "what we write is read as it was meant", ErrorTextOf(error, 3));
  return 0;
}

}  // namespace ddprun::launcher
