// A cgroup (v2) of the job's own on this machine.
#ifndef DDPRUN_LAUNCHER_PROCESS_JOB_CGROUP_H_
#define DDPRUN_LAUNCHER_PROCESS_JOB_CGROUP_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace ddprun::launcher {

// Workers are born in it, and what they start stays in it whatever it does to its environment, its
// session or its parents: one write kills all of it. It limits nothing and counts nothing.
//
// Made before the guardian is forked, which outlives it; the destructor leaves the directory alone.
class JobCgroup {
 public:
  // Makes "ddprun-<owner tag>-<last part of the mark>" below the agent's own cgroup. Null where
  // there is none for us: no cgroup v2, mounted read-only, no rights, a kernel before 5.14 (no
  // cgroup.kill), or one that lets no process be born in it: some (seen on 6.18) kill at birth
  // whoever is cloned from one cgroup into another that was killed more often or less often, and a
  // new one never was.
  static std::unique_ptr<JobCgroup> Make(const std::string& job_mark);

  // Kills every process in it, those that are being forked included. For the job's end only: none
  // may be born in it afterwards (see above).
  void Kill() const;
  // Whether a living process is in it or below it. One read, however many there are. False, too,
  // when it cannot be told.
  bool IsPopulated() const;
  // Removes the directory and those that workers made below it. False when a process is still there
  // after 100 ms.
  bool Remove() const;
  // Removes the cgroups beside this one that killed jobs of this user have left, where no process
  // is in or below them. A living job's is empty, too, before its workers start: the owner decides.
  void RemoveAbandoned() const;

  int directory() const { return directory_.get(); }  // for SpawnRequest
  const std::string& name() const { return name_; }   // "/ddprun-...", as in /proc/PID/cgroup
  const std::string& path() const { return path_; }   // of the directory

 private:
  JobCgroup(std::string path, std::string name, UniqueFd directory);

  const std::string name_;
  const std::string path_;
  const UniqueFd directory_;
};

// As clone(run, stack + stack_bytes, CLONE_VM | SIGCHLD, argument), and the child is in the cgroup
// of `directory` from its first instruction: moving it there later (cgroup.procs) would wait for an
// RCU grace period, milliseconds for each worker. -1 with errno set where this cannot be had:
// ENOSYS (before Linux 5.7, or a filter), EACCES, EBUSY, EOPNOTSUPP, ... REQUIRES: `stack` is
// aligned to 16 bytes and `stack_bytes` a multiple of 16.
pid_t CloneIntoCgroup(int directory, int (*run)(void*), void* stack, size_t stack_bytes,
                      void* argument);

// What the guardian does with the path. Async-signal-safe.
void KillCgroup(const char* path);
bool RemoveCgroup(const char* path);

// Pure: the directories under which the process with this /proc/self/cgroup finds its own v2
// cgroup, by this /proc/self/mountinfo. Several mounts give several; most machines have one or
// none. None within a step of Slurm, which tracks processes by its cgroups.
std::vector<std::string> OwnCgroupDirectories(const std::string& mountinfo,
                                              const std::string& cgroups);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_JOB_CGROUP_H_
