// What stands on the failure board, in a store to which any program of the job may write.
#include "worker_runtime/comm/failure_board.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/promise.h"
#include "worker_runtime/comm/left_peer.h"

namespace ddp::internal {
namespace {

using ddprun::fuzz::Promise;

// Holds the same text under every key.
class TextStore final : public Store {
 public:
  explicit TextStore(std::string text) : text_(std::move(text)) {}
  absl::Status Set(const std::string&, const std::string& value) override {
    text_ = value;
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string&, Milliseconds) override { return text_; }
  absl::StatusOr<int64_t> Add(const std::string&, int64_t amount) override { return amount; }
  absl::StatusOr<bool> Check(const std::vector<std::string>&) override { return true; }
  absl::Status Wait(const std::vector<std::string>&, Milliseconds) override {
    return absl::OkStatus();
  }
  // Somebody was first.
  absl::StatusOr<std::string> CompareSet(const std::string&, const std::string&,
                                         const std::string&) override {
    return text_;
  }
  absl::StatusOr<bool> Delete(const std::string&) override { return true; }
  absl::StatusOr<int64_t> KeyCount() override { return 1; }

 private:
  std::string text_;
};

FailureBoard BoardWith(const std::string& text) {
  return FailureBoard("group", /*rank=*/0, /*world_size=*/2, [text](std::chrono::milliseconds) {
    return std::make_unique<TextStore>(text);
  });
}

// Keeps what is published.
class FirstWord final : public Store {
 public:
  explicit FirstWord(std::string& word) : word_(word) {}
  absl::Status Set(const std::string&, const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> Get(const std::string&, Milliseconds) override { return word_; }
  absl::StatusOr<int64_t> Add(const std::string&, int64_t amount) override { return amount; }
  absl::StatusOr<bool> Check(const std::vector<std::string>&) override { return true; }
  absl::Status Wait(const std::vector<std::string>&, Milliseconds) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> CompareSet(const std::string&, const std::string&,
                                         const std::string& desired) override {
    return word_ = desired;
  }
  absl::StatusOr<bool> Delete(const std::string&) override { return true; }
  absl::StatusOr<int64_t> KeyCount() override { return 1; }

 private:
  std::string& word_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(ddprun::fuzz::TextOf(data, size));
  FailureBoard board = BoardWith(text);
  const absl::Status read = board.Read(std::chrono::milliseconds(0));
  Promise(!read.ok(), "what stands there is a failure");
  Promise(board.Publish(absl::InternalError("own")) == read, "the first word is everybody's");
  const std::optional<int> left_peer = LeftPeerOf(read);
  Promise(!left_peer || *left_peer >= 0, "a peer that left is a rank");

  std::string word;
  FailureBoard own("group", 0, 2, [&word](std::chrono::milliseconds) {
    return std::make_unique<FirstWord>(word);
  });
  const absl::Status published = own.Publish(read);
  Promise(published.code() == read.code() && published.message() == read.message() &&
              LeftPeerOf(published) == left_peer,
          "a failure is read as it was published", published.ToString());

  // A rank that is in another operation is named, and garbage names nobody.
  Op op;
  op.sequence = 1;
  const absl::Status mismatch = board.MismatchAt(op);
  Promise(mismatch.ok() || absl::IsInvalidArgument(mismatch), "a mismatch is one or none",
          mismatch.ToString());
  const int surveyor = board.ClaimSurvey();
  Promise(surveyor >= -1 && surveyor < 2, "who surveys is a rank of the group, or nobody", text);
  return 0;
}

}  // namespace ddp::internal
