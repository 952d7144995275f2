// One result: what was found, a bar of what each tier gave, and, opened, every number and the graph around it.
import {TIERS, ask, el} from "./braid.js";
import {choice} from "./controls.js";
import {drawing} from "./drawing.js";

const RULES = {
  minmax: "between the lowest and the highest score of its list",
  floor: "last of its list: counts a little more than not found",
  all_equal: "all scores of its list are equal",
};
const ORDINALS = ["first", "second", "third"];
const opened = new Set();
const around = new Map(); // neighbours, by id, while the page is open

/** A result as a list item. `top` is the best score on the page, which fills the bar. */
export function row(result, answer, top) {
  const id = `why-${result.id}`;
  const why = el("div", {class: "why", id, hidden: true});
  const button = el(
    "button",
    {class: "title", "aria-expanded": "false", "aria-controls": id},
    ...marked(result.highlight?.title, result.title || result.id),
  );
  const item = el(
    "li",
    {class: "result", "data-id": result.id},
    el(
      "div",
      {class: "head"},
      el("h3", {}, button),
      el("span", {class: "score", title: "score"}, result.score.toFixed(3)),
    ),
    bar(result, top),
    found(result),
    text(result),
    facts(result),
    why,
  );
  const open = (wide) => {
    button.setAttribute("aria-expanded", wide);
    item.classList.toggle("open", wide);
    why.hidden = !wide;
    why.replaceChildren(...(wide ? reasons(result, answer) : []));
    opened[wide ? "add" : "delete"](result.id);
  };
  button.addEventListener("click", () => open(why.hidden));
  if (opened.has(result.id)) open(true);
  return item;
}

/** A fragment in which the matches stand between <mark> and </mark> and all else is escaped: as text and elements. */
export function marked(fragment, otherwise = "") {
  if (!fragment) return [otherwise];
  const parts = fragment.split(/<mark>(.*?)<\/mark>/s).map(unescaped);
  return parts.map((part, at) => (at % 2 ? el("mark", {}, part) : part));
}

const ENTITIES = {amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'", "#39": "'", "#34": '"'};
const unescaped = (escaped) => escaped.replace(/&(amp|lt|gt|quot|#x27|#39|#34);/g, (_, name) => ENTITIES[name]);

function bar({tiers}, top) {
  const said = Object.entries(tiers).map(([name, share]) => `${name} ${share.contribution.toFixed(3)}`);
  const whole = el("div", {
    class: "bar",
    role: "img",
    "aria-label": `gave: ${said.join(", ")}`,
    title: said.join(" + "),
  });
  for (const [name, share] of Object.entries(tiers)) {
    const part = el("i", {class: name});
    part.style.width = `${(100 * share.contribution) / (top || 1)}%`;
    whole.append(part);
  }
  return whole;
}

/** Which tiers found it and at which place: the bar, in words. */
function found({tiers}) {
  const place = ([name, {rank}]) => el("span", {class: `tier ${name}`}, `${name} #${rank}`);
  return el("p", {class: "found"}, ...Object.entries(tiers).map(place));
}

function text({content, highlight}) {
  const fragments = highlight?.content ?? [];
  if (!fragments.length) return el("p", {class: "text"}, shortened(content, 260));
  return el("p", {class: "text"}, ...fragments.flatMap((fragment, at) => [at ? " … " : "", ...marked(fragment)]));
}

const shortened = (words, most) => (words.length <= most ? words : `${words.slice(0, most).replace(/\s+\S*$/, "")} …`);

function facts(result) {
  const day = result.created_at?.slice(0, 10);
  return el(
    "p",
    {class: "facts"},
    choice("namespaces", result.namespace),
    result.type && choice("types", result.type),
    ...result.tags.slice(0, 5).map((tag) => choice("tags", tag)),
    day && el("time", {datetime: day}, day),
  );
}

function reasons(result, answer) {
  const picture = el("div", {class: "picture"});
  neighbors(result.id).then((found) => picture.append(...drawing(result, found, titles(answer), picture)));
  return [
    el("p", {class: "story"}, story(result, answer)),
    sum(result, answer),
    picture,
    el("p", {class: "dim id"}, `id ${result.id}`),
  ];
}

/** The explanation in a sentence. */
function story({tiers}, answer) {
  const placed = (name) => `${name} put it ${ORDINALS[tiers[name].rank - 1] ?? `at place ${tiers[name].rank}`}`;
  const said = TIERS.filter((name) => tiers[name] && name !== "graph").map(placed);
  const walk = tiers.graph?.path?.map((step) => titles(answer).get(step.to) ?? step.to);
  if (walk)
    said.push(walk.length > 1 ? `the graph walked there from ${walk[0]}` : "the graph knows it by the name you typed");
  const not = TIERS.filter((name) => !tiers[name] && ["ok", "empty"].includes(answer.tiers[name]?.status));
  return `${said.join(", ")}${not.length ? `; ${not.join(" and ")} did not find it` : ""}.`;
}

function sum(result, answer) {
  const columns = ["tier", "place", "raw score", "0 to 1", "× weight", "= gives"];
  const cell = (value, title) => el("td", {title}, value);
  const line = (name) => {
    const share = result.tiers[name];
    const head = el("th", {scope: "row"}, el("span", {class: `tier ${name}`}, name));
    if (!share) return el("tr", {class: "dim"}, head, el("td", {colspan: 5}, absent(answer.tiers[name])));
    return el(
      "tr",
      {},
      head,
      cell(`#${share.rank}`),
      cell(share.raw.toFixed(3)),
      cell((share.share ?? share.normalised).toFixed(3), RULES[share.rule]),
      cell(share.weight?.toFixed(2) ?? ""),
      cell(share.contribution.toFixed(3)),
    );
  };
  return el(
    "div",
    {class: "scroll"},
    el(
      "table",
      {class: "sum"},
      el("thead", {}, el("tr", {}, ...columns.map((name) => el("th", {scope: "col"}, name)))),
      el("tbody", {}, ...TIERS.map(line), ...(result.adjustments ?? []).map(adjusted)),
      el(
        "tfoot",
        {},
        el("tr", {}, el("th", {scope: "row", colspan: 5}, "score"), el("td", {}, result.score.toFixed(3))),
      ),
    ),
  );
}

/** A step after the sum. */
function adjusted({name, multiply, add}) {
  const did = [multiply !== 1 && `× ${multiply.toFixed(3)}`, add !== 0 && `+ ${add.toFixed(3)}`]
    .filter(Boolean)
    .join(" ");
  return el(
    "tr",
    {},
    el("th", {scope: "row"}, name.replaceAll("_", " ")),
    el("td", {colspan: 4}, "then"),
    el("td", {}, did || "no change"),
  );
}

function absent(tier) {
  if (tier?.status === "skipped") return "not asked: its weight is 0";
  return ["ok", "empty"].includes(tier?.status) ? "did not find it" : `did not answer: ${tier?.reason ?? tier?.status}`;
}

const titles = (answer) => new Map(answer.results.map(({id, title}) => [id, title || id]));

/** The documents one link away; none where they cannot be had: the numbers are worth showing without. */
function neighbors(id) {
  if (!around.has(id)) {
    const path = `v1/documents/${id.split("/").map(encodeURIComponent).join("/")}/neighbors?limit=12`;
    around.set(
      id,
      ask(path)
        .then((answer) => answer.neighbors)
        .catch(() => []),
    );
  }
  return around.get(id);
}
