// What is asked for: the query, namespaces, filters and weights, as a person sets them; kept in the address after #.
import {$, ENGINES, TIERS, ask, el} from "./braid.js";

const PAGE = 10;
const MOST = 100;
const SETS = {namespaces: "ns", types: "type", tags: "tag"};

const wanted = {
  query: "",
  limit: PAGE,
  weights: null,
  after: "",
  before: "",
  namespaces: new Set(),
  types: new Set(),
  tags: new Set(),
};
const offered = {types: new Map(), tags: new Map()};
let defaults = null; // the service's own weights, once an answer has told them
let changed = () => {};

export const query = () => wanted.query.trim();
export const canShowMore = (count) => count >= wanted.limit && wanted.limit < MOST;

/** The body of the search. */
export function request() {
  const filter = {
    ...(wanted.types.size && {type: [...wanted.types]}),
    ...(wanted.tags.size && {tags: [...wanted.tags]}),
    ...(wanted.after && {created_after: `${wanted.after}T00:00:00Z`}),
    ...(wanted.before && {created_before: dayAfter(wanted.before)}),
  };
  return {
    query: query(),
    limit: wanted.limit,
    explain: true,
    highlight: true,
    filter,
    ...(wanted.namespaces.size && {include_namespaces: [...wanted.namespaces]}),
    ...(wanted.weights && {weights: wanted.weights}),
  };
}

const dayAfter = (day) => new Date(Date.parse(`${day}T00:00:00Z`) + 86_400_000).toISOString();

/** Wires the controls. `onChange(wait)` is called with how long to wait: typing pauses, everything else is at once. */
export function keepControls(onChange) {
  changed = (wait = 0) => {
    wanted.limit = PAGE;
    remember();
    onChange(wait);
  };
  recall();
  $("query").value = wanted.query;
  $("query").addEventListener("input", () => setQuery($("query").value, 120));
  for (const name of ["after", "before"]) {
    $(name).value = wanted[name];
    $(name).addEventListener("change", () => {
      wanted[name] = $(name).value;
      drawFilters();
      changed();
    });
  }
  $("unfilter").addEventListener("click", clearFilters);
  $("reset").addEventListener("click", () => setWeights(null));
  $("more").addEventListener("click", () => {
    wanted.limit = Math.min(MOST, wanted.limit + PAGE);
    onChange(0);
  });
  drawSliders();
  drawFilters();
}

export function setQuery(text, wait = 0) {
  wanted.query = text;
  if ($("query").value !== text) $("query").value = text;
  changed(wait);
}

/** The namespaces, to choose from; returns whether there are documents, and whether they are the sample's. */
export async function loadNamespaces() {
  const {namespaces} = await ask("v1/namespaces");
  const chip = ({name, documents}) => choice("namespaces", name, documents.toLocaleString("en"));
  $("namespaces").replaceChildren(...namespaces.map(chip));
  $("pickers").hidden = namespaces.length === 0;
  const names = new Set(namespaces.map(({name}) => name));
  return {
    empty: names.size === 0,
    sample: ["handbook", "incidents", "notes", "people"].every((name) => names.has(name)),
  };
}

/** Offers the types and tags of what was found; the most frequent come first. */
export function offer(results) {
  for (const result of results) {
    if (result.type) count(offered.types, result.type);
    for (const tag of result.tags) count(offered.tags, tag);
  }
  drawFilters();
}

const count = (counts, value) => counts.set(value, (counts.get(value) ?? 0) + 1);

export function toggle(set, value) {
  if (!wanted[set].delete(value)) wanted[set].add(value);
  for (const chip of document.querySelectorAll(`[data-set="${set}"]`)) {
    chip.setAttribute("aria-pressed", wanted[set].has(chip.dataset.value));
  }
  drawFilters();
  changed();
}

function clearFilters() {
  wanted.types.clear();
  wanted.tags.clear();
  for (const name of ["after", "before"]) wanted[name] = $(name).value = "";
  drawFilters();
  changed();
}

