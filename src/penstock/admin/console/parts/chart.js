// Line charts. The legend shows the newest values; the label describes them for screen readers.
import { draw } from "../charts/lines.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef } from "../lib/html.js";
import { Panel } from "./panel.js";

// series: [{label, values, colour: 1..5}]; times: seconds since 1970
export function Chart({ label, times, series, format, height = 150 }) {
  const place = useRef(null);
  const drawn = useRef(null);
  const shape = series.map((one) => one.label).join("|");

  useLayoutEffect(() => {
    drawn.current = draw(place.current, { times, series, write: format }, height);
    return () => drawn.current.remove();
  }, [shape, height]);

  useEffect(() => drawn.current.show(times, series), [times, series]);

  const last = (one) => one.values[one.values.length - 1];
  const words = series.map((one) => `${one.label} ${times.length ? format(last(one)) : "no values yet"}`).join(", ");
  return html`<figure>
    <ul class="keys">${series.map((one) => html`<li key=${one.label}><i class=${`k${one.colour}`} />${one.label} <b>${times.length ? format(last(one)) : "–"}</b></li>`)}</ul>
    <div class="chart" ref=${place} role="img" aria-label=${`${label}. Now: ${words}.`} />
  </figure>`;
}

const seconds = (at) => (typeof at === "number" ? at : new Date(at).getTime() / 1000);

export const STATES = [["Ready", 1, (one) => one.ready], ["In flight", 2, (one) => one.out], ["Delayed", 5, (one) => one.delayed], ["Dead", 4, (one) => one.dead]];

// A chart of values over time. past: entries with `at`; lines: [label, colour, value of an entry], a constant
export function History({ title, label = title, past, lines, format, height }) {
  const times = useMemo(() => past.map((one) => seconds(one.at)), [past]);
  const series = useMemo(() => lines.map(([name, colour, value]) => ({ label: name, colour, values: past.map(value) })), [past]);
  return html`<${Panel} title=${title}><${Chart} label=${label} times=${times} series=${series} format=${format} height=${height} /></${Panel}>`;
}
