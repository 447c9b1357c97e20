// News from the server, and what is shown while there are none.

const LOST_S = 3.5;    // an open connection that says nothing for this long is as good as lost,
                       // or for three times as long as it took last: a large job's status may come more slowly
const REOPEN_S = 10;   // and is opened anew after this long
const clock = () => performance.now() / 1000;

let latest = null;     // the picture made of the newest JobView
let heardAt = null;    // when it came
let source = null;
let openedAt = 0;
let interval = 1;      // between the last two
let isLost = false;
let lastProblems = "";

function onStatus(event) {
  let job;
  try {
    job = JSON.parse(event.data);
  } catch (error) {
    return;  // Half a word; the next one is due in a second.
  }
  if (job.version !== 1) {
    setText(byId("sentence"), `This page knows version 1 of the status; the server speaks version ${job.version}: reload the page.`);
    return;
  }
  latest = judge(job);
  // After a loss, or while nobody looks, it is no measure.
  if (heardAt !== null && !isLost && !document.hidden) interval = Math.min(10, clock() - heardAt);
  heardAt = clock();
  isLost = false;
  remember(job, heardAt);
  announceProblems();
  renderConnection();
  // A page that nobody sees only remembers.
  if (!document.hidden) renderAll();
}

function renderAll() {
  if (!latest) return;
  renderVerdict(latest);
  renderFigures(latest);
  renderProblems(latest);
  renderFault(latest);
  renderGrid(latest, sinceHeard());
  renderDetails(latest, sinceHeard());
  renderSlowest(latest);
  renderRounds(latest);
  renderPlots(clock());
}

function renderChosen() {
  if (!latest) return;
  markChosen(latest);
  renderDetails(latest, sinceHeard());
}

const sinceHeard = () => (heardAt === null ? 0 : clock() - heardAt);

// For those who hear the page: each change once, never the step numbers.
function announceProblems() {
  const problems = latest.problems.map((problem) => problem.kind + problem.ranks.join()).join(";");
  if (problems === lastProblems) return;
  lastProblems = problems;
  setText(byId("announcement"), latest.problems.length ? `${latest.problems.length} problems. ${latest.problems[0].text}` : "No problems.");
}

function renderConnection() {
  const place = byId("connection"), since = sinceHeard();
  const isOld = heardAt !== null && (isLost || since > Math.max(LOST_S, 3 * interval));
  const isOver = latest !== null && latest.job.state === "ended";
  const state = heardAt === null ? "connecting" : isOld ? (isOver ? "over" : "lost") : "live";
  if (place.className !== state) {
    if (state === "lost") setText(byId("announcement"), "Connection lost.");
    else if (place.className === "lost") setText(byId("announcement"), "Connected again.");
    place.className = state;
    document.body.classList.toggle("is-lost", state === "lost");
  }
  const words = {
    connecting: isLost ? "no connection, trying again" : "connecting",
    live: "live",
    lost: `connection lost · the data are ${age(since)} old`,
    over: "the job has ended · the last that was known",
  };
  setText(place, words[state]);
  return state;
}

// EventSource comes back by itself from a broken connection, but not from an answer that is no stream,
// nor from a connection that is open and dead.
function connect() {
  if (source) source.close();
  openedAt = clock();
  source = new EventSource("events");
  source.addEventListener("status", onStatus);
  source.addEventListener("history", (event) => recall(JSON.parse(event.data), clock()));
  source.onerror = () => {
    isLost = true;
    tick();
  };
}

function tick() {
  const state = renderConnection(), silence = clock() - Math.max(openedAt, heardAt || 0);
  if (state === "lost" && latest && !document.hidden) renderGrid(latest, sinceHeard());
  if (silence > Math.max(REOPEN_S, 4 * interval) || (source.readyState === EventSource.CLOSED && clock() - openedAt > 2)) connect();
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) renderAll(); });
window.addEventListener("resize", () => renderPlots(clock()));
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-choose],[data-output]");
  if (!button) return;
  if (button.dataset.output) return showOutput(Number(button.dataset.output));
  choose(Number(button.dataset.choose));
  byId("ranks").scrollIntoView({ block: "nearest" });
});

connect();
setInterval(tick, 500);
