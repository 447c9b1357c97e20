// What each rank does, in one word of the legend: what the job's judge says of it, then what its numbers say.

const STALE_S = 3;    // news of a node this old is no news
const WAITING_S = 1;  // shorter waits are part of every step
const LATE_S = 3;     // others have waited this long for what a rank has not come to
const STEPLESS_S = 5;

// In the order of the legend, the worst first: the order in which a state asks for attention.
const STATES = {
  failed: "failed",
  late: "late: others wait for it",
  straggler: "straggler",
  unknown: "unknown",
  waiting: "waiting in a collective",
  checkpoint: "checkpoint",
  evaluation: "evaluation",
  starting: "starting",
  running: "running",
  ended: "ended",
};
const STATE_NAMES = Object.keys(STATES);

const BAD_KINDS = new Set(["hang", "no_progress", "lost_node", "failure"]);

// Every problem once, those of the job before those of its nodes.
function allProblems(job) {
  const problems = [...job.problems];
  const seen = new Set(problems.map((problem) => problem.kind + problem.text));
  for (const node of job.nodes) {
    for (const problem of node.problems) {
      if (!seen.has(problem.kind + problem.text)) problems.push({ ...problem, node: problem.node || node.host });
      seen.add(problem.kind + problem.text);
    }
  }
  return problems;
}

// key -> who is in the group, as far as it is known, and how far they have come.
function groupsOf(job) {
  const groups = new Map();
  for (const node of job.nodes) {
    for (const rank of node.ranks) {
      for (const view of rank.groups) {
        if (!groups.has(view.key)) groups.set(view.key, { members: [], most: 0, wait: 0 });
        const group = groups.get(view.key);
        group.members.push({ rank: rank.rank, called: view.called });
        if (view.called >= group.most) group.most = view.called;
        if (rank.state !== "ended") group.wait = Math.max(group.wait, view.waiting_s);
      }
    }
  }
  return groups;
}

// The members that have not come to the oldest operation which `view` has under way.
function missingIn(view, groups) {
  return groups.get(view.key).members.filter((member) => member.called <= view.done).map((member) => member.rank);
}

const longestWait = (rank) =>
  rank.groups.reduce((longest, view) => (view.waiting_s > (longest ? longest.waiting_s : 0) ? view : longest), null);

// Its view of a group in which others wait for it.
const lateView = (rank, groups) => rank.groups.find((view) => {
  const group = groups.get(view.key);
  return group.wait >= LATE_S && view.called < group.most;
});

function stateOf(rank, named, groups) {
  const kinds = (named.get(rank.rank) || []).map((problem) => problem.kind);
  if (rank.state === "ended") {
    // A survivor of another's failure is stopped by ddprun, with SIGTERM.
    return rank.end === "" || rank.end === "exit code 0" || rank.end.includes("SIGTERM") ? "ended" : "failed";
  }
  if (kinds.includes("hang")) return "late";
  if (kinds.includes("straggler")) return "straggler";
  const wait = longestWait(rank);
  if (wait && wait.waiting_s >= WAITING_S) return "waiting";
  if (rank.phase === "evaluation" || rank.phase === "checkpoint") return rank.phase;
  if (rank.state === "starting" || rank.phase === "start") return "starting";
  if (lateView(rank, groups)) return "late";
  return rank.state === "running" ? "running" : "unknown";
}

// How long no rank has ended a step; null: one has lately, or none reports steps. Means over the last steps
// say nothing of a job that makes none.
function stepless(job) {
  let least = Infinity;
  for (const node of job.nodes) {
    for (const rank of node.ranks) if (isKnown(rank.step)) least = Math.min(least, rank.step_age_s + node.age_s);
  }
  return least < Infinity && least > Math.max(STEPLESS_S, 4 * (job.step_s || 0)) ? least : null;
}

// The whole picture: every rank with its node and state, by number.
function judge(job) {
  const problems = allProblems(job), groups = groupsOf(job), named = new Map(), ranks = new Map();
  for (const problem of problems) {
    for (const rank of problem.ranks) {
      if (!named.has(rank)) named.set(rank, []);
      named.get(rank).push(problem);
    }
  }
  for (const node of job.nodes) {
    for (const rank of node.ranks) ranks.set(rank.rank, { rank, node, state: stateOf(rank, named, groups) });
  }
  return { job, problems, named, groups, ranks };
}

// The rank that most asks for attention.
function worstRank(picture) {
  let worst = null;
  for (const entry of picture.ranks.values()) {
    if (!worst || STATE_NAMES.indexOf(entry.state) < STATE_NAMES.indexOf(worst.state)) worst = entry;
  }
  return worst ? worst.rank.rank : null;
}
