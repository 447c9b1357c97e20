// Elements and texts. All that comes from the job goes through text(): it may be hostile, and must not
// become markup, move the cursor, or turn the direction of what stands beside it.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "text", "rect", "g", "circle"]);

// Colours and cursor moves of terminals go; other control characters and those that turn the direction
// of writing become visible.
function text(value) {
  return String(value)
    .replace(/\x1b\[[0-?]*[ -\/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -\/]*[0-~]/g, "")
    .replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

// What an element shall be; patch() makes it so. Names of tags and attributes are always ours.
function h(tag, attributes, ...children) {
  return { tag, attributes: attributes || {}, children: children.flat(Infinity).filter((child) => child != null) };
}

function create(wanted) {
  if (typeof wanted !== "object") return document.createTextNode(text(wanted));
  const node = SVG_TAGS.has(wanted.tag)
    ? document.createElementNS(SVG, wanted.tag) : document.createElement(wanted.tag);
  update(node, wanted);
  return node;
}

function update(node, wanted) {
  for (const { name } of [...node.attributes]) {
    if (!(name in wanted.attributes)) node.removeAttribute(name);
  }
  for (const [name, value] of Object.entries(wanted.attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
  patch(node, wanted.children);
}

// Parts, [class, value] each, of a whole.
function bar(words, parts, whole) {
  return h("div", { class: "bar", role: "img", "aria-label": words, title: words }, parts.filter(([, value]) => value > 0).map(([name, value]) =>
    h("span", { class: name, style: `width: ${((100 * value) / whole).toFixed(2)}%` })));
}

// Changes only what differs, so that focus, selection and scroll positions survive every second's news.
function patch(parent, children) {
  const wanted = [children].flat(Infinity).filter((child) => child != null);
  wanted.forEach((child, index) => {
    const node = parent.childNodes[index];
    if (!node) {
      parent.append(create(child));
    } else if (typeof child !== "object" && node.nodeType === Node.TEXT_NODE) {
      if (node.data !== text(child)) node.data = text(child);
    } else if (typeof child === "object" && node.localName === child.tag) {
      update(node, child);
    } else {
      node.replaceWith(create(child));
    }
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

const byId = (id) => document.getElementById(id);

function setText(node, value) {
  if (node.textContent !== text(value)) node.textContent = text(value);
}

// Numbers with units. What is not known is "unknown", never 0.

const isKnown = (value) => typeof value === "number" && Number.isFinite(value);
const count = (value) => (isKnown(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : "unknown");
const percent = (value) => (isKnown(value) ? `${(100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0)} %` : "unknown");

function significant(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

// For the marks of an axis: 0, 2.5, 300 k.
function short(value) {
  if (value >= 1e5) return value >= 1e6 ? `${short(value / 1e6)} M` : `${short(value / 1e3)} k`;
  return value >= 1000 ? count(value) : value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
}

function seconds(value) {
  if (!isKnown(value)) return "unknown";
  if (value < 0.001 && value > 0) return `${significant(value * 1e6)} µs`;
  if (value < 1 && value > 0) return `${significant(value * 1e3)} ms`;
  if (value < 100) return value < 10 ? `${value.toFixed(1)} s` : `${Math.round(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

// An age: nobody wants its milliseconds, nor seconds after minutes.
function age(value) {
  if (!isKnown(value)) return "unknown";
  if (value < 1) return "under 1 s";
  if (value < 100) return `${Math.round(value)} s`;
  return value < 3600 ? `${Math.floor(value / 60)} min` : seconds(value);
}

function bytes(value) {
  if (!isKnown(value)) return "unknown";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (value >= 1024 && power < units.length - 1) { value /= 1024; power++; }
  return `${power === 0 ? value : significant(value)} ${units[power]}`;
}

const rankWord = (ranks) => (ranks.length === 1 ? "rank" : "ranks");

// 0, 1, 2, 3, 7 as "0-3, 7"; at most `limit` pieces.
function rankList(ranks, limit = 6) {
  const sorted = [...ranks].sort((a, b) => a - b), pieces = [];
  for (let i = 0; i < sorted.length; ) {
    let last = i;
    while (last + 1 < sorted.length && sorted[last + 1] === sorted[last] + 1) last++;
    pieces.push(last === i ? `${sorted[i]}` : `${sorted[i]}-${sorted[last]}`);
    i = last + 1;
  }
  return pieces.slice(0, limit).join(", ") + (pieces.length > limit ? ", ..." : "");
}
