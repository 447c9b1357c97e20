// A last word before a signal ends the process.
#ifndef DDPRUN_EXAMPLES_TRAIN_SIGNAL_WATCH_H_
#define DDPRUN_EXAMPLES_TRAIN_SIGNAL_WATCH_H_

#include <functional>
#include <memory>

namespace train {

// SIGTERM, SIGINT and SIGHUP still end the process as they would without it, after the word, but 2
// s later at most: a word that writes to a hung file system is cut off. A second signal ends it at
// once. A signal that is ignored, as by nohup, stays so. One for each process, made by the main
// thread before it starts others, which do not get the signals.
class SignalWatch {
 public:
  using Word = std::function<void(int signal)>;

  SignalWatch();

  // What to do first, on another thread; null: nothing. An exception of the word is a warning.
  // Waits for a word that is being said.
  void SetLastWord(Word word);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // with the thread, which lives until the process ends
};

}  // namespace train

#endif  // DDPRUN_EXAMPLES_TRAIN_SIGNAL_WATCH_H_
