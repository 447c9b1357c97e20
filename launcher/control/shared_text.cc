#include "launcher/control/shared_text.h"

#include <chrono>
#include <utility>

namespace ddprun::launcher {
namespace {

constexpr Duration kRenderPatience = std::chrono::seconds(5);

}  // namespace

void SharedText::Give(const std::string& name, std::shared_ptr<const JobSnapshot> snapshot,
                      Render render, Then then) {
  Rendering& rendering = renderings_[name];
  if (rendering.of == snapshot && rendering.text) return then(rendering.text);
  rendering.waiting.push_back(std::move(then));
  if (rendering.waiting.size() > 1) return;  // who came before has asked
  thread_.Ask<std::string>(
      "render", "the job's status", kRenderPatience,
      [snapshot, render = std::move(render)] { return render(*snapshot); },
      [this, name, snapshot](std::optional<std::string> text) {
        Rendering& done = renderings_[name];
        done.of = snapshot;
        done.text = std::move(text);
        const auto waiting = std::exchange(done.waiting, {});
        for (const auto& tell : waiting) tell(done.text);
      });
}

}  // namespace ddprun::launcher
