// The graph around one result: the walk that found it comes in from the left, its neighbours stand to the right.
// On a narrow screen the same goes from top to bottom.
import {el, svg} from "./braid.js";
import {setQuery} from "./controls.js";

const ROW = 34;
const NARROW = 620;
const ruler = document.createElement("canvas").getContext("2d");

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
  const chain = [...walk, here].map((node, at) => ({
    ...node,
    x: step * (at + 0.5),
    y: middle,
    room: step - 12,
    below: true,
  }));
  const from = chain.at(-1);
  const x = from.x + step * 0.75;
  const leaf = (one, at) => ({
    name: one.title || one.id,
    kind: "leaf",
    one,
    x,
    room: width - x - 20,
    y: middle + (at - (neighbors.length - 1) / 2) * ROW,
  });
  return {height, chain, leaves: neighbors.map(leaf), from};
}

function topDown(walk, here, neighbors, width) {
  const chain = [...walk, here].map((node, at) => ({...node, x: 14, y: 20 + at * (ROW + 14), room: width - 40}));
  const from = chain.at(-1);
  const leaves = neighbors.map((one, at) => ({
    name: one.title || one.id,
    kind: "leaf",
    one,
    x: 44,
    y: from.y + (at + 1) * (ROW + 6),
    room: width - 70,
  }));
  return {height: (leaves.at(-1) ?? from).y + 26, chain, leaves, from};
}

function paint({height, chain, leaves, from}, width) {
  const label = [...chain, ...leaves].map(({name}) => name).join(", ");
  return svg(
    "svg",
    {class: "graph-view", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label},
    ...chain.slice(1).map((node, at) => step(chain[at], node)),
    ...leaves.map((leaf) => link(from, leaf)),
    ...chain.map(dot),
    ...leaves.map(dot),
  );
}

/** A step of the walk, its kind of link written on it. */
function step(a, b) {
  const across = b.x > a.x;
  const at = across ? {x: (a.x + b.x) / 2, y: a.y - 9, "text-anchor": "middle"} : {x: a.x + 12, y: (a.y + b.y) / 2 + 4};
  return svg(
    "g",
    {},
    svg("path", {class: "link walked", d: `M ${a.x} ${a.y} L ${b.x} ${b.y}`, "stroke-width": 2.5}),
    svg("text", {class: "via", ...at}, a.via.replaceAll("_", " ")),
  );
}

/** A link to a neighbour, thicker where it is stronger: a curve to the right, or round the corner on a narrow screen. */
function link(a, b) {
  const middle = (a.x + b.x) / 2;
  const way = a.below
    ? `C ${middle} ${a.y}, ${middle} ${b.y}, ${b.x} ${b.y}`
    : `L ${a.x} ${b.y - 12} Q ${a.x} ${b.y} ${a.x + 12} ${b.y} L ${b.x} ${b.y}`;
  const {type, strength} = b.one;
  const said = svg("title", {}, `${type}, strength ${strength}`);
  return svg("path", {class: "link", d: `M ${a.x} ${a.y} ${way}`, "stroke-width": 1 + 2 * strength}, said);
}

function dot(node) {
  const at = node.below ? {x: node.x, y: node.y + 24, "text-anchor": "middle"} : {x: node.x + 12, y: node.y + 4};
  const note = node.one?.type.replaceAll("_", " ") ?? "";
  const shape = [
    svg("circle", {cx: node.x, cy: node.y, r: node.kind === "here" ? 8 : 5.5}),
    svg(
      "text",
      at,
      fitted(node.name, node.room - note.length * 6.2),
      note && svg("tspan", {class: "via", dx: 6}, note),
    ),
    svg("title", {}, node.name),
  ];
  return node.kind === "leaf" ? pressable(node, shape) : svg("g", {class: `node ${node.kind}`}, ...shape);
}

/** A neighbour: pressed, it is searched for. */
function pressable({name}, shape) {
  const look = () => setQuery(name);
  const pressed = (event) => {
    if (!["Enter", " "].includes(event.key)) return;
    event.preventDefault();
    look();
  };
  const button = {class: "node leaf", role: "button", tabindex: 0, "aria-label": `Search for ${name}`};
  return svg("g", {...button, onclick: look, onkeydown: pressed}, ...shape);
}

/** Cut to the room there is. */
function fitted(name, room) {
  ruler.font = `12.5px ${getComputedStyle(document.body).fontFamily}`;
  const fits = (words) => ruler.measureText(words).width <= room;
  let end = name.length;
  while (end > 4 && !fits(name.slice(0, end))) end -= 1;
  return end === name.length ? name : `${name.slice(0, end - 1)}…`;
}
