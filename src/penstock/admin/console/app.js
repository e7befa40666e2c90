// The frame of all pages: the bar, the navigation, the session and the state of the connection.
import { loadSession, login, logout, session } from "./lib/api.js";
import { compact } from "./lib/format.js";
import { html, render, useEffect, useRef, useState } from "./lib/html.js";
import { begin, connection, end, overview, retry } from "./lib/live.js";
import { address, go, route } from "./lib/router.js";
import { help, onKey, PAGES, shortcuts } from "./lib/shortcuts.js";
import { kept, useStore } from "./lib/store.js";
import { Dialog } from "./parts/dialog.js";
import { Check } from "./parts/field.js";
import { Icon } from "./parts/icons.js";
import { Head } from "./parts/panel.js";
import { Empty, Failed, Loading } from "./parts/states.js";
import { attempt, Toasts } from "./parts/toast.js";
import { AdminPage } from "./pages/admin.js";
import { ConnectionsPage } from "./pages/connections.js";
import { DeadPage } from "./pages/dead.js";
import { LoginPage } from "./pages/login.js";
import { MessagePage } from "./pages/message.js";
import { OverviewPage } from "./pages/overview.js";
import { PipelinesPage } from "./pages/pipelines.js";
import { QueuePage } from "./pages/queue.js";
import { QueuesPage } from "./pages/queues.js";
import { SqlPage } from "./pages/sql.js";

const SHOWN = {
  overview: OverviewPage, queues: QueuesPage, queue: QueuePage, dead: DeadPage, message: MessagePage,
  connections: ConnectionsPage, pipelines: PipelinesPage, sql: SqlPage, admin: AdminPage,
};
const MESSAGE_ID = /^[0-9a-f]{32}$/i;

function App() {
  const who = useStore(session);
  const [problem, setProblem] = useState(null);
  const load = () => {
    setProblem(null);
    enter().catch(setProblem);
  };
  useEffect(load, []);
  useEffect(() => (who ? begin() : end()), [Boolean(who)]);
  if (who === null) return html`<${LoginPage} /><${Toasts} />`;
  if (who === undefined) return html`<main class="alone">${problem ? html`<${Failed} problem=${problem} retry=${load} />` : html`<${Loading} />`}</main>`;
  return html`<${Frame} who=${who} />`;
}

// A login link has the token after the #, which is sent to no server. It is removed from the address at once.
async function enter() {
  const { page, query } = route.get();
  if (page !== "login" || !query.token) return loadSession();
  window.history.replaceState(null, "", address("overview"));
  route.set({ page: "overview", parts: [], query: {} });
  return login(query.token).catch(() => loadSession());
}

function Frame({ who }) {
  const here = useStore(route);
  const [menu, setMenu] = useState(false);
  const main = useRef(null);
  const Page = SHOWN[here.page];
  const place = [here.page, ...here.parts].join("/");
  // On a new page the menu closes, and focus moves to its top for users of keyboards and screen readers.
  const first = useRef(true);
  useEffect(() => {
    setMenu(false);
    if (!first.current && document.activeElement === document.body) main.current.focus();
    first.current = false;
    window.scrollTo(0, 0);
  }, [place]);
  return html`<button type="button" class="skip" onClick=${() => main.current.focus()}>Skip to the page</button>
    <div class="frame">
      <${Bar} who=${who} menu=${menu} onMenu=${() => setMenu(!menu)} />
      <div class=${`pages ${menu ? "open" : ""}`} id="pages"><${Pages} here=${here} /></div>
      <main ref=${main} tabindex="-1" id="main">
        <${Lost} />
        ${Page ? html`<${Page} key=${here.page} parts=${here.parts} query=${here.query} />` : html`<${Head} title="Not found" /><${Empty} title="There is no such page">This address is not a page of the console.</${Empty}>`}
      </main>
    </div>
    <${Help} /><${Toasts} />`;
}

function Pages({ here }) {
  const totals = useStore(overview)?.totals;
  const shown = here.page === "queue" ? "queues" : here.page;
  return html`<nav aria-label="Pages">
    ${PAGES.map(({ key, label }) => html`<a key=${key} href=${address(key)} aria-current=${key === shown ? "page" : null}>
      <${Icon} name=${key} />${label}${key === "dead" && totals?.dead > 0 && html`<span class="tally">${compact(totals.dead)}<span class="hidden-text"> dead letters</span></span>`}
    </a>`)}
    <button type="button" class="leave" onClick=${leave}>Log out</button>
  </nav>`;
}

