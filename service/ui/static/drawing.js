// The graph around one result: the walk that found it comes in from the left, its neighbours stand to the right.
// On a narrow screen the same goes from top to bottom.
import {el, svg} from "./braid.js";
import {setQuery} from "./controls.js";

const ROW = 34;
const NARROW = 620;

/** What there is to see, or one line that says there is nothing. */
export function drawing(result, neighbors, titles, place) {
  const names = new Map([...neighbors.map(({id, title}) => [id, title || id]), ...titles]);
  const walk = steps(result, names);
  if (!walk.length && !neighbors.length) return [el("p", {class: "dim"}, "No links lead from here or to it.")];
  const width = place.clientWidth || NARROW;
  const here = {name: result.title || result.id, kind: "here"};
  const plan = (width < NARROW ? topDown : leftToRight)(walk, here, neighbors, width);
  return [el("h4", {}, caption(walk, neighbors)), paint(plan, width)];
}

/** The walk without its last step, which is the result itself. Each node knows the link that leads away from it. */
function steps(result, names) {
  const path = result.tiers.graph?.path ?? [];
  const ends = ["your query", ...path.slice(0, -1).map(({to}) => names.get(to) ?? to)];
  return path.map(({via}, at) => ({name: ends[at], via, kind: at === 0 ? "query" : "walk"}));
}

function caption(walk, neighbors) {
  const linked = `${neighbors.length} linked document${neighbors.length === 1 ? "" : "s"}`;
  if (!walk.length) return linked;
  return neighbors.length ? `The walk that found it, and ${linked}` : "The walk that found it";
}

function leftToRight(walk, here, neighbors, width) {
  const step = Math.min(150, width / (walk.length + (neighbors.length ? 2.8 : 1)));
  const height = Math.max(96, neighbors.length * ROW + 24);
  const middle = height / 2;
  const chain = [...walk, here].map((node, at) => ({...node, x: step * (at + 0.5), y: middle, room: step - 12, below: true}));
  const from = chain.at(-1);
  const x = from.x + step * 0.75;
  const leaf = (one, at) => ({name: one.title || one.id, kind: "leaf", one, x, room: width - x - 20,
    y: middle + (at - (neighbors.length - 1) / 2) * ROW});
  return {height, chain, leaves: neighbors.map(leaf), from};
}

function topDown(walk, here, neighbors, width) {
  const chain = [...walk, here].map((node, at) => ({...node, x: 14, y: 20 + at * (ROW + 14), room: width - 40}));
  const from = chain.at(-1);
  const leaves = neighbors.map((one, at) => ({name: one.title || one.id, kind: "leaf", one,
    x: 44, y: from.y + (at + 1) * (ROW + 6), room: width - 70}));
  return {height: (leaves.at(-1) ?? from).y + 26, chain, leaves, from};
}

function paint({height, chain, leaves, from}, width) {
  const label = [...chain, ...leaves].map(({name}) => name).join(", ");
  return svg("svg", {class: "graph-view", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label},
    ...chain.slice(1).map((node, at) => link(chain[at], node, chain[at].via, true)),
    ...leaves.map((leaf) => link(from, leaf, leaf.one.type, false, leaf.one)),
    ...chain.map(dot), ...leaves.map(dot));
}

/** A curve, its kind of link written on it; thicker where the link is stronger. */
function link(a, b, kind, walked, one = null) {
  const across = Math.abs(b.x - a.x) > Math.abs(b.y - a.y) || !walked;
  const bend = across ? `C ${(a.x + b.x) / 2} ${a.y}, ${(a.x + b.x) / 2} ${b.y}, ${b.x} ${b.y}` : `L ${b.x} ${b.y}`;
  const drop = one && a.x < 40 ? `L ${a.x} ${b.y - 12} Q ${a.x} ${b.y} ${a.x + 12} ${b.y} L ${b.x} ${b.y}` : bend;
  const line = svg("path", {class: walked ? "link walked" : "link", d: `M ${a.x} ${a.y} ${drop}`,
    "stroke-width": one ? 1 + 2 * one.strength : 2.5}, one && svg("title", {}, `${kind}, strength ${one.strength}`));
  return walked ? svg("g", {}, line, via(a, b, kind, across)) : line;
}

function via(a, b, kind, across) {
  const at = across ? {x: (a.x + b.x) / 2, y: a.y - 9, "text-anchor": "middle"} : {x: a.x + 12, y: (a.y + b.y) / 2 + 4};
  return svg("text", {class: "via", ...at}, kind.replaceAll("_", " "));
}

function dot(node) {
  const at = node.below ? {x: node.x, y: node.y + 24, "text-anchor": "middle"} : {x: node.x + 12, y: node.y + 4};
  const arrow = node.one ? ` ${node.one.direction === "in" ? "→ here" : "← from here"}` : "";
  const note = node.one && svg("tspan", {class: "via", dx: 6}, `${node.one.type.replaceAll("_", " ")}`);
  const words = fitted(node.name, node.room - (node.one ? node.one.type.length * 6 + 10 : 0));
  const shape = [svg("circle", {cx: node.x, cy: node.y, r: node.kind === "here" ? 8 : 5.5}),
    svg("text", at, words, note), svg("title", {}, `${node.name}${arrow}`)];
  if (node.kind !== "leaf") return svg("g", {class: `node ${node.kind}`}, ...shape);
  const look = () => setQuery(node.name);
  const pressed = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    look();
  };
  return svg("g", {class: "node leaf", role: "button", tabindex: 0, "aria-label": `Search for ${node.name}`, onclick: look, onkeydown: pressed}, ...shape);
}

/** Cut to the room there is; a letter takes some 6.6 pixels. */
function fitted(name, room) {
  const letters = Math.max(6, Math.floor(room / 6.6));
  return name.length <= letters ? name : `${name.slice(0, letters - 1)}…`;
}
