// One breach of purity for each macro; see BUILD.
#include <string>

#if defined(PLANT_CLOCK)
#include <chrono>
long Planted() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
#elif defined(PLANT_THREAD)
#include <thread>
long Planted() {
  std::thread([] {}).join();
  return 0;
}
#elif defined(PLANT_LOCK)
#include <mutex>
long Planted() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  return 0;
}
#elif defined(PLANT_RANDOM)
#include <random>
long Planted() { return std::random_device()(); }
#elif defined(PLANT_FILE)
#include <fstream>
long Planted() { return std::ifstream("/etc/hostname").get(); }
#elif defined(PLANT_MADE_FOLDER)
#include <sys/stat.h>
long Planted() { return mkdir("/tmp/planted", 0700); }
#elif defined(PLANT_CHECKED_CALL)
#include <unistd.h>
long Planted(unsigned length) {
  char bytes[8];
  return read(0, bytes, length);
}
#elif defined(PLANT_PRINT)
#include <cstdio>
long Planted() { return std::printf("%s", std::string(3, 'x').c_str()); }
#elif defined(PLANT_SOCKET)
#include <sys/socket.h>
long Planted() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }
#elif defined(PLANT_SPDLOG)
#include <spdlog/spdlog.h>
long Planted() {
  spdlog::info("planted");
  return 0;
}
#elif defined(PLANT_CLEAN)
long Planted() { return static_cast<long>(std::string(3, 'x').size()); }
#endif
