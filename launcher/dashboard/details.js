// One rank, with its groups, its node and its GPU.

const unknown = () => h("span", { class: "unknown" }, "unknown");
const known = (value, format) => (isKnown(value) ? format(value) : unknown());
const cores = (value) => (value < 0.05 ? "less than 0.1 cores" : `${value.toFixed(1)} cores`);
const row = (name, value) => [h("dt", null, name), h("dd", null, value)];

// What a rank in a collective waits for, in words.
function waitText(rank, groups) {
  const wait = longestWait(rank);
  if (rank.state === "ended" || !wait || wait.waiting_s < WAITING_S) return null;
  const missing = missingIn(wait, groups), silent = wait.size - groups.get(wait.key).members.length;
  const number = count(wait.done + 1);
  const whom = missing.length ? `${rankWord(missing)} ${rankList(missing)}`
    : silent > 0 ? "" : "no rank: all have come";
  const also = silent > 0 ? `${whom ? " or " : ""}one of ${silent} of which nothing is known` : "";
  return `${age(wait.waiting_s)} in operation ${number} of ${wait.name || "a group"}, for ${whom}${also}`;
}

// What a rank keeps others waiting with.
function lateText(rank, groups) {
  const view = lateView(rank, groups);
  if (!view) return null;
  const { most, wait, members } = groups.get(view.key), ahead = members.filter((member) => member.called === most).length;
  return `${count(ahead)} ${ahead === 1 ? "rank has" : "ranks have"} come to operation ${count(most)} of ${view.name || "a group"}, this one to ${count(view.called)}; the longest wait is ${age(wait)}`;
}

function phaseText(rank) {
  if (rank.phase === "unknown") return unknown();
  return `${rank.phase}, for ${age(rank.phase_s)}`;
}

function stepText(rank) {
  return isKnown(rank.step) ? `${count(rank.step)}, ${age(rank.step_age_s)} ago` : unknown();
}

function groupsTable(rank) {
  if (rank.groups.length === 0) return h("p", { class: "note" }, "Groups: unknown; the program reports none.");
  return h("div", { class: "wide" }, h("table", null,
    h("thead", null, h("tr", null, ["group", "last call", "called", "done", "quiet"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rank.groups.map((view) => h("tr", null,
      h("td", { title: `rank ${view.rank} of ${view.size}` }, view.name || view.key), h("td", null, view.op || unknown()),
      h("td", null, count(view.called)), h("td", null, count(view.done)), h("td", null, age(view.quiet_s)))))));
}

// Its GPU is the one of its local rank, where its node reports so many.
function gpuRows(rank, node) {
  const gpu = node.gpus.find((each) => each.index === rank.local_rank);
  if (!isKnown(rank.gpu) && !isKnown(rank.gpu_memory) && !gpu) return [];
  const total = gpu && isKnown(gpu.memory_total) ? ` of ${bytes(gpu.memory_total)}` : "";
  return [
    row("GPU in use", known(rank.gpu, percent)),
    row("GPU memory", isKnown(rank.gpu_memory) ? bytes(rank.gpu_memory) + total : unknown()),
    gpu ? row("GPU", [gpu.name, isKnown(gpu.temperature) ? `, ${gpu.temperature} °C` : ""]) : [],
    gpu && gpu.throttle ? row("Throttled", gpu.throttle) : [],
    gpu && gpu.xids.length ? row("Errors (XID)", gpu.xids.join(", ")) : [],
  ];
}

function nodeRows(node, extra) {
  const memory = known(node.memory_used, bytes);
  return [
    row("Node", `${node.name}${node.hosts_coordinator ? ", with the coordinator" : ""}`),
    row("Node's state", [node.state || unknown(), `, ${age(node.age_s + extra)} old`]),
    node.waiting_for ? row("It waits for", node.waiting_for + (isKnown(node.waiting_left_s) ? `, ${age(node.waiting_left_s)} left` : "")) : [],
    row("Node's memory", isKnown(node.memory_limit) ? [memory, ` of ${bytes(node.memory_limit)}`] : memory),
    node.oom_kills ? row("Killed for memory", count(node.oom_kills)) : [],
  ];
}

// When in a backward pass its buckets were reduced: all bars have one axis.
function timeline({ backward_s: backward, buckets }) {
  if (!isKnown(backward) || buckets.length === 0) return h("p", { class: "note" }, "When in a step its buckets of gradients were reduced is not known.");
  const end = Math.max(backward, ...buckets.map((bucket) => bucket.end_s)) || 1;
  let number = 0;
  const bucketRow = ({ count: shared, start_s: from, end_s: to }) => {
    const first = ++number, late = Math.max(0, to - Math.max(from, backward));
    number += shared - 1;
    const name = `bucket ${first}${shared > 1 ? `–${number}` : ""}`;
    const words = `${name}: from ${seconds(from)} to ${seconds(to)}, ${seconds(late)} of it behind backward`;
    return row(name, bar(words, [["before", from], ["hidden", to - from - late], ["exposed", late]], end));
  };
  return [
    h("p", { class: "note" }, "One pass. ", key("own", "backward"), key("hidden", "communication"), key("exposed", "behind backward")),
    h("dl", { class: "rows timeline" }, row("backward", bar(`backward: ${seconds(backward)}`, [["own", backward]], end)), buckets.map(bucketRow),
      row("ms", h("div", { class: "title-row" }, [0, 0.5, 1].map((part) => h("span", null, short(1e3 * part * end)))))),
  ];
}

function renderDetails(picture, extra) {
  const shown = shownRank(picture), entry = picture.ranks.get(shown);
  if (!entry) return patch(byId("details"), h("p", { class: "note" }, "No rank is known yet."));
  const { rank, node, state } = entry, wait = waitText(rank, picture.groups), late = lateText(rank, picture.groups);
  patch(byId("details"), [
    h("h3", null, h("span", { class: `cell ${state}`, "aria-hidden": "true" }), `Rank ${rank.rank}`),
    h("p", { class: "state" }, STATES[state]),
    (picture.named.get(shown) || []).map((problem) => h("p", { class: "problem-text" }, problem.text)),
    h("dl", { class: "rows" },
      rank.end ? row("Ended", rank.end) : [],
      wait ? row("Waits", wait) : [], late ? row("Is behind", late) : [],
      row("Phase", phaseText(rank)), row("Step", stepText(rank)),
      row("Step time", [known(rank.step_s, seconds), isKnown(rank.longest_step_s) ? `, longest ${seconds(rank.longest_step_s)}` : ""]),
      row("Own work in it", known(rank.self_s, seconds)),
      row("Communication in it", known(rank.exposed_share, percent)),
      row("Samples/s", known(rank.samples_per_s, significant)),
      row("First step after", known(rank.first_step_s, seconds)),
      row("CPU", [known(rank.cpu, cores), rank.idle_s > 1 ? `, idle for ${age(rank.idle_s)}` : ""]),
      rank.wait ? row("In the kernel", rank.wait) : [],
      row("Memory", known(rank.memory, bytes)), gpuRows(rank, node),
      row("Process", rank.pid ? `pid ${rank.pid}, local rank ${rank.local_rank}, up ${isKnown(rank.up_s) ? age(rank.up_s) : "unknown"}` : "not started"),
      nodeRows(node, extra)),
    timeline(rank), groupsTable(rank),
    rank.last_line ? h("p", { class: "last-line" }, h("code", null, rank.last_line),
      isKnown(rank.last_line_age_s) ? h("span", { class: "note" }, ` ${age(rank.last_line_age_s)} ago`) : null) : null,
    h("button", { type: "button", "data-output": rank.rank }, "Show its output"),
  ]);
}
