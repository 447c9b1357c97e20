// The parts that are made of one JobView each time: what is said first, problems, the first fault, the
// slowest ranks, the rounds.

function verdictOf(job, problems) {
  if (problems.some((problem) => BAD_KINDS.has(problem.kind))) return "bad";
  if (!job.is_healthy || problems.length) return "warning";
  if (job.state === "running") return "good";
  return job.state === "unknown" ? "unknown" : "between";
}

function renderVerdict({ job, problems }) {
  byId("verdict").className = verdictOf(job, problems);
  setText(byId("sentence"), job.sentence || "unknown");
  const left = isKnown(job.waiting_left_s) ? ` (given up in ${age(job.waiting_left_s)})` : "";
  const waiting = job.waiting_line || job.waiting_for;
  byId("waiting").hidden = !waiting;
  setText(byId("waiting"), waiting ? `${waiting}${left}` : "");
  setText(byId("program"), [job.program, job.run_id && `run ${job.run_id}`].filter(Boolean).join(" · "));
  const mark = problems.length ? `(${problems.length}) ` : "";
  document.title = text(`${mark}${job.state}: ${job.program || job.run_id || "job"} - ddprun`);
}

function renderFigures({ job }) {
  const figure = (name, value, unit) =>
    h("div", null, h("dt", null, name), h("dd", null, value === null ? unknown() : value, value !== null && unit ? h("small", null, ` ${unit}`) : null));
  const still = stepless(job);
  const speed = still !== null ? ["none", `for ${age(still)}`] : isKnown(job.samples_per_s) ? [short(job.samples_per_s), "samples/s"]
    : isKnown(job.step_s) && job.step_s > 0 ? [short(1 / job.step_s), "steps/s"] : [null];
  const or = (value, format) => (isKnown(value) ? format(value) : null);
  patch(byId("figures"), [
    figure("Step", or(job.step, count)),
    figure("Throughput", ...speed),
    figure("Step time", or(job.step_s, seconds)),
    figure("Communication", still === null ? or(job.exposed_share, percent) : null, "of a step"),
    figure("Time in steps", or(job.effective_share, percent)),
    figure("Restarts", count(job.restart_count), `of ${count(job.max_restarts)}`),
    figure("Nodes", count(job.node_count), job.min_nodes === job.max_nodes ? `of ${count(job.max_nodes)}` : `of ${count(job.min_nodes)} to ${count(job.max_nodes)}`),
    figure("Up", age(job.up_s)),
  ]);
}

const RANKS_NAMED = 8;  // by buttons; a longer list is words

function renderProblems({ problems }) {
  byId("problems").hidden = problems.length === 0;
  patch(byId("problems"), h("ul", null, problems.map((problem) =>
    h("li", { class: BAD_KINDS.has(problem.kind) ? "bad" : "warning" },
      h("span", { class: "icon", "aria-hidden": "true" }),
      h("div", null,
        h("p", null, h("b", null, problem.text)),
        h("p", { class: "note" },
          [problem.kind.replaceAll("_", " "), problem.node && `on ${problem.node}`, problem.since_s >= 1 && `for ${age(problem.since_s)}`].filter(Boolean).join(" · "),
          problem.ranks.slice(0, RANKS_NAMED).map((rank) => [" ", h("button", { type: "button", "data-choose": rank }, `rank ${rank}`)]),
          problem.ranks.length > RANKS_NAMED ? ` and ${count(problem.ranks.length - RANKS_NAMED)} more: ${rankList(problem.ranks)}` : null))))));
}

function renderFault({ job }) {
  const fault = job.first_fault, section = byId("fault");
  section.hidden = !fault;
  if (!fault) return;
  patch(section, [
    h("h2", null, "First fault"),
    h("p", null, h("b", null, `Rank ${fault.rank} on ${fault.host}: ${fault.text}`),
      h("span", { class: "note" }, ` · round ${fault.round}, ${age(fault.age_s)} ago`)),
    fault.last_lines ? h("pre", { tabindex: 0, "aria-label": "The last lines of its stderr" }, fault.last_lines)
      : h("p", { class: "note" }, "Its last lines are not known or not shown."),
  ]);
  // While the round that it ended is the newest it is news; later it belongs to the rounds.
  const isNews = fault.round >= job.round;
  const before = isNews ? byId("now") : byId("output");
  if (section.nextElementSibling !== before) before.before(section);
}

const SLOWEST = 8;

