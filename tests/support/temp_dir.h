// A directory of a test's own, removed with everything in it.
#ifndef DDPRUN_TESTS_SUPPORT_TEMP_DIR_H_
#define DDPRUN_TESTS_SUPPORT_TEMP_DIR_H_

#include <filesystem>
#include <string>

namespace ddprun::testing {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // The path of `name` inside, as a string.
  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_TEMP_DIR_H_
