#include "launcher/dump/stack_text.h"

#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/contains.h"

namespace ddprun::launcher {
namespace {

// py-spy 0.4.3.
constexpr char kPySpyDump[] = R"(Process 15881: /usr/bin/python3 t.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 15924 (active+gil): "load er"
    helper (/tmp/hd/t.py:4)
    Thread.run (/usr/lib/python3.11/threading.py:982)
Thread 15881 (idle): "MainThread"
    Condition.wait (/usr/lib/python3.11/threading.py:327)
    Queue.get (/usr/lib/python3.11/queue.py:171)
    train_step (/tmp/hd/my (copy).py:6)
    <module> (/tmp/hd/t.py:10)
)";

// elfutils 0.188, eu-stack -s -i.
constexpr char kEuStackDump[] = R"(PID 15880 - process
TID 15880:
#0  0x00007f4ed4ea3e96 __futex_abstimed_wait_common
    ./nptl/futex-internal.c:103:3
#1  0x00007f4ed4ea65d8 pthread_cond_wait@@GLIBC_2.3.2
#2  0x000055d9c1f701f9 void trainer::Wait<int>(int)
#3  0x000055d9c1f701a7 main
    /tmp/hd/w.cc:5:70
#4  0x00007f4ed4e4524a
TID 15883:
#0  0x00007f7f696f4df2 pause
)";

// GDB 13.1.
constexpr char kGdbDump[] = R"([New LWP 15883]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
0x00007f7f696f0545 in __GI___clock_nanosleep (clock_id=clock_id@entry=0) at ../x.c:48

Thread 2 (Thread 0x7f7f6961d6c0 (LWP 15883) "w"):
#0  0x00007f7f696f4df2 in __libc_pause () at ../sysdeps/unix/sysv/linux/pause.c:29
#1  0x0000558a4273916a in helper (x=...) at w.c:5

Thread 1 (Thread 0x7f7f6961e740 (LWP 15879) "w"):
#0  __futex_abstimed_wait_common (futex_word=..., cancel=...) at ./nptl/futex-internal.c:103
#1  0x00007f7f696f4e53 in pthread_join () from /lib/x86_64-linux-gnu/libc.so.6
#2  0x0000558a42739198 in std::function<void (int)>::operator()(int) const (this=...) at w.c:6
#3  0x0000558a427391d1 in ?? ()
[Inferior 1 (process 15879) detached]
)";

// PyTorch 2.13, /handler/dump_traceback.
constexpr char kFaulthandlerDump[] = R"(Current thread 0x00007f53699256c0 (most recent call first):
  <no Python frame>

Thread 0x00007f538d8640c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Thread 0x00007f538d864b80 (most recent call first):
  File "/tmp/ws.py", line 4 in train_step
  File "/usr/lib/python3.11/contextlib.py", line 81 in inner
  File "/tmp/ws.py", line 8 in <module>
)";

std::string WhereOf(std::vector<Frame> innermost_first) {
  return WhereText({.tool = kPySpy, .threads = {{.frames = std::move(innermost_first)}}});
}

TEST_CASE("stack text: py-spy's threads are read, the main one first") {
  const Stack stack = ParseStack(kPySpy, kPySpyDump, 15881);
  REQUIRE(stack.threads.size() == 2);
  CHECK(stack.threads[0] ==
        ThreadStack{.name = "MainThread",
                    .tid = 15881,
                    .state = "idle",
                    .frames = {{"Condition.wait", "/usr/lib/python3.11/threading.py", 327},
                               {"Queue.get", "/usr/lib/python3.11/queue.py", 171},
                               {"train_step", "/tmp/hd/my (copy).py", 6},
                               {"<module>", "/tmp/hd/t.py", 10}}});
  CHECK(stack.threads[1].name == "load er");
  CHECK(stack.threads[1].state == "active+gil");
  CHECK(WhereText(stack) == "in Queue.get (queue.py:171), called from train_step (my (copy).py:6)");
  CHECK(IsWaiting(stack));
}

