// The search page: asks while you type, shows the answer, and never lets an older answer replace a newer one.
import {$, ENGINES, ask, el, keepDoor, key, tell} from "./braid.js";
import {canShowMore, keepControls, learnWeights, loadNamespaces, offer, query, request, setQuery} from "./controls.js";
import {row} from "./result.js";

const HEALTHY = ["ok", "empty", "skipped"];

const PAUSE_MS = 60; // between two searches while a slider moves

let timer;
let last = 0;
let asked = 0;
let shown = 0;
let completed = "";

function soon(wait) {
  clearTimeout(timer);
  timer = setTimeout(search, Math.max(wait, last + PAUSE_MS - performance.now()));
  $("results").ariaBusy = "true";
}

async function search() {
  const mine = ++asked;
  timer = null;
  last = performance.now();
  const typed = key.get() ? query() : "";
  suggest(typed);
  const {answer, error} = typed ? await answered() : {};
  if (mine < shown) return;
  shown = mine;
  tell(error);
  if (!typed) showWelcome(true);
  if (answer) show(answer);
  if (mine === asked && !timer) $("results").ariaBusy = "false";
}

async function answered() {
  try {
    return {answer: await ask("v1/search", {body: request()})};
  } catch (error) {
    return {error};
  }
}

/** Completions of what was typed, of the tenant's own words. Nobody misses them where they cannot be had. */
async function suggest(typed) {
  if (typed === completed) return;
  completed = typed;
  const found = typed ? await ask(`v1/suggest?limit=6&q=${encodeURIComponent(typed)}`).catch(() => null) : null;
  if (completed !== typed) return;
  const others = (found?.suggestions ?? []).filter(({text}) => text.toLowerCase() !== typed.toLowerCase());
  const chip = ({text, kind}) =>
    el("button", {class: "chip", type: "button", title: kind, onclick: () => setQuery(text)}, text);
  $("suggestions").hidden = !typed;
  $("suggestions").replaceChildren(...others.map(chip));
}

function show(answer) {
  showWelcome(false);
  learnWeights(answer);
  offer(answer.results);
  showTiers(answer);
  showMissing(answer);
  const {results, took_ms} = answer;
  $("said").textContent = results.length
    ? `${results.length} result${results.length === 1 ? "" : "s"} in ${took_ms.toFixed(1)} ms`
    : "Nothing found. Try other words, fewer filters, or a namespace more.";
  const top = Math.max(0, ...results.map(({score}) => score));
  replaceMoving(
    $("results"),
    results.map((result) => row(result, answer, top)),
  );
  $("more").hidden = !canShowMore(results.length);
}

/** Puts the new list in place of the old; what is in both glides to where it now stands, and keeps the focus. */
function replaceMoving(list, items) {
  const places = new Map([...list.children].map((item) => [item.dataset.id, item.getBoundingClientRect().top]));
  const held = document.activeElement?.closest("#results > li")?.dataset.id;
  list.replaceChildren(...items);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  for (const item of items) {
    if (item.dataset.id === held) item.querySelector(".title").focus({preventScroll: true});
    const moved = places.get(item.dataset.id) - item.getBoundingClientRect().top;
    if (moved && !calm)
      item.animate([{transform: `translateY(${moved}px)`}, {transform: "none"}], {duration: 220, easing: "ease-out"});
  }
}

/** What became of each tier. */
function showTiers({tiers, weights}) {
  const line = ([name, tier]) =>
    el(
      "tr",
      {class: HEALTHY.includes(tier.status) ? tier.status : "broken"},
      el("th", {scope: "row"}, el("span", {class: `tier ${name}`}, name)),
      el("td", {}, tier.status === "ok" ? `${tier.hits} hits` : tier.status.replace("_", " ")),
      el("td", {}, tier.status === "skipped" ? "" : `${tier.took_ms.toFixed(1)} ms`),
      el("td", {title: "the weight that counted"}, weights[name] ? `× ${weights[name].toFixed(2)}` : "—"),
    );
  $("tiers").replaceChildren(...Object.entries(tiers).map(line));
}

/** Plainly: which tier is missing, why, and what that means for the list. */
function showMissing({tiers, degraded}) {
  const missing = Object.entries(tiers).filter(([, tier]) => !HEALTHY.includes(tier.status));
  $("missing").hidden = !degraded;
  const line = ([name, tier]) =>
    el("p", {}, el("strong", {}, `${name} is missing`), `: ${tier.reason ?? tier.status} (${ENGINES[name] ?? name}).`);
  $("missing").replaceChildren(
    ...missing.map(line),
    el("p", {class: "dim"}, "Everything else answered: its weight went to the other tiers, and the order may differ."),
  );
}

function showWelcome(wanted) {
  $("welcome").hidden = !wanted;
  $("answer").hidden = wanted;
}

/** Queries to try, where the documents are the sample's. */
function showExamples({sample, empty}) {
  $("empty").hidden = !empty;
  for (const place of document.querySelectorAll(".try")) {
    const {query: text} = place.dataset;
    place.hidden = !sample;
    place.querySelector("button")?.remove();
    place.prepend(el("button", {class: "example", onclick: () => setQuery(text)}, text));
  }
}

/** The whole page by keyboard: / to the box, arrows through the results, Enter explains, Escape goes back. */
function onKey(event) {
  const {key: pressed, target} = event;
  const slash = pressed === "/" && !event.ctrlKey && !target.matches("input:not([type=range])");
  if (slash || (pressed === "Escape" && target !== $("query"))) taken(event, $("query"));
  const way = {ArrowDown: 1, ArrowUp: -1}[pressed];
  if (way && !target.matches("input[type=range], input[type=date]")) walk(event, way);
}

/** From the box to the first result, from one to the next, and back. */
function walk(event, way) {
  const stops = [$("query"), ...document.querySelectorAll("#results .title")];
  const item = event.target.closest("#results > li");
  const at = stops.indexOf(item?.querySelector(".title") ?? event.target);
  if (at >= 0 && stops[at + way]) taken(event, stops[at + way]);
}

function taken(event, target) {
  event.preventDefault();
  target.focus();
  if (target === $("query")) target.select();
}

async function open() {
  try {
    showExamples(await loadNamespaces());
    $("query").focus();
    soon(0);
  } catch (error) {
    tell(error);
  }
}

addEventListener("keydown", onKey);
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  soon(0);
});
if (matchMedia("(max-width: 56rem)").matches)
  for (const part of document.querySelectorAll(".panel details")) part.open = false;
showWelcome(true);
keepControls(soon);
keepDoor(open);
