"""The defences that a ddprun for the twins of tests/faults can do without, one at a time.

Each patch is (file, text that stands in it exactly once, text in its place). MUTANT is true while the
defence is switched off.
"""

SWITCH = "::ddprun::testing::IsOff"
HEADER = "tests/faults/disarm/disarm.h"

CORE = "rendezvous/core/"
PROCESS = "launcher/process/"

MUTANTS = [
    {
        "name": "kill after the grace",
        "patches": [(PROCESS + "worker_stop.cc",
                     "  kill_at_ = std::min(kill_at_, now + grace);\n",
                     "  kill_at_ = std::min(kill_at_, now + (MUTANT ? std::chrono::hours(1) : grace));\n")],
    },
    {
        "name": "leftovers end before the next round",
        "patches": [(PROCESS + "leftover_watch.cc",
                     "  if (!HasChildren()) return false;\n",
                     "  if (MUTANT || !HasChildren()) return false;\n")],
    },
    {
        "name": "workers die with their agent",
        "patches": [(PROCESS + "child_setup.cc",
                     "RawSyscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)",
                     "RawSyscall(SYS_prctl, PR_SET_PDEATHSIG, MUTANT ? 0 : SIGKILL, 0, 0, 0)"),
                    (PROCESS + "guardian.cc",
                     "  AwaitEndOfAgent(*orders.signals);\n",
                     "  AwaitEndOfAgent(*orders.signals);\n"
                     "  if (MUTANT) syscall(SYS_exit_group, 0);\n")],
    },
    {
        "name": "who has been reaped is forgotten",
        "patches": [(PROCESS + "worker_group.cc",
                     "    if (kill(-worker.pid, 0) == 0 || errno != ESRCH) return;\n",
                     "    if (MUTANT || kill(-worker.pid, 0) == 0 || errno != ESRCH) return;\n")],
    },
    {
        "name": "a coordinator that is started again takes up the round",
        "patches": [(CORE + "machine_readopt.cc",
                     "bool State::MayReadopt(const Stamp& stamp) const {\n",
                     "bool State::MayReadopt(const Stamp& stamp) const {\n  if (MUTANT) return false;\n")],
    },
    {
        "name": "a verdict is durable before it is told",
        "patches": [(CORE + "machine_tell.cc",
                     "  WriteRecord();\n}\n\nvoid State::TellVerdict",
                     "  WriteRecord();\n  if (MUTANT) TellVerdict(now);\n}\n\nvoid State::TellVerdict")],
    },
    {
        "name": "a verdict waits for the disk for two seconds",
        "patches": [(CORE + "machine_tell.cc",
                     "  end_at = now + record_limit;\n",
                     "  end_at = now + (MUTANT ? std::chrono::hours(1) : record_limit);\n")],
    },
    {
        "name": "amnesty for a coordinator that did not run",
        "patches": [(CORE + "membership.cc",
                     "  is_cut_off_ = false;\n  amnesty_until_ = now + time;\n",
                     "  is_cut_off_ = false;\n  if (MUTANT) return;\n  amnesty_until_ = now + time;\n"),
                    (CORE + "membership.cc",
                     "  if (!expired.empty() && IsQuiet(now)) {\n",
                     "  if (!MUTANT && !expired.empty() && IsQuiet(now)) {\n")],
    },
    {
        "name": "a silent node is lost",
        "patches": [(CORE + "membership.cc",
                     "  if (now < next_scan_) return expired;\n",
                     "  if (MUTANT || now < next_scan_) return expired;\n")],
    },
    {
        "name": "an agent connects again",
        "patches": [("rendezvous/client/contact_talk.cc",
                     "  // What broke after contact is looked into by the next attempt.\n",
                     "  if (MUTANT) return Fail(absl::StrCat(\"the coordinator is lost: \", reason));\n")],
    },
    {
        "name": "a file that takes no more stops nobody",
        "patches": [("launcher/logs/file_sink.cc",
                     "    if (written < 0 && errno == EINTR) continue;\n",
                     "    if (written < 0 && (errno == EINTR || (MUTANT && errno == ENOSPC))) continue;\n")],
    },
    {
        "name": "a name is looked up at each attempt",
        "patches": [("rendezvous/client/look.cc",
                     "  const Resolution names = resolve(options.endpoint_host, port);\n",
                     "  static const Resolution first = resolve(options.endpoint_host, port);\n"
                     "  const Resolution names = MUTANT ? first : resolve(options.endpoint_host, port);\n")],
    },
    {
        "name": "the first failure is named",
        "patches": [(CORE + "machine_round.cc",
                     "  return a.date < b.date;\n",
                     "  return MUTANT ? b.date < a.date : a.date < b.date;\n")],
    },
]
