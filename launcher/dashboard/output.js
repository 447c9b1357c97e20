// The output of one rank, as text. Only what is asked for is fetched, and only the newest is kept.

const OUTPUT_LINES = 5000;
const OUTPUT_EVERY_MS = 1000;

// follows: the rank whose output is fetched, or null; offset: where the next piece begins, by the server's count.
const output = { follows: null, offset: null, lines: [], rest: "", timer: 0, isLeftOut: false };

function showOutput(rank) {
  byId("output-rank").value = rank;
  follow(rank);
  byId("output").scrollIntoView({ block: "start" });
}

function follow(rank) {
  clearTimeout(output.timer);
  Object.assign(output, { follows: rank, offset: null, lines: [], rest: "", isLeftOut: false });
  setText(byId("output-button"), rank === null ? "Show" : "Stop");
  if (rank === null) return setText(byId("output-note"), "");
  setText(byId("output-note"), "fetching");
  renderOutput();
  return fetchOutput(rank);
}

async function fetchOutput(rank) {
  let note = "";
  try {
    const from = output.offset === null ? "" : `&offset=${output.offset}`;
    const reply = await fetch(`logs?rank=${rank}${from}`, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    const said = await reply.json();
    if (output.follows !== rank) return;
    if (!reply.ok) {
      follow(null);
      return setText(byId("output-note"), said.error || `refused: ${reply.status}`);
    }
    take(said);
  } catch (error) {
    if (output.follows !== rank) return;
    note = `cannot be fetched: ${error.message}; tried again`;
  }
  setText(byId("output-note"), note || noteText());
  output.timer = setTimeout(() => fetchOutput(rank), OUTPUT_EVERY_MS);
}

function take(said) {
  // A worker that was started again begins anew.
  if (output.offset !== null && said.offset < output.offset) Object.assign(output, { lines: [], rest: "", isLeftOut: false });
  const isNew = said.text !== "" || output.offset === null;
  output.offset = said.offset;
  if (!isNew) return;
  const lines = (output.rest + said.text).split("\n");
  output.rest = lines.pop();
  if (output.rest.length > 65536) output.rest = output.rest.slice(-65536);
  output.lines.push(...lines.map(plainLine));
  const extra = output.lines.length - OUTPUT_LINES;
  if (extra > 0) { output.lines.splice(0, extra); output.isLeftOut = true; }
  renderOutput();
}

// Of a line that was written over, as progress bars do, the last state.
const plainLine = (line) => text(line.replace(/\r+$/, "").replace(/^.*\r/s, ""));

function noteText() {
  const words = byId("output-search").value;
  const shown = words ? `${count(matching(words).length)} of ${count(output.lines.length)} lines` : `${count(output.lines.length)} lines`;
  return shown + (output.isLeftOut ? ", the newest" : "");
}

const matching = (words) => output.lines.filter((line) => line.toLowerCase().includes(words.toLowerCase()));

// A line with what was searched for in <mark>.
function marked(line, words) {
  const pieces = [], low = line.toLowerCase(), sought = words.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(sought); at >= 0; at = low.indexOf(sought, from)) {
    pieces.push(line.slice(from, at), h("mark", null, line.slice(at, at + sought.length)));
    from = at + sought.length;
  }
  return [pieces, line.slice(from), "\n"];
}

function renderOutput() {
  const place = byId("output-text"), words = byId("output-search").value;
  const isAtEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 20;
  place.hidden = false;
  const last = output.rest ? plainLine(output.rest) : "";
  if (words) patch(place, matching(words).slice(-1000).map((line) => marked(line, words)));
  else place.textContent = output.lines.length || last ? [...output.lines, last].join("\n") : "It has written nothing yet.";
  if (isAtEnd) place.scrollTop = place.scrollHeight;
}

byId("output-form").addEventListener("submit", (event) => {
  event.preventDefault();
  follow(output.follows === null ? Number(byId("output-rank").value) : null);
});
byId("output-rank").addEventListener("input", () => { if (output.follows !== null) follow(null); });
byId("output-search").addEventListener("input", () => {
  if (output.offset === null) return;
  renderOutput();
  setText(byId("output-note"), noteText());
});
