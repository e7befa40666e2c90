// Lines over time, drawn by uPlot. The figures beside the keys say the newest values; the label says it in words.
import { html, useEffect, useLayoutEffect, useRef } from "../lib/html.js";

// Colours come from the style sheet, as the theme has them: a canvas can't read custom properties.
function colours(probe) {
  const found = getComputedStyle(probe);
  return { line: found.getPropertyValue("color"), grid: found.getPropertyValue("border-top-color"), text: found.getPropertyValue("outline-color") };
}

// series: [{label, values, key: 1..5, format}]; times: seconds since 1970
export function Chart({ label, times, series, format, height = 150 }) {
  const place = useRef(null);
  const plot = useRef(null);
  const probes = useRef(null);
  const shape = series.map((one) => one.label).join("|");

  useLayoutEffect(() => {
    const make = () => {
      plot.current?.destroy();
      plot.current = new window.uPlot(options(place.current, probes.current, series, format, height), drawn(times, series), place.current);
    };
    make();
    const sizes = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height }));
    sizes.observe(place.current);
    const theme = window.matchMedia("(prefers-color-scheme: dark)");
    const themes = new MutationObserver(make);
    themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    theme.addEventListener("change", make);
    return () => {
      sizes.disconnect();
      themes.disconnect();
      theme.removeEventListener("change", make);
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape, height]);

  useEffect(() => plot.current?.setData(drawn(times, series)), [times, series]);

  const last = (one) => one.values[one.values.length - 1];
  const words = series.map((one) => `${one.label} ${times.length ? format(last(one)) : "no values yet"}`).join(", ");
  return html`<figure>
    <ul class="keys">${series.map((one) => html`<li key=${one.label}><i class=${`k${one.key}`} />${one.label} <b>${times.length ? format(last(one)) : "–"}</b></li>`)}</ul>
    <div class="chart" ref=${place} role="img" aria-label=${`${label}. Now: ${words}.`} />
    <div hidden ref=${probes}>${series.map((one) => html`<span key=${one.label} class=${`probe p${one.key}`} />`)}</div>
  </figure>`;
}

// Seconds across, at least: a line of two points says nothing.
const SHORTEST = 60;
const short = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const long = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

// uPlot takes a single moment for years: it gets a second before it.
function drawn(times, series) {
  if (times.length !== 1) return [times, ...series.map((one) => one.values)];
  return [[times[0] - 1, times[0]], ...series.map((one) => [one.values[0], one.values[0]])];
}

function span(_, low, high) {
  const end = high ?? Date.now() / 1000;
  return [Math.min(low ?? end, end - SHORTEST), end];
}

function clock(seconds) {
  const at = new Date(seconds * 1000);
  if (at.getHours() === 0 && at.getMinutes() === 0 && at.getSeconds() === 0) return day.format(at);
  return (at.getSeconds() === 0 ? short : long).format(at);
}

function options(place, probes, series, format, height) {
  const found = [...probes.children].map(colours);
  const { grid, text } = found[0];
  const font = "11px system-ui, sans-serif";
  const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font };
  return {
    width: place.clientWidth || 400,
    height,
    cursor: { show: false },
    select: { show: false },
    legend: { show: false },
    padding: [8, 6, 0, 0],
    scales: { x: { range: span }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, size: 24, space: 70, values: (_, splits) => splits.map(clock) }, { ...axis, size: 56, space: 32, values: (_, splits) => splits.map(format) }],
    series: [{}, ...series.map((one, index) => ({ label: one.label, stroke: found[index].line, width: 1.6, points: { show: false } }))],
  };
}
