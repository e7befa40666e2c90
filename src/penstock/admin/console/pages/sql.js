// SQL over the queues and the journal: an editor, results as table, chart and files, saved queries and history.
import { file, get, may, post, put, remove } from "../lib/api.js";
import { save } from "../lib/bytes.js";
import { count, duration, moment } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { writeJson } from "../lib/json.js";
import { useLoad } from "../lib/load.js";
import { goQuery } from "../lib/router.js";
import { kept } from "../lib/store.js";
import { Dialog } from "../parts/dialog.js";
import { Check, Text } from "../parts/field.js";
import { Head, Panel, Pick } from "../parts/panel.js";
import { Empty, Loaded, Loading, Notice } from "../parts/states.js";
import { Table } from "../parts/table.js";
import { attempt, notify } from "../parts/toast.js";
import { Graph } from "./sql_graph.js";

const MOST_HISTORY = 50;
const ROWS = 1000;
const FIRST = "select queue, state, count(*) as messages, min(published_at) as oldest\nfrom live\ngroup by queue, state\norder by messages desc";

export function SqlPage({ query }) {
  const [text, setText] = useState(query.query ?? kept.get("sql.draft", FIRST));
  const [result, setResult] = useState({ answer: null, problem: null, running: false });
  const [history, setHistory] = useState(kept.get("sql.history", []));
  const tables = useLoad((signal) => get(["sql", "tables"], {}, signal), []);
  if (tables.problem?.code === "not-found") return html`<${Head} title="SQL" /><${Panel} body=${false}><${Empty} title="This broker does not serve SQL">The HTTP process has no SQL engine. The same tables can be read through Arrow Flight, with DuckDB, polars or pandas.</${Empty}></${Panel}>`;
  const write = (value) => {
    setText(value);
    kept.set("sql.draft", value);
  };
  const run = async () => {
    const wanted = text.trim();
    if (!wanted || result.running) return;
    setResult((before) => ({ ...before, running: true, problem: null }));
    goQuery({ query: wanted }, { replace: true });
    try {
      setResult({ answer: await post(["sql"], { query: wanted, rows: ROWS }), problem: null, running: false });
      const past = [{ query: wanted, at: new Date().toISOString() }, ...history.filter((one) => one.query !== wanted)].slice(0, MOST_HISTORY);
      setHistory(past);
      kept.set("sql.history", past);
    } catch (problem) {
      setResult({ answer: null, problem, running: false });
    }
  };
  return html`<${Head} title="SQL" />
    <div class="sql">
      <div class="stack">
        <${Editor} text=${text} onText=${write} onRun=${run} running=${result.running} />
        <${Result} ...${result} query=${text} />
      </div>
      <${Aside} tables=${tables} history=${history} onPick=${write} onForget=${() => (setHistory([]), kept.set("sql.history", []))} text=${text} />
    </div>`;
}

function Editor({ text, onText, onRun, running }) {
  const key = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onRun();
    }
  };
  return html`<${Panel}><div class="stack">
    <div class="field"><label for="query">Query</label><textarea id="query" spellcheck=${false} rows="7" value=${text} onInput=${(event) => onText(event.target.value)} onKeyDown=${key} /></div>
    <div class="row"><button class="main" disabled=${running || !text.trim()} onClick=${onRun}>${running ? "Running …" : "Run"}</button><span class="soft narrow-off"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span><span class="soft">Read-only, with limits on time, memory and rows.</span></div>
  </div></${Panel}>`;
}

function Result({ answer, problem, running, query }) {
  const [how, setHow] = useState("table");
  if (problem) return html`<${Panel} title="Result"><${Notice} kind="bad"><pre class="said">${problem.message}</pre></${Notice}></${Panel}>`;
  if (!answer) return html`<${Panel} title="Result" body=${false}>${running ? html`<${Loading} />` : html`<${Empty} title="No results yet">Run a query to see its rows here.</${Empty}>`}</${Panel}>`;
  const words = `${count(answer.rows.length)} rows${answer.truncated ? " (truncated)" : ""} in ${duration(answer.seconds)}`;
  const actions = html`<${Pick} label="Show the result as" choices=${[{ key: "table", label: "Table" }, { key: "chart", label: "Chart" }]} chosen=${how} onPick=${setHow} /><button class="small" onClick=${() => take(query, "csv")}>CSV</button><button class="small" onClick=${() => take(query, "parquet")}>Parquet</button>`;
  return html`<${Panel} title="Result" body=${false} actions=${actions}>
    <p class="result-words soft" role="status">${running ? "Running …" : words}</p>
    ${how === "chart" ? html`<${Graph} answer=${answer} />` : answer.rows.length ? html`<${Rows} answer=${answer} />` : html`<${Empty} title="No rows" />`}
  </${Panel}>`;
}

const take = (query, format) => attempt(async () => save(await file(["sql", "export"], { query, format }), `query.${format}`), `Saved as query.${format}.`);

const NUMBER = /INT|DOUBLE|FLOAT|DECIMAL|REAL|NUMERIC/;
const TIME = /TIMESTAMP|DATE|TIME/;
const isNumber = (column) => NUMBER.test(column.type) && !TIME.test(column.type);

function shown(value, column) {
  if (value === null) return html`<span class="soft">null</span>`;
  if (/TIMESTAMP/.test(column.type)) return html`<span title=${value}>${moment(value)}</span>`;
  if (typeof value === "object") return writeJson(value);
  if (typeof value !== "number") return String(value);
  if (Number.isSafeInteger(value)) return count(value);
  return Math.abs(value) < Number.MAX_SAFE_INTEGER ? String(value) : value.toExponential(); // no digits beyond its precision
}