TEST_CASE("stack text: py-spy's main thread is known by its name where no number is told") {
  const Stack stack = ParseStack(kPySpy,
                                 "Thread 0x7F01 (active): \"Thread-1\"\n    f (a.py:1)\n"
                                 "Thread 0x7F02 (active): \"MainThread\"\n    g (b.py:2)\n",
                                 4711);
  REQUIRE(stack.threads.size() == 2);
  CHECK(WhereText(stack) == "in g (b.py:2)");
  CHECK_FALSE(IsWaiting(stack));
}

TEST_CASE("stack text: eu-stack's threads are read, with the source lines it knows") {
  const Stack stack = ParseStack(kEuStack, kEuStackDump, 15880);
  REQUIRE(stack.threads.size() == 2);
  CHECK(stack.threads[0] ==
        ThreadStack{.tid = 15880,
                    .frames = {{"__futex_abstimed_wait_common", "./nptl/futex-internal.c", 103},
                               {"pthread_cond_wait", "", 0},
                               {"void trainer::Wait<int>(int)", "", 0},
                               {"main", "/tmp/hd/w.cc", 5},
                               {"", "", 0}}});
  CHECK(stack.threads[1].tid == 15883);
  CHECK(WhereText(stack) == "in trainer::Wait<int>");
  CHECK(IsWaiting(stack));
}

TEST_CASE("stack text: gdb's threads are read, the last of them is the main one") {
  const Stack stack = ParseStack(kGdb, kGdbDump, 15879);
  REQUIRE(stack.threads.size() == 2);
  CHECK(stack.threads[0] ==
        ThreadStack{.name = "w",
                    .tid = 15879,
                    .frames = {{"__futex_abstimed_wait_common", "./nptl/futex-internal.c", 103},
                               {"pthread_join", "", 0},
                               {"std::function<void (int)>::operator()(int) const", "w.c", 6},
                               {"", "", 0}}});
  CHECK(stack.threads[1].frames.size() == 2);
  CHECK(IsWaiting(stack));
}

TEST_CASE(
    "stack text: faulthandler's last thread is the main one, those without Python are left out") {
  const Stack stack = ParseStack(kWorkerServer, kFaulthandlerDump, 15967);
  REQUIRE(stack.threads.size() == 2);
  CHECK(stack.threads[0].frames.size() == 3);
  CHECK(WhereText(stack) == "in train_step (ws.py:4)");
  CHECK_FALSE(IsWaiting(stack));  // it does not tell
}

TEST_CASE("stack text: no other thread is taken for a main thread that the tool cannot read") {
  const Stack stack =
      ParseStack(kEuStack, "PID 7 - process\nTID 7:\nTID 8:\n#0  0x00007f7f pause\n", 7);
  REQUIRE(stack.threads.size() == 2);
  CHECK(stack.threads[0].tid == 7);
  CHECK(WhereText(stack) == "");
  CHECK_FALSE(IsWaiting(stack));
}

TEST_CASE("where: a library's function and the user's own line") {
  const std::string packages = "/opt/venv/lib/python3.11/site-packages/";
  CHECK(WhereOf({{"wait", "/usr/lib/python3.11/threading.py", 300},
                 {"AsyncWork.wait", packages + "ddprun/torch/work.py", 80},
                 {"all_reduce", packages + "torch/distributed/distributed_c10d.py", 2806},
                 {"wrapper", packages + "torch/distributed/c10d_logger.py", 83},
                 {"train_step", "/home/a/train.py", 41},
                 {"<module>", "/home/a/train.py", 60}}) ==
        "in all_reduce (torch/distributed/distributed_c10d.py:2806), called from train_step "
        "(train.py:41)");
  CHECK(WhereOf({{"load", "/home/a/model/__init__.py", 3}}) == "in load (model/__init__.py:3)");
  CHECK(WhereOf({{"_find_and_load", "<frozen importlib._bootstrap>", 1176},
                 {"<module>", "/home/a/train.py", 2}}) == "in <module> (train.py:2)");
  CHECK(WhereOf({}) == "");
}

