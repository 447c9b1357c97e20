// Loaded into ddprun before its libraries (LD_PRELOAD): what the kernel would seldom do on demand.
//
//   DDPRUN_TEST_FSYNC=EIO|ENOSPC  no file of the job's state can be made durable
//   DDPRUN_TEST_FSYNC=die         the process dies in the fsync that would make a verdict durable,
//                                 after half a second and once no file is at DDPRUN_TEST_HANG
//   DDPRUN_TEST_FSYNC=hang        no such fsync returns while there is a file at DDPRUN_TEST_HANG
//   DDPRUN_TEST_CLOCK=PATH        the time of day is wrong by as many seconds as the file's first
//                                 eight bytes say, at any moment
//   DDPRUN_TEST_FIRED=PATH        made when one of that has happened
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::string Env(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string OwnFd(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// The job's state lies in <folder>/job.new, job, and the folder itself.
bool IsOfJob(int fd) {
  char path[4096];
  const ssize_t size = readlink(OwnFd(fd).c_str(), path, sizeof(path));
  const std::string name(path, size > 0 ? static_cast<size_t>(size) : 0);
  return name.ends_with("/job.new") || access((name + "/job").c_str(), F_OK) == 0;
}

bool HoldsVerdict(int fd) {
  FILE* const file = std::fopen(OwnFd(fd).c_str(), "re");
  if (file == nullptr) return false;
  int has_verdict = 0;
  const int read = std::fscanf(file, "ddprun-job %*d %*u %*u %*u %*d %d", &has_verdict);
  std::fclose(file);
  return read == 1 && has_verdict == 1;
}

void NoteFired() {
  const int file = open(Env("DDPRUN_TEST_FIRED").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  if (file >= 0) close(file);
}

// 0, or the error that the caller is to get.
int Spoil(int fd) {
  const std::string how = Env("DDPRUN_TEST_FSYNC");
  if (how.empty() || !IsOfJob(fd)) return 0;
  if (how == "die") {
    if (!HoldsVerdict(fd)) return 0;
    NoteFired();
    usleep(500'000);
    while (access(Env("DDPRUN_TEST_HANG").c_str(), F_OK) == 0) usleep(2000);
    kill(getpid(), SIGKILL);
  }
  NoteFired();
  if (how == "hang") {
    while (access(Env("DDPRUN_TEST_HANG").c_str(), F_OK) == 0) usleep(2000);
    return 0;
  }
  return how == "ENOSPC" ? ENOSPC : EIO;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int Sync(const char* name, int fd) {
  if (const int error = Spoil(fd); error != 0) {
    errno = error;
    return -1;
  }
  return Next<int (*)(int)>(name)(fd);
}

// Null: the time of day is right.
const std::atomic<int64_t>* MapClock() {
  const int file = open(Env("DDPRUN_TEST_CLOCK").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const page = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return page == MAP_FAILED ? nullptr : static_cast<const std::atomic<int64_t>*>(page);
}

int64_t WrongBy() {
  static const std::atomic<int64_t>* const clock = MapClock();
  static std::atomic<bool> is_noted{false};
  if (clock == nullptr) return 0;
  if (!is_noted.exchange(true)) NoteFired();
  return clock->load();
}

// The kernel's clock is right, so a wait until a time of day means another moment by it. Times
// since the start are far smaller than times of day.
timespec ByKernel(const timespec& until) {
  constexpr time_t kNoUptime = 1'000'000'000;
  timespec real = until;
  if (real.tv_sec > kNoUptime) real.tv_sec -= WrongBy();
  return real;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static const auto next = Next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += WrongBy();
  }
  return result;
}

extern "C" int gettimeofday(timeval* now, void*) noexcept {
  timespec precise{};
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
  *now = {.tv_sec = precise.tv_sec, .tv_usec = precise.tv_nsec / 1000};
  return 0;
}

extern "C" time_t time(time_t* into) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (into != nullptr) *into = now.tv_sec;
  return now.tv_sec;
}

extern "C" int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                      const timespec* until) {
  static const auto next =
      Next<int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
  const timespec real = ByKernel(*until);
  return next(condition, mutex, &real);
}

extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                      clockid_t clock, const timespec* until) {
  static const auto next =
      Next<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
          "pthread_cond_clockwait");
  const timespec real = ByKernel(*until);
  return next(condition, mutex, clock, &real);
}

extern "C" int fsync(int fd) { return Sync("fsync", fd); }
extern "C" int fdatasync(int fd) { return Sync("fdatasync", fd); }
