// A table with sortable columns, whose rows the server sorts and pages.
import { html } from "../lib/html.js";
import { goQuery } from "../lib/router.js";
import { Icon } from "./icons.js";

// columns: {key, label, cell(row), right, sort, head, off: "slim" | "narrow" | "middle" | "wide" | "full", className}
// sort: {by, order}; onSort(by, order)
export function Table({ label, columns, rows, rowKey, sort, onSort, chosen, foot }) {
  return html`<div class="scroll" role="group" aria-label=${label} tabindex="0">
      <table>
        <caption class="hidden-text">${label}</caption>
        <thead><tr>${columns.map((column) => html`<${HeadCell} key=${column.key} column=${column} sort=${sort} onSort=${onSort} />`)}</tr></thead>
        <tbody>
          ${rows.map((row) => html`<tr key=${rowKey(row)} class=${chosen?.has(rowKey(row)) ? "chosen" : null}>${columns.map((column) => cell(column, row))}</tr>`)}
        </tbody>
      </table>
    </div>
    ${foot && html`<div class="table-foot">${foot}</div>`}`;
}

function classes(column) {
  return [column.right && "right", column.off && `${column.off}-off`, column.className].filter(Boolean).join(" ") || null;
}

function cell(column, row) {
  const inside = column.cell(row);
  if (column.head) return html`<th key=${column.key} scope="row" class=${classes(column)}>${inside}</th>`;
  return html`<td key=${column.key} class=${classes(column)}>${inside}</td>`;
}

const SORTS = { ascending: "descending", descending: "ascending" };

function HeadCell({ column, sort, onSort }) {
  const { label, sort: by, right } = column;
  if (!by) return html`<th scope="col" class=${classes(column)}>${column.hideLabel ? html`<span class="hidden-text">${label}</span>` : label}</th>`;
  const active = sort?.by === by;
  // Names sort from A first, figures from the largest.
  const next = active ? SORTS[sort.order] : right ? "descending" : "ascending";
  return html`<th scope="col" class=${classes(column)} aria-sort=${active ? sort.order : null}>
    <button type="button" onClick=${() => onSort(by, next)}>${label}${active && html`<${Icon} name=${sort.order === "ascending" ? "up" : "down"} />`}</button>
  </th>`;
}

// The foot of a list: counts, and links to the first and the next page. The cursor is in the address.
export function Pager({ page, word, cursor, shown = page.items.length, total = page.total }) {
  const all = total === null || total === undefined ? "" : ` of ${new Intl.NumberFormat("en").format(total)}`;
  return html`<span role="status">${new Intl.NumberFormat("en").format(shown)}${all} ${word}</span>
    <div class="actions">
      <button type="button" class="small" disabled=${cursor === ""} onClick=${() => goQuery({ cursor: "" })}>First page</button>
      <button type="button" class="small" disabled=${page.next === null} onClick=${() => goQuery({ cursor: page.next })}>Next page</button>
    </div>`;
}