TEST_CASE("where: a C++ program's own function, without result and parameters") {
  CHECK(WhereOf(
            {{"__futex_abstimed_wait_common", "", 0},
             {"std::condition_variable::wait(std::unique_lock<std::mutex>&)", "", 0},
             {"ddp::internal::Group::Wait(unsigned long)", "", 0},
             {"ddp::ProcessGroup::AllReduce(void*, unsigned long)", "", 0},
             {"std::vector<int, std::allocator<int> > (anonymous namespace)::Step<int (*)()>(char)",
              "/src/train.cc", 41},
             {"main", "", 0}}) ==
        "in ddp::ProcessGroup::AllReduce, called from (anonymous namespace)::Step<int (*)()> "
        "(train.cc:41)");
  CHECK(WhereOf({{"clock_nanosleep", "", 0}, {"main", "", 0}, {"_start", "", 0}}) == "in main");
  CHECK(WhereOf({{"", "", 0}, {"pause", "", 0}}) == "in pause");
}

// As eu-stack 0.188 and gdb 13.1 tell of glibc 2.36, with and without its symbols, and GCC 12's
// sanitizers.
TEST_CASE("where: a wait within the C and C++ libraries is the program's own") {
  const std::vector<std::vector<Frame>> waits = {
      {{"__futex_abstimed_wait_common", "./nptl/futex-internal.c", 103},
       {"__pthread_cond_wait_common", "./nptl/pthread_cond_wait.c", 503},
       {"___pthread_cond_wait", "./nptl/pthread_cond_wait.c", 618}},
      {{"", "", 0}, {"pthread_cond_clockwait", "", 0}},
      {{"__GI___clock_nanosleep", "../sysdeps/unix/sysv/linux/clock_nanosleep.c", 48},
       {"__GI___nanosleep", "", 0},
       {"void std::this_thread::sleep_for<long, std::ratio<1l, 1l> >(int const&)", "", 0}},
      {{"__poll", "", 0}},
      {{"__poll", "", 0}, {"__interceptor_poll", "../../libsanitizer/x.inc", 1}},
      {{"syscall", "", 0},
       {"void std::__detail::__platform_wait<int>(int const*, int)", "", 0},
       {"void std::__atomic_wait_address_bare<std::latch::wait() const::{lambda()#1}>()", "", 0}},
      {{"syscall", "", 0},
       {"std::__atomic_futex_unsigned_base::_M_futex_wait_until(unsigned int*)", "", 0}},
      {{"__libc_pause", "", 0},
       {"cond_wait<__interceptor_pthread_cond_wait(void*)::<lambda()> >",
        "../../../../src/libsanitizer/tsan/tsan_interceptors_posix.cpp", 1264},
       {"__interceptor_pthread_cond_wait", "", 0}},
      {{"__sigtimedwait", "", 0}, {"sigwait", "", 0}},
      {{"__sigsuspend", "", 0}},
      {{"__open64", "", 0},
       {"_IO_file_open", "", 0},
       {"__fopen_internal", "./libio/iofopen.c", 75}},
      {{"__libc_fcntl64", "", 0}, {"lockf64", "", 0}},
      {{"read", "", 0}, {"_IO_file_underflow", "", 0}, {"_IO_default_uflow", "", 0}},
      {{"__GI___libc_write", "", 0},
       {"new_do_write", "./libio/fileops.c", 448},
       {"outstring_func", "./stdio-common/vfprintf-internal.c", 239},
       {"__printf", "./stdio-common/printf.c", 33},
       {"__interceptor_printf", "", 0}},
  };
  for (std::vector<Frame> frames : waits) {
    CAPTURE(frames.back().function);
    frames.push_back({"step(char const*)", "", 0});
    frames.push_back({"main", "", 0});
    CHECK(WhereOf(frames) == "in step");
  }
}

