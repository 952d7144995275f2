// The dashboard: the tenant's figures, brought up to date every few seconds while somebody looks.
import {$, ENGINES, TIERS, ask, el, keepDoor, key, tell} from "./braid.js";
import {plot} from "./charts.js";

const EVERY_MS = 3000;
const RANGES = {"1 h": 1, "6 h": 6, "24 h": 24, "7 days": 168};

let hours = 1;
let timer;

async function refresh() {
  clearTimeout(timer);
  if (!key.get() || document.hidden) return;
  const asked = hours;
  try {
    const [stats, history] = await Promise.all([
      ask(`v1/stats?hours=${hours}`),
      ask(`v1/stats/history?hours=${hours}`),
    ]);
    if (asked === hours) show(stats, history);
    tell(null);
  } catch (error) {
    tell(error);
  }
  $("live").classList.toggle("stale", !$("problem").hidden);
  clearTimeout(timer);
  timer = setTimeout(refresh, EVERY_MS);
}

function show(stats, history) {
  $("figures").hidden = false;
  $("quiet").hidden = stats.searches.total > 0;
  showTiles(stats);
  showMissing(stats);
  showWorth(stats);
  showIndexing(stats.indexing);
  showCharts(history);
}

function showTiles({searches, latency_ms, indexing}) {
  const answered = searches.total - searches.failed;
  const waiting = Object.values(indexing).reduce((sum, {backlog}) => sum + backlog, 0);
  const lag = Math.max(0, ...Object.values(indexing).map(({lag_s}) => lag_s));
  tile("Searches", number(searches.total), `${number(searches.failed)} failed`, searches.failed && "bad");
  tile(
    "Degraded",
    share(searches.degraded, searches.total),
    `${number(searches.degraded)} without a tier`,
    searches.degraded && "warn",
  );
  tile("Zero results", share(searches.empty, answered), `${number(searches.empty)} found nothing`);
  tile("Latency, p50", ms(latency_ms.p50), `p95 ${ms(latency_ms.p95)}`);
  tile("Index backlog", number(waiting), lag ? `oldest waits ${lag.toFixed(1)} s` : "up to date", waiting && "warn");
}

/** One figure; made once, so that a screen reader or a test can hold on to it. */
function tile(name, value, note, mood) {
  const id = `tile-${name.toLowerCase().replaceAll(/\W+/g, "-")}`;
  if (!$(id))
    $("tiles").append(el("div", {class: "card tile", id}, el("dt", {}, name), el("dd", {}), el("dd", {class: "dim"})));
  const [figure, small] = $(id).querySelectorAll("dd");
  figure.textContent = value;
  small.textContent = note;
  figure.className = mood || "";
}

const number = (value) => value.toLocaleString("en");
const ms = (value) =>
  value === null || value === undefined ? "–" : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const share = (part, whole) =>
  whole ? `${((100 * part) / whole).toFixed(part && part < whole / 100 ? 2 : 0)} %` : "–";

/** The tiers that did not always answer, and how they failed. */
function showMissing({tiers}) {
  const failing = Object.entries(tiers).filter(([, tier]) => tier.asked > tier.answered);
  const how = ({outcomes}) =>
    Object.entries(outcomes)
      .filter(([status]) => !["ok", "empty", "skipped"].includes(status))
      .map(([status, count]) => `${number(count)} × ${status.replace("_", " ")}`)
      .join(", ");
  $("missing").hidden = failing.length === 0;
  $("missing").replaceChildren(
    ...failing.map(([name, tier]) =>
      el(
        "p",
        {},
        el("strong", {}, `${name} was missing`),
        ` in ${number(tier.asked - tier.answered)} of ${number(tier.asked)} searches: ${how(tier)} (${ENGINES[name] ?? name}).`,
      ),
    ),
  );
}

function table(id, columns, rows) {
  const line = ([first, ...cells]) =>
    el("tr", {}, el("th", {scope: "row"}, first), ...cells.map((cell) => el("td", {}, cell)));
  $(id).replaceChildren(
    el("thead", {}, el("tr", {}, ...columns.map((name) => el("th", {scope: "col"}, name)))),
    el("tbody", {}, ...rows.map(line)),
  );
}

const tag = (name) => el("span", {class: `tier ${name}`}, name);
const known = (tiers) => [
  ...TIERS.filter((name) => name in tiers),
  ...Object.keys(tiers).filter((name) => !TIERS.includes(name)),
];

function showWorth({tiers}) {
  const row = (name) => {
    const tier = tiers[name];
    return [
      tag(name),
      number(tier.asked),
      share(tier.answered, tier.asked),
      number(tier.candidates),
      number(tier.hits),
      number(tier.unique),
      ms(tier.mean_ms),
    ];
  };
  table(
    "worth",
    ["tier", "asked", "answered", "candidates", "hits returned", "found alone", "mean time"],
    known(tiers).map(row),
  );
}

function showIndexing(indexing) {
  const row = (name) => [
    tag(name),
    number(indexing[name].backlog),
    `${indexing[name].lag_s.toFixed(1)} s`,
    number(indexing[name].refused),
  ];
  table("indexing", ["engine of", "waiting", "oldest waits", "refused"], known(indexing).map(row));
}

function showCharts({at, searches, latency_ms, tiers}) {
  const each = (field) =>
    known(tiers).map((name) => ({name, paint: TIERS.includes(name) ? name : "dim", values: tiers[name][field]}));
  plot("hits", at, each("hits"), {stacked: true});
  plot(
    "searches",
    at,
    [
      {name: "full", paint: "accent", values: searches.full},
      {name: "degraded", paint: "amber", values: searches.degraded},
      {name: "failed", paint: "bad", values: searches.failed},
      {name: "zero results", paint: "ink", values: searches.empty, dashed: true},
    ],
    {stacked: true},
  );
  plot(
    "latency",
    at,
    [
      {name: "p50", paint: "accent", values: latency_ms.p50},
      {name: "p95", paint: "dim", values: latency_ms.p95},
    ],
    {unit: " ms"},
  );
  plot("pace", at, each("mean_ms"), {unit: " ms"});
  plot("unique", at, each("unique"), {stacked: true});
}

function drawRanges() {
  const choose = (wanted) => () => {
    hours = wanted;
    drawRanges();
    refresh();
  };
  const chip = ([label, wanted]) =>
    el("button", {class: "chip", "aria-pressed": `${wanted === hours}`, onclick: choose(wanted)}, label);
  const held = [...$("ranges").children].indexOf(document.activeElement);
  $("ranges").replaceChildren(...Object.entries(RANGES).map(chip));
  $("ranges").children[held]?.focus();
}

drawRanges();
document.addEventListener("visibilitychange", refresh);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
// Chart.js is a classic script; it has run before any module does.
keepDoor(refresh);
