// Texts made of snapshots, each once however many ask for it: a crowd costs what one costs.
#ifndef DDPRUN_LAUNCHER_CONTROL_SHARED_TEXT_H_
#define DDPRUN_LAUNCHER_CONTROL_SHARED_TEXT_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/file_thread.h"
#include "launcher/status/job_watch.h"

namespace ddprun::launcher {

// Driven by the io_context's thread of `thread`, which is borrowed.
class SharedText {
 public:
  using Render = std::function<std::string(const JobSnapshot& snapshot)>;
  using Then = std::function<void(std::optional<std::string> text)>;

  explicit SharedText(FileThread& thread) : thread_(thread) {}
  SharedText(const SharedText&) = delete;
  SharedText& operator=(const SharedText&) = delete;

  // `then` gets the snapshot's text of that name: at once where it is known, else when `render` has
  // made it on the file thread; none, where that takes too long. Who comes while the text of an
  // earlier snapshot is being made gets that one.
  void Give(const std::string& name, std::shared_ptr<const JobSnapshot> snapshot, Render render,
            Then then);

 private:
  struct Rendering {
    std::shared_ptr<const JobSnapshot> of;  // null: none was made yet
    std::optional<std::string> text;        // none where the last one was not made in time
    std::vector<Then> waiting;
  };

  FileThread& thread_;
  std::map<std::string, Rendering> renderings_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONTROL_SHARED_TEXT_H_