TEST_CASE("where: of a Python that was read without py-spy no C function passes for the user's") {
  CHECK(WhereOf({{"clock_nanosleep", "", 0},
                 {"time_sleep", "", 0},
                 {"_PyEval_EvalFrameDefault", "", 0},
                 {"pyrun_file", "pythonrun.c", 1626},
                 {"Py_BytesMain", "", 0},
                 {"main", "", 0}}) == "in Python code (py-spy would name its line)");
  CHECK(WhereOf({{"recv", "", 0},
                 {"c10d::TCPStore::wait(std::string)", "", 0},
                 {"_PyEval_EvalFrameDefault", "", 0}}) ==
        "in c10d::TCPStore::wait, called from Python code (py-spy would name its line)");
}

TEST_CASE("stack text: hostile and huge output is bounded and harmless on a terminal") {
  std::string many;
  for (int i = 0; i < 3000; ++i) many += "TID " + std::to_string(i + 1) + ":\n#0  0x1 f\n";
  CHECK(ParseStack(kEuStack, many, 1).threads.size() == kMaxThreads);
  std::string deep = "TID 1:\n";
  for (int i = 0; i < 100'000; ++i) deep += "#0  0x1 recurse\n";
  CHECK(ParseStack(kEuStack, deep, 1).threads[0].frames.size() == kMaxFrames);
  const Stack odd = ParseStack(kPySpy,
                               "Thread 1 (idle): \"\x1b[31m\"\n    \x1b]0;f (\xff.py:1)\n    " +
                                   std::string(100'000, 'x') + " (a:1)\n",
                               1);
  CHECK(odd.threads[0].name == "\\x1b[31m");
  CHECK(odd.threads[0].frames[0].file == "\\xff.py");
  CHECK(odd.threads[0].frames[1].function.size() <= 512);
  CHECK(WhereText(odd) != Contains("\x1b"));
}

// What a tool may print when it is cut, mixed or broken: no crash, within the bounds.
TEST_CASE("stack text: any text is read") {
  std::mt19937 random(7);
  const std::vector<std::string> pieces = {"Thread ",
                                           "TID ",
                                           "#0  0x",
                                           " in ",
                                           " at ",
                                           "(",
                                           ")",
                                           "\"",
                                           "\n",
                                           "    ",
                                           ":",
                                           "12",
                                           " from ",
                                           "File \"",
                                           "\", line ",
                                           "LWP ",
                                           "most recent call first",
                                           "hread 0x",
                                           "operator",
                                           "<",
                                           ">",
                                           "(anonymous namespace)",
                                           "@",
                                           "a.py",
                                           "/lib/python",
                                           "/site-packages/",
                                           "{lambda(",
                                           "\xf0"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += pieces[random() % pieces.size()];
    for (const char* tool : {kPySpy, kEuStack, kGdb, kWorkerServer}) {
      const Stack stack = ParseStack(tool, text, 12);
      CHECK(stack.threads.size() <= kMaxThreads);
      CHECK(WhereText(stack).size() < 4096);
      StackText(stack);
      IsWaiting(stack);
    }
  }
}

TEST_CASE("stack text: the file for people has all threads") {
  CHECK(StackText(ParseStack(kEuStack, kEuStackDump, 15880)) == R"(main thread 15880
    __futex_abstimed_wait_common (./nptl/futex-internal.c:103)
    pthread_cond_wait
    void trainer::Wait<int>(int)
    main (/tmp/hd/w.cc:5)
    ?

thread 15883
    pause
)");
}

TEST_CASE("stack text: a long name is cut between characters") {
  std::string name = "a";
  while (name.size() < 300) name += "\u0448";  // two bytes each
  const std::string text = FrameText({.function = name});
  CHECK(text == name.substr(0, 99) + "...");
}

}  // namespace
}  // namespace ddprun::launcher
