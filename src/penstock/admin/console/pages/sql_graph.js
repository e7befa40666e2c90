// A result as bars or a line, from one column for the X axis and one for the Y axis.
import { compact } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { Chart } from "../parts/chart.js";
import { Select } from "../parts/field.js";
import { Empty } from "../parts/states.js";

const BARS = 40;
const numeric = (column) => /INT|DOUBLE|FLOAT|DECIMAL|REAL|NUMERIC/.test(column.type);
const timed = (column) => /TIMESTAMP|DATE/.test(column.type);

export function Graph({ answer }) {
  const { columns, rows } = answer;
  const figures = columns.map((column, index) => [String(index), column.name]).filter(([index]) => numeric(columns[index]));
  const [across, setAcross] = useState(String(Math.max(0, columns.findIndex((column) => !numeric(column)))));
  const [up, setUp] = useState(figures[0]?.[0] ?? "");
  if (figures.length === 0 || rows.length === 0) return html`<${Empty} title="Nothing to draw">A chart needs rows and a numeric column.</${Empty}>`;
  const choices = columns.map((column, index) => [String(index), column.name]);
  return html`<div class="panel-body stack">
    <div class="row"><${Select} id="across" label="X axis" value=${across} onChange=${setAcross} choices=${choices} /><${Select} id="up" label="Y axis" value=${up} onChange=${setUp} choices=${figures} /></div>
    ${timed(columns[across]) ? html`<${Line} rows=${rows} across=${across} up=${up} label=${columns[up].name} />` : html`<${Bars} rows=${rows} across=${across} up=${up} label=${columns[up].name} />`}
  </div>`;
}

function Line({ rows, across, up, label }) {
  const sorted = useMemo(() => rows.filter((row) => row[across] !== null).map((row) => [new Date(row[across]).getTime() / 1000, Number(row[up])]).sort((one, other) => one[0] - other[0]), [rows, across, up]);
  const series = useMemo(() => [{ label, colour: 1, values: sorted.map(([, value]) => value) }], [sorted]);
  return html`<${Chart} label=${label} times=${sorted.map(([at]) => at)} series=${series} format=${compact} height=${260} />`;
}

// Bars are SVG rectangles, which need no inline style.
function Bars({ rows, across, up, label }) {
  const shown = rows.slice(0, BARS).map((row) => [String(row[across] ?? "null"), Number(row[up])]);
  const most = Math.max(...shown.map(([, value]) => value), 0) || 1;
  return html`<table class="bars"><caption class="hidden-text">${label}</caption><tbody>
    ${shown.map(([name, value], index) => html`<tr key=${index}><th scope="row">${name}</th><td class="bar-cell"><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect x="0" y="0" height="10" rx="0.6" width=${Math.max(0, (value / most) * 100)} /></svg></td><td class="right">${compact(value)}</td></tr>`)}
  </tbody></table>${rows.length > BARS && html`<p class="soft">Only the first ${BARS} rows are drawn.</p>`}`;
}