const AT_ONCE = 200;

function Rows({ answer }) {
  const [most, setMost] = useState(AT_ONCE);
  const columns = answer.columns.map((column, index) => ({ key: String(index), label: column.name, right: isNumber(column), className: "sql-cell", cell: (row) => shown(row.values[index], column) }));
  const rows = answer.rows.slice(0, most).map((values, index) => ({ index, values }));
  const foot = most < answer.rows.length && html`<button type="button" class="small" onClick=${() => setMost(most * 4)}>Show more rows</button>`;
  return html`<${Table} label="Result" columns=${columns} rows=${rows} rowKey=${(row) => row.index} foot=${foot} />`;
}

function Aside({ tables, history, onPick, onForget, text }) {
  const [tab, setTab] = useState("tables");
  const choices = [{ key: "tables", label: "Tables" }, { key: "saved", label: "Saved" }, { key: "history", label: "History" }];
  return html`<aside class="panel sql-aside" aria-label="Tables, saved queries and history">
    <div class="panel-head"><${Pick} label="Show" choices=${choices} chosen=${tab} onPick=${setTab} /></div>
    <div class="panel-body">
      ${tab === "tables" && html`<${Tables} state=${tables} onPick=${onPick} />`}
      ${tab === "saved" && html`<${Saved} onPick=${onPick} text=${text} />`}
      ${tab === "history" && (history.length ? html`<ul class="queries">${history.map((one) => html`<${Entry} key=${one.at} title=${moment(one.at)} query=${one.query} onPick=${onPick} />`)}</ul><button class="small" onClick=${onForget}>Clear history</button>` : html`<p class="soft">Queries that you run are stored here, in this browser.</p>`)}
    </div>
  </aside>`;
}

function Entry({ title, query, onPick, onForget }) {
  return html`<li><span class="soft">${title}</span><button type="button" class="query" onClick=${() => onPick(query)}>${query}</button>${onForget && html`<button type="button" class="link" aria-label=${`Remove ${title}`} onClick=${onForget}>Remove</button>`}</li>`;
}

function Tables({ state, onPick }) {
  return html`<${Loaded} state=${state}>${(page) => page.items.map((table) => html`<details key=${table.name} class="sql-table">
    <summary><code>${table.name}</code></summary>
    <p class="soft">${table.about}</p>
    <button type="button" class="small" onClick=${() => onPick(`select *\nfrom ${table.name}\nlimit 100`)}>Select from it</button>
    <ul>${table.columns.map((column) => html`<li key=${column.name}><code>${column.name}</code> <span class="soft">${column.type.toLowerCase()}</span></li>`)}</ul>
  </details>`)}</${Loaded}>`;
}

// Queries saved in this browser, and shared ones saved by the broker.
function Saved({ onPick, text }) {
  const [mine, setMine] = useState(kept.get("sql.saved", []));
  const [naming, setNaming] = useState(false);
  const shared = useLoad((signal) => get(["sql", "queries"], {}, signal), []);
  const store = (list) => (setMine(list), kept.set("sql.saved", list));
  const drop = async (name) => {
    await attempt(() => remove(["sql", "queries", name]), `Removed ${name}.`);
    shared.reload();
  };
  return html`<div class="stack">
    <button class="small" disabled=${!text.trim()} onClick=${() => setNaming(true)}>Save this query</button>
    <ul class="queries">${mine.map((one) => html`<${Entry} key=${one.name} title=${one.name} query=${one.query} onPick=${onPick} onForget=${() => store(mine.filter((other) => other.name !== one.name))} />`)}</ul>
    <h3>Shared</h3>
    <${Loaded} state=${shared} lines=${2}>${(page) => (page.items.length ? html`<ul class="queries">${page.items.map((one) => html`<${Entry} key=${one.name} title=${`${one.name}, by ${one.by}`} query=${one.query} onPick=${onPick} onForget=${may("operate") ? () => drop(one.name) : null} />`)}</ul>` : html`<p class="soft">None yet.</p>`)}</${Loaded}>
    ${naming && html`<${Naming} query=${text} onClose=${() => setNaming(false)} onMine=${(name) => store([{ name, query: text }, ...mine.filter((one) => one.name !== name)])} onShared=${shared.reload} />`}
  </div>`;
}

function Naming({ query, onClose, onMine, onShared }) {
  const [name, setName] = useState("");
  const [all, setAll] = useState(false);
  const [problem, setProblem] = useState(null);
  const submit = async () => {
    if (!name.trim()) return;
    try {
      if (all) await put(["sql", "queries", name.trim()], { query });
      if (all) onShared();
      else onMine(name.trim());
      notify(`Saved as ${name.trim()}.`);
      onClose();
    } catch (error) {
      setProblem(error);
    }
  };
  const foot = html`<button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${!name.trim()}>Save</button>`;
  return html`<${Dialog} title="Save this query" onClose=${onClose} onSubmit=${submit} foot=${foot}>
    <${Text} id="query-name" label="Name" value=${name} onChange=${setName} autocomplete="off" />
    ${may("operate") && html`<${Check} id="query-all" label="Share it with all users of the broker" checked=${all} onChange=${setAll} />`}
    ${problem && html`<${Notice} kind="bad">${problem.message}</${Notice}>`}
  </${Dialog}>`;
}