/** A button that is on or off. */
export function choice(set, value, note = null) {
  const pressed = wanted[set].has(value);
  return el(
    "button",
    {
      type: "button",
      class: "chip",
      "aria-pressed": `${pressed}`,
      "data-set": set,
      "data-value": value,
      onclick: () => toggle(set, value),
    },
    value,
    note && el("span", {class: "count"}, note),
  );
}

function drawFilters() {
  for (const set of ["types", "tags"]) drawChoices(set);
  const active = wanted.types.size + wanted.tags.size + Boolean(wanted.after) + Boolean(wanted.before);
  $("filtering").hidden = active === 0;
  $("filtering").textContent = active;
  $("unfilter").disabled = active === 0;
}

function drawChoices(set) {
  const known = [...offered[set]]
    .sort((one, other) => other[1] - one[1])
    .map(([value]) => value)
    .slice(0, 24);
  const values = [...new Set([...wanted[set], ...known])].sort();
  const shown = [...$(set).querySelectorAll(".chip")].map((chip) => chip.dataset.value);
  if (values.length && values.join("\n") === shown.join("\n")) return; // keeps the focus where it is
  const hint = el("span", {class: "dim"}, "search first: what is found is offered here");
  $(set).replaceChildren(...(values.length ? values.map((value) => choice(set, value)) : [hint]));
}

/** Shows the service's own weights on the sliders until somebody moves one. */
export function learnWeights(answer) {
  if (!wanted.weights && !answer.degraded) {
    defaults = Object.fromEntries(TIERS.map((tier) => [tier, answer.weights[tier] ?? 0]));
    drawWeights(defaults);
  }
}

function setWeights(weights) {
  wanted.weights = weights;
  drawWeights(weights ?? defaults);
  changed();
}

function drawSliders() {
  const slider = (tier) =>
    el(
      "div",
      {class: `slider ${tier}`},
      el("label", {for: `weight-${tier}`}, `${tier} `, el("span", {class: "dim"}, ENGINES[tier])),
      el("output", {id: `share-${tier}`, for: `weight-${tier}`}, ""),
      el("input", {id: `weight-${tier}`, type: "range", min: 0, max: 1, step: 0.05, oninput: moved}),
    );
  $("sliders").replaceChildren(...TIERS.map(slider));
  drawWeights(wanted.weights ?? {keyword: 0.5, vector: 0.5, graph: 0.5});
}

function moved() {
  setWeights(Object.fromEntries(TIERS.map((tier) => [tier, Number($(`weight-${tier}`).value)])));
}

function drawWeights(weights) {
  for (const tier of TIERS) {
    const slider = $(`weight-${tier}`);
    if (Number(slider.value) !== weights[tier]) slider.value = weights[tier];
    slider.style.setProperty("--filled", `${100 * Math.min(1, weights[tier])}%`);
    $(`share-${tier}`).textContent = weights[tier] ? weights[tier].toFixed(2) : "off";
  }
  $("reset").disabled = !wanted.weights;
}

/** Into the address, behind #, which browsers keep to themselves: a search can be bookmarked and sent. */
function remember() {
  const told = new URLSearchParams();
  if (query()) told.set("q", query());
  for (const [set, name] of Object.entries(SETS)) for (const value of wanted[set]) told.append(name, value);
  for (const name of ["after", "before"]) if (wanted[name]) told.set(name, wanted[name]);
  if (wanted.weights) told.set("weights", TIERS.map((tier) => wanted.weights[tier]).join(","));
  history.replaceState(null, "", `${location.pathname}${told.size ? `#${told}` : ""}`);
}

function recall() {
  const told = new URLSearchParams(location.hash.slice(1));
  wanted.query = told.get("q") ?? "";
  for (const [set, name] of Object.entries(SETS)) wanted[set] = new Set(told.getAll(name));
  for (const name of ["after", "before"]) wanted[name] = /^\d{4}-\d\d-\d\d$/.test(told.get(name)) ? told.get(name) : "";
  const weights = (told.get("weights") ?? "").split(",").map(Number);
  const usable = weights.length === TIERS.length && weights.every((weight) => weight >= 0 && weight <= 1);
  wanted.weights = usable ? Object.fromEntries(TIERS.map((tier, at) => [tier, weights[at]])) : null;
}
