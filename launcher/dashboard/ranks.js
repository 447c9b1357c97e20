// The grid: a cell for each rank, grouped by node. Cells are kept and changed one by one: 8,192 of them
// are too many to make anew every second.

const grid = byId("grid");
const cells = new Map();  // rank -> its cell
let shape = "";           // which ranks stand where; another one makes the grid anew
let chosen = null;        // the rank that was clicked, or that the arrows have come to
let hovered = null;       // the rank under the pointer
const visit = {};         // state -> the rank that its legend entry has shown last

// Cells shrink so that a job fits on a screen.
function cellSize(ranks) {
  const steps = [[16, "huge"], [64, "large"], [256, "medium"], [1024, "small"], [4096, "tiny"]];
  const found = steps.find(([most]) => ranks <= most);
  return found ? found[1] : "least";
}

function buildGrid(job, ranks) {
  cells.clear();
  grid.className = cellSize(ranks);
  const silent = job.silent_nodes.map((host) => ({ name: host, ranks: [], isSilent: true }));
  const boxes = [...job.nodes, ...silent].map((node, index) => {
    const box = document.createElement("div");
    box.className = node.isSilent ? "node silent" : "node";
    box.dataset.index = index;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", text(node.name));
    const label = document.createElement("p");
    label.className = "node-label";
    setText(label, node.isSilent ? `${node.name}: no answer` : node.name);
    const list = document.createElement("div");
    list.className = "cells";
    for (const rank of node.ranks) {
      const cell = document.createElement("span");
      cell.setAttribute("role", "option");
      cell.dataset.rank = rank.rank;
      cell.tabIndex = -1;
      const number = document.createElement("b");
      number.textContent = rank.rank;
      cell.append(number);
      cells.set(rank.rank, cell);
      list.append(cell);
    }
    box.append(label, list);
    return box;
  });
  grid.replaceChildren(...boxes);
}

function nodeLabel(node, extra) {
  const words = [node.name];
  if (node.node_rank < 0) words.push("in no round");
  if (node.state !== "running" && node.state !== "") words.push(node.state);
  if (node.age_s + extra > STALE_S) words.push(`${age(node.age_s + extra)} old`);
  return words.join(" · ");
}

// `extra`: how old the picture itself is.
function renderGrid(picture, extra) {
  const { job, ranks, named } = picture;
  const wanted = JSON.stringify([job.nodes.map((node) => [node.name, node.ranks.map((rank) => rank.rank)]), job.silent_nodes]);
  if (wanted !== shape) {
    const hadFocus = grid.contains(document.activeElement);
    buildGrid(job, ranks.size);
    shape = wanted;
    if (hadFocus && cells.has(chosen)) cells.get(chosen).focus();
  }
  job.nodes.forEach((node, index) => {
    const box = grid.children[index];
    const isStale = node.age_s + extra > STALE_S;
    box.classList.toggle("stale", isStale);
    setText(box.firstChild, nodeLabel(node, extra));
    if (box.title !== text(nodeLabel(node, extra))) box.title = text(nodeLabel(node, extra));
    for (const rank of node.ranks) {
      const { state } = ranks.get(rank.rank), cell = cells.get(rank.rank);
      const look = `cell ${state}${named.has(rank.rank) ? " named" : ""}`;
      if (cell.className !== look) cell.className = look;
      const words = `rank ${rank.rank}, ${STATES[state]}${isStale ? ", stale" : ""}`;
      if (cell.getAttribute("aria-label") !== words) cell.setAttribute("aria-label", words);
    }
  });
  markChosen(picture);
  renderLegend(picture);
}

function markChosen(picture) {
  const shown = shownRank(picture), stop = cells.has(chosen) ? chosen : shown;
  for (const old of grid.querySelectorAll('[aria-selected="true"],[tabindex="0"]')) {
    if (old.dataset.rank !== String(shown)) old.setAttribute("aria-selected", "false");
    if (old.dataset.rank !== String(stop)) old.tabIndex = -1;
  }
  if (cells.has(shown)) cells.get(shown).setAttribute("aria-selected", "true");
  if (cells.has(stop)) cells.get(stop).tabIndex = 0;
}

// Whose details are shown: under the pointer, else chosen, else the one that most asks for it.
function shownRank(picture) {
  if (hovered !== null && cells.has(hovered)) return hovered;
  return chosen !== null && cells.has(chosen) ? chosen : worstRank(picture);
}

function renderLegend(picture) {
  const counts = {};
  for (const { state } of picture.ranks.values()) counts[state] = (counts[state] || 0) + 1;
  patch(byId("legend"), [
    STATE_NAMES.filter((state) => counts[state]).map((state) =>
      h("button", { type: "button", "data-state": state, title: "Show the next of them" },
        h("span", { class: `cell ${state}`, "aria-hidden": "true" }),
        h("b", null, count(counts[state])), ` ${STATES[state]}`)),
    picture.ranks.size ? null : h("span", { class: "note" }, "No rank is known yet."),
  ]);
}

function choose(rank, hasFocus = false) {
  if (!cells.has(rank)) return;
  chosen = rank;
  hovered = null;
  if (hasFocus) cells.get(rank).focus({ preventScroll: false });
  renderChosen();
}

// The cell above or below: the nearest in the next row.
function verticalNeighbour(rank, direction) {
  const from = cells.get(rank).getBoundingClientRect();
  let best = null, bestRow = Infinity, bestColumn = Infinity;
  for (const [other, cell] of cells) {
    const box = cell.getBoundingClientRect();
    const row = direction * (box.top - from.top), column = Math.abs(box.left - from.left);
    if (row < 2) continue;
    if (row < bestRow - 1 || (row < bestRow + 1 && column < bestColumn)) {
      best = other; bestRow = row; bestColumn = column;
    }
  }
  return best;
}

function onGridKey(event) {
  const cell = event.target.closest("[data-rank]");
  if (!cell) return;
  const order = [...cells.keys()], rank = Number(cell.dataset.rank), index = order.indexOf(rank);
  const targets = {
    ArrowRight: () => order[index + 1], ArrowLeft: () => order[index - 1],
    ArrowDown: () => verticalNeighbour(rank, 1), ArrowUp: () => verticalNeighbour(rank, -1),
    Home: () => order[0], End: () => order[order.length - 1],
  };
  if (event.key === "Enter") showOutput(rank);
  else if (event.key in targets) choose(targets[event.key](), true);
  else return;
  event.preventDefault();
}

function onLegendClick(event) {
  const entry = event.target.closest("[data-state]");
  if (!entry || !latest) return;
  const { state } = entry.dataset;
  const alike = [...latest.ranks].filter(([, found]) => found.state === state).map(([rank]) => rank);
  if (alike.length === 0) return;
  visit[state] = alike[(alike.indexOf(visit[state]) + 1) % alike.length];
  choose(visit[state]);
  cells.get(chosen).scrollIntoView({ block: "nearest" });
}

const rankUnder = (event) => {
  const cell = event.target.closest && event.target.closest("#grid [data-rank]");
  return cell ? Number(cell.dataset.rank) : null;
};
grid.addEventListener("click", (event) => choose(rankUnder(event), true));
grid.addEventListener("keydown", onGridKey);
grid.addEventListener("pointerover", (event) => {
  // A finger has no way to point without choosing.
  if (event.pointerType !== "mouse") return;
  hovered = rankUnder(event);
  renderChosen();
});
grid.addEventListener("pointerleave", () => { hovered = null; renderChosen(); });
byId("legend").addEventListener("click", onLegendClick);
