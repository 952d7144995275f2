// What both pages share: the key, calls to the API, and elements made of text.

export const TIERS = ["keyword", "vector", "graph"];
export const ENGINES = {keyword: "PostgreSQL", vector: "Qdrant", graph: "FalkorDB"};

// For this tab only: closing it forgets the key, and other tabs never see it.
const KEPT = "braid.key";
export const key = {
  get: () => sessionStorage.getItem(KEPT) ?? "",
  set: (value) => sessionStorage.setItem(KEPT, value.trim()),
  forget: () => sessionStorage.removeItem(KEPT),
};

/** `#key=…`, as `braid serve` prints it, never reaches the server; here it is kept and taken out of sight. */
export function keyFromAddress() {
  const told = new URLSearchParams(location.hash.slice(1));
  const brought = told.get("key");
  if (!brought) return;
  key.set(brought);
  told.delete("key");
  history.replaceState(null, "", `${location.pathname}${told.size ? `#${told}` : ""}`);
}

/** Something went wrong in a way that a person can be told. */
export class Trouble extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** Calls the API. Paths are relative, so that Braid may live behind a prefix. */
export async function ask(path, {body, signal} = {}) {
  const reply = await send(path, body, signal);
  const answer = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Trouble(answer.detail ?? `Braid answered ${reply.status}.`, reply.status);
  return answer;
}

async function send(path, body, signal) {
  const headers = {Authorization: `Bearer ${key.get()}`, ...(body && {"Content-Type": "application/json"})};
  try {
    return await fetch(path, {method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body)});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("Braid does not answer, or the key holds characters that no key has.");
  }
}

export const $ = (id) => document.getElementById(id);

/** An element. Strings among the children become text, never HTML; attributes that are null or false are left out. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** The door for the key, on every page: shown while there is none, or none that Braid knows. */
export function keepDoor(opened) {
  keyFromAddress();
  $("door").addEventListener("submit", (event) => {
    event.preventDefault();
    key.set($("key").value);
    $("key").value = "";
    enter();
  });
  $("forget").addEventListener("click", () => {
    key.forget();
    location.reload();
  });
  addEventListener("hashchange", () => {
    const before = key.get();
    keyFromAddress();
    if (key.get() !== before) enter();
  });
  const enter = () => {
    showDoor(!key.get());
    if (key.get()) opened();
  };
  enter();
}

export function showDoor(shut) {
  $("door").hidden = !shut;
  $("forget").hidden = shut;
  if (shut) $("key").focus();
}

/** Says what went wrong, or takes it back. A key that is not known opens the door again. */
export function tell(error) {
  $("problem").hidden = !error;
  $("problem").textContent = error?.message ?? "";
  if (error?.status === 401) showDoor(true);
}
