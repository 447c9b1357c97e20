// A file descriptor with one owner.
#ifndef DDPRUN_RENDEZVOUS_BASE_UNIQUE_FD_H_
#define DDPRUN_RENDEZVOUS_BASE_UNIQUE_FD_H_

#include <utility>

namespace ddprun {

class UniqueFd {
 public:
  UniqueFd() = default;
  // Takes ownership; a negative number means "none".
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    Reset(other.Release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Gives ownership away; the caller closes.
  int Release() { return std::exchange(fd_, -1); }
  // Closes what is held and takes `fd` instead. errno is left as it was.
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

}  // namespace ddprun

#endif  // DDPRUN_RENDEZVOUS_BASE_UNIQUE_FD_H_
