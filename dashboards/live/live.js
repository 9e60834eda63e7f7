// Draws what /state.json says, twice a second. Counters become rates between two states, per
// emulated second. Names come from a configuration: they are set as text, never as markup.
"use strict";

const PERIOD_MS = 500;
const RATES_OVER_S = 1; // emulated
const FORGET_S = 10; // emulated: a rate over a longer gap is not the last second's
const HISTORY = 240; // points of a chart: two minutes
const CLASSES = ["control", "real_time", "best_effort"];
const SVG = "http://www.w3.org/2000/svg";

const states = []; // the last second or so, newest last
const history = { power: [], latency: { control: [], real_time: [], best_effort: [] } };
let drawnShape = ""; // of the map: it is made anew when routers or links are others
let linkLines = new Map();
let nodeBoxes = new Map();

const find = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);

function make(parent, tag, attributes = {}, text = null) {
  const svg = parent.namespaceURI === SVG;
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

// Blue over yellow to red, for 0 to 1.
function heat(use) {
  const part = Math.min(Math.max(use, 0), 1);
  return `hsl(${210 - 210 * part} ${25 + 60 * Math.sqrt(part)}% ${45 + 8 * part}%)`;
}

function number(value, digits = 1) {
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// --- rates --------------------------------------------------------------------------------------

function remember(state) {
  const last = states.at(-1);
  if (last && (state.seconds < last.seconds || state.started !== last.started)) {
    states.length = 0; // another fabric
    history.power = [];
    for (const name of CLASSES) history.latency[name] = [];
  }
  if (last && state.seconds - last.seconds > FORGET_S) states.length = 0; // we were away
  states.push(state);
  while (states.length > 2 && state.seconds - states[1].seconds >= RATES_OVER_S) states.shift();
}

// How fast counter `pick` grew, per emulated second.
function rate(pick) {
  const [first, last] = [states[0], states.at(-1)];
  const seconds = last.seconds - first.seconds;
  return seconds > 0 ? Math.max(0, (pick(last) ?? 0) - (pick(first) ?? 0)) / seconds : 0;
}

// Mean of the last second; null where there is none. What HCAs counted that have died, or begun
// anew, is missing in the later of two sums: their difference is of nothing.
function latencyUs(name) {
  if (states[0].counting !== states.at(-1).counting) return null;
  const [first, last] = [states[0].classes[name], states.at(-1).classes[name]];
  const count = last.latency_count - first.latency_count; // fewer than the packets received
  const us = last.latency_us_total - first.latency_us_total;
  return count > 0 && us >= 0 ? us / count : null;
}

// --- the map ------------------------------------------------------------------------------------

function place(state, end) {
  return state.nodes[end] ?? state.routers[end.split(":")[0]];
}

function drawMap(state) {
  const map = find("map");
  map.replaceChildren();
  linkLines = new Map();
  nodeBoxes = new Map();
  const crowded = Object.keys(state.routers).length > 40 || Object.keys(state.nodes).length > 40;
  map.classList.toggle("small", crowded);
  for (const link of state.links) {
    const [a, b] = [place(state, link.link), place(state, link.to)];
    const group = make(map, "g");
    const bend = link.bend ?? 0;
    const [mx, my] = [(a.x + b.x) / 2 - (b.y - a.y) * bend, (a.y + b.y) / 2 + (b.x - a.x) * bend];
    const line = make(group, "path", {
      class: "link", fill: "none", d: `M${a.x} ${a.y}Q${mx} ${my} ${b.x} ${b.y}`,
    });
    const title = make(line, "title");
    linkLines.set(link.link, { line, title });
  }
  const [w, h] = crowded ? [11, 8] : [19, 14];
  for (const [id, at] of Object.entries(state.routers)) {
    const group = make(map, "g", { class: "router" });
    make(group, "rect", { x: at.x - w, y: at.y - h, width: 2 * w, height: 2 * h, rx: 4 });
    make(group, "text", { x: at.x, y: at.y }, id);
    make(group, "title", {}, `router ${id}`);
  }
  for (const [name, at] of Object.entries(state.nodes)) {
    const group = make(map, "g", { class: "node" });
    make(group, "rect", { x: at.x - w, y: at.y - h, width: 2 * w, height: 2 * h, rx: h });
    make(group, "text", { x: at.x, y: at.y }, name);
    const title = make(group, "title");
    nodeBoxes.set(name, { group, title });
  }
}

function linkUse(state, end) {
  if (state.nodes[end]) return rate((s) => s.sent_bytes[end]) * 8 / (state.link_mbps * 1e6);
  return rate((s) => s.port_flits[end]) * state.flit_bits / (state.link_mbps * 1e6);
}

function updateMap(state) {
  const shape = JSON.stringify([state.routers, state.nodes, state.links.map((l) => [l.link, l.to])]);
  if (shape !== drawnShape) drawMap(state);
  drawnShape = shape;
  for (const link of state.links) {
    const uses = [linkUse(state, link.link), linkUse(state, link.to)];
    const { line, title } = linkLines.get(link.link);
    line.classList.toggle("down", !link.up);
    const part = (use) => `${number(100 * use)} %`;
    const ends = `${link.link} to ${link.to}`;
    line.style.stroke = state.pass_through ? colour("dim") : heat(Math.max(...uses));
    if (!link.up) title.textContent = `${ends}: down`;
    else if (state.pass_through) title.textContent = ends; // of which rate would it be a part?
    else title.textContent = `${ends}: ${part(uses[0])}; back: ${part(uses[1])}`;
  }
  for (const [name, { group, title }] of nodeBoxes) {
    const up = state.nodes[name].up;
    group.classList.toggle("down", !up);
    title.textContent = `${name}: ${up ? "attached" : "down"}`;
  }
  find("network-note").textContent =
    `${state.topology}; routers: ${Object.keys(state.routers).length}` +
    (state.pass_through ? "" : "; colour: the busier direction");
  find("scale").style.visibility = state.pass_through ? "hidden" : "";
}

// --- charts -------------------------------------------------------------------------------------

// Lines over time, newest at the right. `lines`: [colour, values with null where there is none].
function chart(svg, lines, { most, least = 0, log = false, unit, mark = null }) {
  svg.replaceChildren();
  const [width, height, left] = [400, svg.viewBox.baseVal.height, 44];
  const scale = log ? (v) => Math.log10(Math.max(v, least)) : (v) => v;
  const [low, high] = [scale(least), scale(most)];
  const y = (v) => height - 6 - ((scale(v) - low) / (high - low)) * (height - 26);
  const x = (i, n) => width - (n - 1 - i) * ((width - left) / (HISTORY - 1));
  const ticks = log ? [least, Math.sqrt(least * most), most] : [least, most / 2, most];
  for (const tick of ticks) {
    make(svg, "line", { x1: left, x2: width, y1: y(tick), y2: y(tick), stroke: colour("line") });
    const text = tick >= 100 ? number(tick, 0) : number(tick, tick >= 10 ? 1 : 2);
    make(svg, "text", { x: left - 4, y: y(tick) + 4, "text-anchor": "end" }, text);
  }
  make(svg, "text", { x: left - 4, y: 9, "text-anchor": "end" }, unit);
  if (mark !== null && mark <= most) {
    make(svg, "line", {
      x1: left, x2: width, y1: y(mark), y2: y(mark), stroke: colour("bad"), "stroke-dasharray": "6 4",
    });
  }
  for (const [stroke, values] of lines) {
    let path = "";
    values.forEach((value, i) => {
      if (value === null) return;
      path += `${path && values[i - 1] !== null ? "L" : "M"}${x(i, values.length)} ${y(value)}`;
    });
    make(svg, "path", { d: path || "M0 0", fill: "none", stroke, "stroke-width": 1.8 });
  }
}

function push(values, value) {
  values.push(value);
  if (values.length > HISTORY) values.shift();
}

function updatePower(state) {
  push(history.power, state.power_now_w * 1e3);
  const cap = state.power.cap_w * 1e3;
  // The cap belongs into the picture where it is in reach.
  const seen = Math.max(...history.power, state.power.mean_w * 1e3, 1e-3);
  const near = cap > 0 && seen * 4 > cap;
  chart(find("power"), [[colour("accent"), history.power]], {
    most: Math.max(seen * 1.1, near ? cap * 1.15 : 0), unit: "mW",
    mark: cap > 0 ? cap : null,
  });
  find("power-note").textContent =
    `mean ${number(state.power.mean_w * 1e3, 3)}, most ${number(state.power.max_w * 1e3, 3)}, ` +
    `${cap > 0 ? `cap ${number(cap, 3)}` : "no cap,"} mW, by windows of 500 cycles`;
}

function updateClasses(state) {
  for (const name of CLASSES) push(history.latency[name], latencyUs(name));
  const all = CLASSES.flatMap((name) => history.latency[name]).filter((v) => v !== null && v > 0);
  const least = 10 ** Math.floor(Math.log10(Math.min(...all, 10)));
  const most = 10 ** Math.ceil(Math.log10(Math.max(...all, 10 * least)));
  chart(find("latency"), CLASSES.map((name) => [colour(name), history.latency[name]]),
        { least, most: Math.max(most, 10 * least), log: true, unit: "us" });
  find("latency-note").textContent =
    `mean of the last second, us, logarithmic${state.part ? "; as HCAs of this host received" : ""}`;
  const rows = CLASSES.map((name) => {
    const one = state.classes[name];
    return [
      { text: name.replace("_", " "), key: colour(name) }, number(rate((s) => s.classes[name].packets), 0),
      number(one.latency_us_mean), number(one.latency_us_p99),
    ];
  });
  fill(find("classes"), ["class", "packets/s", "mean us", "p99 us"], rows);
}

function updateLanes(state) {
  const svg = find("lanes");
  svg.replaceChildren();
  if (state.pass_through) return; // packets pass outside of lanes
  const links = Math.max(Object.keys(state.port_flits).length, 1);
  const full = (state.link_mbps * 1e6 / state.flit_bits) * links;
  const uses = state.lane_flits.map((_, vl) => rate((s) => s.lane_flits[vl]) / full);
  const most = Math.max(...uses, 0.01);
  uses.forEach((use, vl) => {
    const height = (use / most) * 62;
    const x = 6 + vl * 24.6;
    const bar = make(svg, "rect", { x, y: 72 - height, width: 18, height, rx: 2, fill: heat(use * 4) });
    make(bar, "title", {}, `lane ${vl}: ${number(100 * use, 2)} %`);
    make(svg, "text", { x: x + 9, y: 86, "text-anchor": "middle" }, String(vl));
  });
  make(svg, "text", { x: 0, y: 9 }, `${number(100 * most)} %`);
}

// --- tables -------------------------------------------------------------------------------------

function fill(table, head, rows) {
  table.replaceChildren();
  const first = make(table, "tr");
  for (const text of head) make(first, "th", {}, text);
  for (const row of rows) {
    const line = make(table, "tr");
    for (const cell of row) {
      const plain = typeof cell === "string";
      const td = make(line, "td", !plain && cell.bad ? { class: "bad" } : {});
      if (!plain && cell.key) make(td, "span", { class: "key" }).style.background = cell.key;
      td.append(plain ? cell : cell.text);
    }
  }
}

function updateNodes(state) {
  const mbps = (bytes) => number(rate(bytes) * 8e-6);
  const rows = Object.entries(state.nodes).map(([name, node]) => [
    name, node.up ? "attached" : { text: "down", bad: true }, mbps((s) => s.sent_bytes[name]),
    mbps((s) => s.received_bytes[name]),
    ...[node.qps, node.programs, node.scheme].map((said) => String(said ?? "–")), // on its host
  ]);
  fill(find("nodes"), ["node", "link", "sends", "receives", "QPs", "programs", "congestion"], rows);
}

function updateStreams(state) {
  const streams = state.streams;
  const admitted = streams.filter((s) => s.admitted).length;
  const refused = streams.filter((s) => !s.admitted && s.rejected_by !== null).length;
  const waiting = streams.length - admitted - refused; // for their peers
  find("streams-note").textContent = streams.length
    ? `${admitted} admitted, ${refused} refused, ${waiting} waiting; the ten that are worst`
    : "none now; flitnet replay and flitnet demo send video";
  const worst = [...streams].sort((a, b) => b.dmp - a.dmp || b.interval_ms_sd - a.interval_ms_sd);
  fill(find("streams"), ["stream", "from", "to", "sent", "delivered", "DMP", "DMT ms", "interval ms", "sd ms"],
       worst.slice(0, 10).map((s) => [
         s.name, s.from, s.to,
         s.admitted ? String(s.frames_sent)
           : s.rejected_by === null ? "waits" : { text: `refused by ${s.rejected_by}`, bad: true },
         String(s.frames_delivered),
         s.dmp > 0.01 ? { text: number(s.dmp, 4), bad: true } : number(s.dmp, 4),
         number(s.dmt_ms, 3), number(s.interval_ms_mean, 2), number(s.interval_ms_sd, 3),
       ]));
}

function updateHeading(state) {
  const heading = find("heading");
  heading.replaceChildren();
  const say = (label, value, state_ = "") => {
    const span = make(heading, "span", state_ ? { class: state_ } : {}, `${label} `);
    make(span, "b", {}, value);
  };
  say("nodes", String(Object.keys(state.nodes).length));
  if (state.pass_through) say("packets", "pass at once");
  else say("links", `${state.link_mbps} Mb/s`);
  say("emulated", `${number(state.seconds)} s`);
  const dilation = state.clock.dilation_window;
  say(`clock ${state.clock.mode}, dilation`, number(dilation, 3), dilation > 1.05 ? "warn" : "");
  if (state.links_down) say("links down", String(state.links_down), "bad");
  if (state.lost) say("lost", String(state.lost), "bad");
}

// --- the loop -----------------------------------------------------------------------------------

async function look() {
  const away = find("away");
  try {
    const reply = await fetch("state.json", { cache: "no-store" });
    const state = await reply.json();
    away.hidden = !state.away;
    away.textContent = state.away ?? "";
    if (state.away) return;
    remember(state);
    updateHeading(state);
    updateMap(state);
    updatePower(state);
    updateClasses(state);
    updateLanes(state);
    updateNodes(state);
    updateStreams(state);
  } catch (error) {
    away.hidden = false;
    away.textContent = `The page's server does not answer (${error.message}). Start it: flitnet page`;
  } finally {
    setTimeout(look, PERIOD_MS);
  }
}

find("scale").append("0 %");
make(find("scale"), "i").style.background =
  `linear-gradient(90deg, ${[0, 0.1, 0.25, 0.5, 0.75, 1].map((v) => `${heat(v)} ${100 * v}%`).join(", ")})`;
find("scale").append("100 % of a link");
look();