const leave = () => attempt(logout, "Logged out.");

function Bar({ who, menu, onMenu }) {
  const name = useStore(overview)?.name;
  return html`<header class="bar">
    <button type="button" class="menu-button icon plain" aria-label="Pages" aria-expanded=${String(menu)} aria-controls="pages" onClick=${onMenu}><${Icon} name="menu" /></button>
    <a class="brand" href=${address("overview")} aria-label="Penstock, overview"><img src="icon.svg" alt="" /><span>Penstock</span></a>
    <${Search} />
    <div class="bar-end">
      ${name && html`<span class="soft broker-name">${name}</span>`}
      <${Live} /><${Theme} />
      <button type="button" class="icon plain narrow-off" aria-label="Keyboard shortcuts" onClick=${() => help.set(true)}><${Icon} name="keyboard" /></button>
      <button type="button" class="plain small who" title=${`${who.identity}: ${who.role}`} onClick=${leave}><span class="word">${who.identity} · </span>Log out</button>
    </div>
  </header>`;
}

function Search() {
  const [text, setText] = useState("");
  const find = (event) => {
    event.preventDefault();
    const wanted = text.trim();
    if (MESSAGE_ID.test(wanted)) go("message", [], { id: wanted.toLowerCase() });
    else go("queues", [], { find: wanted });
    setText("");
    document.activeElement.blur();
  };
  return html`<form class="search" role="search" onSubmit=${find}>
    <label for="search" class="hidden-text">Search queues and message IDs</label>
    <input id="search" type="search" placeholder="Find a queue or ID" autocomplete="off" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => event.key === "Escape" && event.target.blur()} />
    <kbd aria-hidden="true">/</kbd>
  </form>`;
}

const WORDS = { live: ["live", "Live"], connecting: ["live waiting", "Connecting"], lost: ["live lost", "No connection"] };

function Live() {
  const { state } = useStore(connection);
  const [kind, word] = WORDS[state];
  return html`<span class=${kind} role="status"><span class="dot" /><span class="word">${word}</span></span>`;
}

const sentence = (text) => text && `${text[0].toUpperCase()}${text.slice(1)}.`;

// Show the banner late: a restart takes a second and should not move the page.
const PATIENCE_MS = 1500;

function Lost() {
  const { state, since, retryAt, why } = useStore(connection);
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (state !== "lost") return undefined;
    const timer = window.setInterval(() => setNow(Date.now()), 500);
    return () => window.clearInterval(timer);
  }, [state]);
  if (state !== "lost" || now - since < PATIENCE_MS) return null;
  const wait = Math.max(0, Math.ceil((retryAt - now) / 1000));
  return html`<div class="notice bad lost-banner" role="alert"><p><strong>No connection to the broker.</strong> ${sentence(why)} The page shows old values. ${wait > 0 ? `Retrying in ${wait} s.` : "Retrying."}</p><div class="actions"><button class="small" onClick=${retry}>Try now</button></div></div>`;
}

const THEMES = { auto: ["auto", "Theme: system", "light"], light: ["sun", "Theme: light", "dark"], dark: ["moon", "Theme: dark", "auto"] };

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "auto");
  const [icon, label, next] = THEMES[theme];
  const change = () => {
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    kept.set("theme", next);
    setTheme(next);
  };
  return html`<button type="button" class="icon plain" aria-label=${label} title=${label} onClick=${change}><${Icon} name=${icon} /></button>`;
}

function Help() {
  const open = useStore(help);
  const on = useStore(shortcuts);
  if (!open) return null;
  const keys = [["/", "Search"], ["?", "This list"], ["j / k", "Next and previous row"], ["Ctrl Enter", "Run a query"], ["Esc", "Close a dialog"]];
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${() => help.set(false)}>
    <dl class="facts">
      ${keys.map(([key, what]) => html`<dt key=${key}><kbd>${key}</kbd></dt><dd>${what}</dd>`)}
      ${PAGES.map(({ letter, label }) => html`<dt key=${letter}><kbd>g</kbd> <kbd>${letter}</kbd></dt><dd>${label}</dd>`)}
    </dl>
    <${Check} id="shortcuts-on" label="Enable single-key shortcuts" checked=${on} onChange=${(value) => shortcuts.set(value)} />
  </${Dialog}>`;
}

document.addEventListener("keydown", (event) => session.get() && onKey(event));
render(html`<${App} />`, document.getElementById("app"));