function middle(values) {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function stepBar(rank, longest) {
  const parts = { own: rank.self_s, exposed: isKnown(rank.exposed_share) && isKnown(rank.step_s) ? rank.exposed_share * rank.step_s : null };
  parts.rest = isKnown(rank.step_s) && parts.exposed !== null ? Math.max(0, rank.step_s - parts.own - parts.exposed) : null;
  const words = [`own work ${seconds(parts.own)}`, `communication ${seconds(parts.exposed)}`, `the rest ${seconds(parts.rest)}`].join(", ");
  return bar(words, Object.entries(parts), longest);
}

function renderSlowest({ ranks, job }) {
  const measured = [...ranks.values()].filter(({ rank }) => isKnown(rank.self_s));
  if (measured.length === 0) {
    return patch(byId("slowest-body"), h("p", { class: "note" }, "Unknown: no rank reports how long it works before it waits for others."));
  }
  const usual = middle(measured.map(({ rank }) => rank.self_s));
  const worst = measured.sort((a, b) => b.rank.self_s - a.rank.self_s).slice(0, SLOWEST);
  const longest = Math.max(...worst.map(({ rank }) => Math.max(rank.self_s, rank.step_s || 0)));
  const more = (self) => {
    if (usual <= 0) return "unknown";
    const change = Math.round(100 * (self / usual - 1));
    return `${change > 0 ? "+" : change < 0 ? "−" : ""}${Math.abs(change)} %`;
  };
  return patch(byId("slowest-body"), [
    h("p", { class: "note" }, "By own work: what a rank takes in a step before it waits for others. All wait for the slowest. ",
      key("own", "own work"), key("exposed", "communication, waited for"), key("rest", "the rest, not told apart")),
    h("div", { class: "wide" }, h("table", { class: "slowest" },
      h("thead", null, h("tr", null, ["rank", "node", "own work", "to the median", "step", "one step"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, worst.map(({ rank, node, state }) => h("tr", { class: state === "straggler" ? "straggler-row" : "" },
        h("td", null, h("button", { type: "button", "data-choose": rank.rank }, `rank ${rank.rank}`)), h("td", null, node.name),
        h("td", null, seconds(rank.self_s)), h("td", null, more(rank.self_s)),
        h("td", null, known(rank.step_s, seconds)), h("td", { class: "bar-cell" }, stepBar(rank, longest))))))),
    h("p", { class: "note" }, measured.length < job.world_size ? `${count(job.world_size - measured.length)} of ${count(job.world_size)} ranks do not report it.` : ""),
  ]);
}

const key = (name, words) => [h("span", { class: "entry" }, h("span", { class: `key ${name}` }), words), " "];

const ROUND_PARTS = [
  ["detect", "detect", "detect_s"], ["stop", "stop", "stop_s"], ["rendezvous", "rendezvous", "rendezvous_s"],
  ["exec", "exec", "exec_s"], ["first-step", "first step", "first_step_s"],
];
const ROUNDS_SHOWN = 10;

// A new job has no failure to notice and nothing to stop.
function partsOf(round) {
  const isFirst = !round.reason && !isKnown(round.detect_s) && !isKnown(round.stop_s);
  return isFirst ? ROUND_PARTS.slice(2) : ROUND_PARTS;
}

function roundRow(round, longest) {
  const parts = partsOf(round);
  const words = parts.map(([, name, field]) => `${name} ${seconds(round[field])}`).join(", ");
  const total = parts.reduce((sum, [, , field]) => sum + (round[field] || 0), 0);
  const isWhole = parts.every(([, , field]) => isKnown(round[field]));
  return h("li", null,
    h("p", null, h("b", null, `Round ${round.round}`),
      h("span", { class: "note" }, ` · ${age(round.age_s)} ago`, round.reason ? ` · after: ${round.reason}` : "")),
    bar(words, parts.map(([name, , field]) => [name, round[field]]), longest),
    h("p", { class: "note" }, `${seconds(total)}${isWhole ? "" : " so far as known"}: ${words}`));
}

function renderRounds({ job }) {
  const shown = job.rounds.slice(-ROUNDS_SHOWN).reverse();
  const longest = Math.max(1e-9, ...shown.map((round) => ROUND_PARTS.reduce((sum, [, , field]) => sum + (round[field] || 0), 0)));
  patch(byId("rounds-body"), shown.length === 0 ? h("p", { class: "note" }, "No round is known yet.") : [
    h("p", { class: "note" }, `Where the time until the first step went; ${count(job.restart_count)} of ${count(job.max_restarts)} restarts are used. `,
      ROUND_PARTS.map(([name, words]) => key(name, words))),
    h("ol", { class: "rounds" }, shown.map((round) => roundRow(round, longest))),
    job.rounds.length > ROUNDS_SHOWN ? h("p", { class: "note" }, `${job.rounds.length - ROUNDS_SHOWN} earlier rounds are not shown.`) : null,
  ]);
  const spent = [["checkpoints", job.checkpoint_s], ["evaluation", job.evaluation_s], ["restarts", job.restart_s], ["starting", job.start_s]]
    .filter(([, value]) => value > 0).map(([name, value]) => `${name} ${seconds(value)}`);
  setText(byId("time-spent"), (isKnown(job.effective_share) ? `${percent(job.effective_share)} of the job's time went into steps.` : "How much of the job's time went into steps is unknown.") + (spent.length ? ` Known of the rest: ${spent.join(", ")}.` : ""));
}
