// Speed over time: what the server remembers of the time before the page was opened, then what it has heard.

const HISTORY_S = 3600;
const heard = [];  // {at: seconds of this browser's clock, samples, steps, share, round}
let minutesShown = 10;

function remember(job, at) {
  const isStill = stepless(job) !== null;
  heard.push({
    at, round: job.round, share: isStill ? null : job.exposed_share,
    samples: isStill ? 0 : job.samples_per_s,
    steps: isStill ? 0 : isKnown(job.step_s) && job.step_s > 0 ? 1 / job.step_s : null,
  });
  while (heard.length && heard[0].at < at - HISTORY_S) heard.shift();
}

// A page that opens again after a loss has heard better. A point holds until the next one, or for a while.
const HOLD_S = 30;
function recall(points, now) {
  if (heard.length) return;
  points.forEach(([age, round, samples, step, share], index) => {
    const end = Math.max(index + 1 < points.length ? points[index + 1][0] : 0, age - HOLD_S);
    for (let back = age; back > end; back -= 2) heard.push({ at: now - back, round, share, samples, steps: step > 0 ? 1 / step : null });
  });
}

// The mean of each piece of the time shown; null where nothing is known, which breaks the line.
function pieces(points, from, to, number, valueOf) {
  const sums = Array.from({ length: number }, () => ({ sum: 0, known: 0, heard: 0 }));
  for (const point of points) {
    const piece = sums[Math.min(number - 1, Math.floor(((point.at - from) / (to - from)) * number))];
    piece.heard++;
    if (isKnown(valueOf(point))) { piece.sum += valueOf(point); piece.known++; }
  }
  return sums;
}

// Above `value`, 1, 2 or 5 times a power of ten, so that three or four lines divide it well.
function niceStep(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((factor) => factor * power >= value * 0.999) * power;
}

// `silence`: how many seconds without news break the line.
function linePath(sums, x, y, silence) {
  let path = "", last = -Infinity, lone = null;
  const dot = () => (lone ? `M${lone}h0.01` : "");
  sums.forEach((piece, index) => {
    if (piece.heard && !piece.known) last = -Infinity;
    if (!piece.known) return;
    const place = `${x(index).toFixed(1)},${y(piece.sum / piece.known).toFixed(1)}`;
    if (index - last <= silence) { path += `L${place}`; lone = null; }
    else { path += `${dot()}M${place}`; lone = place; }
    last = index;
  });
  return path + dot();
}

function timeTicks(span) {
  const step = [5, 15, 60, 120, 600].find((each) => span / each <= 6) || 900;
  const ticks = [];
  for (let back = 0; back <= span; back += step) ticks.push(back);
  return ticks;
}
const tickText = (back) => (back === 0 ? "now" : back < 60 ? `−${back} s` : `−${back / 60} min`);

// holder: an element; valueOf: a point's value; top: the least end of the axis.
function plot(holder, { valueOf, format, unit, least, name }, now) {
  const width = Math.max(260, holder.clientWidth), height = 180, left = 58, right = 10, bottom = 24, head = 22;
  const span = Math.max(60, Math.min(minutesShown * 60, heard.length ? now - heard[0].at : 0));
  const from = now - span, points = heard.filter((point) => point.at >= from);
  const values = points.map(valueOf).filter(isKnown);
  if (values.length === 0) {
    return patch(holder, h("p", { class: "nothing" }, `unknown: ${name} is not reported`));
  }
  const number = Math.max(30, Math.min(Math.ceil(span), Math.floor((width - left - right) / 2)));
  const most = Math.max(least, ...values) || 1;
  const step = niceStep(most / 3), top = step * Math.ceil((most / step) * 0.999);
  const x = (index) => left + ((index + 0.5) / number) * (width - left - right);
  const xAt = (at) => left + ((at - from) / span) * (width - left - right);
  const y = (value) => head + (1 - value / top) * (height - head - bottom);
  const levels = [];
  for (let level = 0; level <= top * 1.001; level += step) levels.push(level);
  const changes = points.filter((point, index) => index > 0 && points[index - 1].round !== point.round);
  const label = `${name} over the last ${seconds(span)}: now ${isKnown(valueOf(points[points.length - 1])) ? format(valueOf(points[points.length - 1])) : "unknown"} ${unit}`;
  return patch(holder, h("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    h("text", { x: 0, y: 11, class: "axis-unit" }, unit),
    levels.map((level) => [
      h("line", { x1: left, x2: width - right, y1: y(level), y2: y(level), class: level === 0 ? "axis" : "grid-line" }),
      h("text", { x: left - 8, y: y(level) + 4, class: "end" }, format(level))]),
    timeTicks(span).map((back) => h("text", { x: xAt(now - back), y: height - 6, class: back === 0 ? "end" : "middle" }, tickText(back))),
    changes.map((point) => [
      h("line", { x1: xAt(point.at), x2: xAt(point.at), y1: head - 6, y2: height - bottom, class: "mark" }),
      h("text", { x: xAt(point.at), y: head - 10, class: xAt(point.at) > width - 60 ? "end" : "middle" }, `round ${point.round}`)]),
    h("path", { class: "line", d: linePath(pieces(points, from, now, number, valueOf), x, y, Math.max(2, (4 * number) / span)) })));
}

function renderPlots(now) {
  const hasSamples = heard.some((point) => isKnown(point.samples) && point.samples > 0);
  const speed = hasSamples
    ? { valueOf: (point) => point.samples, unit: "samples/s", name: "throughput" }
    : { valueOf: (point) => point.steps, unit: "steps/s", name: "throughput" };
  plot(byId("throughput"), { ...speed, least: 0, format: short }, now);
  plot(byId("share"), { valueOf: (point) => (isKnown(point.share) ? 100 * point.share : null), unit: "% of a step", least: 10,
    name: "the share of communication", format: short }, now);
}

document.querySelector(".choice").addEventListener("click", (event) => {
  const button = event.target.closest("[data-minutes]");
  if (!button) return;
  minutesShown = Number(button.dataset.minutes);
  for (const each of document.querySelectorAll("[data-minutes]")) each.setAttribute("aria-pressed", String(each === button));
  renderPlots(clock());
});
