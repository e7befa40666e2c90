// Keyboard shortcuts. Single keys can be turned off, for users of speech input (WCAG 2.1.4), and are ignored in fields.
import { go } from "./router.js";
import { kept, makeStore } from "./store.js";

export const PAGES = [
  { key: "overview", label: "Overview", letter: "o" },
  { key: "queues", label: "Queues", letter: "q" },
  { key: "dead", label: "Dead letters", letter: "d" },
  { key: "message", label: "Message history", letter: "m" },
  { key: "connections", label: "Connections", letter: "c" },
  { key: "pipelines", label: "Pipelines", letter: "p" },
  { key: "sql", label: "SQL", letter: "s" },
  { key: "admin", label: "Admin", letter: "a" },
];

export const shortcuts = makeStore(kept.get("shortcuts", true));
shortcuts.watch((on) => kept.set("shortcuts", on));
export const help = makeStore(false);

const SECONDS_FOR_SECOND_KEY = 1.5;
let waiting = 0;

function typing(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

function step(event) {
  const rows = [...document.querySelectorAll("main tbody a[href], main tbody button.link")];
  if (rows.length === 0) return;
  const here = rows.indexOf(document.activeElement);
  const next = event.key === "j" ? Math.min(here + 1, rows.length - 1) : Math.max(here - 1, 0);
  rows[next].focus();
}

function second(letter) {
  const page = PAGES.find((one) => one.letter === letter);
  if (page) go(page.key);
}

export function onKey(event) {
  if (!shortcuts.get() || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (Date.now() < waiting) {
    waiting = 0;
    second(event.key);
  } else if (event.key === "g") waiting = Date.now() + SECONDS_FOR_SECOND_KEY * 1000;
  else if (event.key === "/") document.getElementById("search")?.focus();
  else if (event.key === "?") help.set(true);
  else if (event.key === "j" || event.key === "k") step(event);
  else return;
  event.preventDefault();
}
