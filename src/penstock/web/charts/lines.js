// Draws lines over time with uPlot (vendor/uplot.js must have defined `uPlot`), in the console and in the pipelines'
// report. Null is a gap, and stays one. Colours are custom properties of the page: --chart-1 … for lines, --soft for text
// and --grid for the grid; they are read again when the theme changes and before printing.

const MINUTE = 60;
const DAY = 86400;
const UNITS = [[DAY, "d"], [3600, "h"], [MINUTE, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]];
const AMOUNTS = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const DECADES = (from, to) => [...Array(to - from)].flatMap((_, at) => [1, 2, 5].map((step) => Number(`${step}e${from + at}`)));
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((n) => n * MINUTE);
const DAYS = [1, 2, 7, 30, 90, 365, 1825, 3650, 36500].map((n) => n * DAY);

const digits = (value) => String(Number(value.toPrecision(3)));

// A number with three digits: 12.3k.
export function amount(value) {
  const [size, unit] = AMOUNTS.find(([limit]) => value >= limit) ?? [1, ""];
  return digits(value / size) + unit;
}

// A duration: 1.2 ms, 90 s, 2 min.
export function duration(seconds) {
  if (seconds <= 0) return "0";
  const [size, unit] = UNITS.find(([limit]) => seconds >= (limit === MINUTE ? 2 * MINUTE : limit)) ?? [1e-6, "µs"];
  return `${digits(seconds / size)} ${unit}`;
}

// By kind of chart: the text of a value, and the steps of its axis.
const KINDS = {
  amount: { write: amount, steps: DECADES(-3, 16) },
  duration: { write: duration, steps: [...DECADES(-6, 1), 10, 20, 30, ...MINUTES, ...DAYS] },
};

// Times in the reader's own zone, or in UTC.
const FORMS = { short: { hour: "2-digit", minute: "2-digit" }, long: { hour: "2-digit", minute: "2-digit", second: "2-digit" }, day: { day: "numeric", month: "short" } };
const forms = (zone) => Object.fromEntries(Object.entries(FORMS).map(([name, form]) => [name, new Intl.DateTimeFormat("en-GB", { ...form, hourCycle: "h23", timeZone: zone })]));

// Labels of moments: the time, seconds if there are any, and the day at its beginning.
export function clock(zone) {
  const { short, long, day } = forms(zone);
  return (seconds) => {
    const at = new Date(seconds * 1000);
    const time = long.format(at);
    if (time === "00:00:00") return day.format(at);
    return time.endsWith(":00") ? short.format(at) : time;
  };
}

// Points without a neighbour, which a line does not show.
export function alone(values) {
  const known = (at) => values[at] !== null && values[at] !== undefined;
  return values.flatMap((_, at) => (known(at) && !known(at - 1) && !known(at + 1) ? [at] : []));
}

function colours(place, names) {
  const probe = place.appendChild(document.createElement("span"));
  const found = names.map((name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return found;
}

// uPlot shows a single moment on an axis of years: put one a second before it.
function data({ times, series }) {
  const before = times.length === 1;
  return [before ? [times[0] - 1, ...times] : times, ...series.map((each) => (before ? [null, ...each.values] : each.values))];
}

function options(place, chart, height) {
  const [text, grid, ...lines] = colours(place, ["--soft", "--grid", ...chart.series.map((each) => `--chart-${each.colour}`)]);
  const { write, steps } = chart.write ? { write: chart.write } : KINDS[chart.kind];
  const at = clock(chart.zone);
  const { day } = forms(chart.zone);
  const axis = { stroke: text, font: "11px system-ui, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  const legendText = (words) => (plot, value, number, index) => (index === null ? "" : (value ?? null) === null ? "–" : words(value));
  const moment = (value) => `${day.format(new Date(value * 1000))} ${at(value)}`;
  return {
    width: place.clientWidth || 400,
    height,
    padding: [8, 16, 0, 0],
    cursor: chart.legend ? { drag: { x: false, y: false } } : { show: false },
    select: { show: false },
    legend: chart.legend ? { markers: { width: 0, fill: (plot, number) => lines[number - 1] } } : { show: false },
    scales: {
      x: { range: (plot, low, high) => [Math.min(low ?? Infinity, (high ?? Date.now() / 1000) - chart.shortest), high ?? Date.now() / 1000] },
      y: { range: (plot, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] },
    },
    axes: [
      { ...axis, size: 24, space: 70, values: (plot, splits) => splits.map(at), incrs: [1, 2, 5, 10, 15, 30, ...MINUTES, ...DAYS] },
      { ...axis, size: 58, space: 28, values: (plot, splits) => splits.map(write), ...(steps && { incrs: steps }) },
    ],
    series: [
      { label: chart.zone ?? "Time", value: legendText(moment) },
      ...chart.series.map((each, number) => ({
        label: each.label,
        stroke: lines[number],
        fill: chart.area ? lines[number].replace(/rgba?\((.*?)\)/, "rgba($1, 0.15)") : undefined,
        width: each.width ?? 1.6,
        value: legendText(write),
        points: { show: false, filter: (plot, index) => alone(plot.data[index]), size: 5 + (each.width ?? 1.6), fill: lines[number] },
      })),
    ],
    ...(chart.zone && { tzDate: (value) => uPlot.tzDate(new Date(value * 1000), chart.zone) }),
  };
}

// Draws a chart into an element, after clearing it: {times (seconds since 1970), series: [{label, values, colour (a number),
// width}], kind ("amount" or "duration") or write (a function), area, legend, shortest (seconds across, at least), zone}.
// Returns `show`, which takes other times and values of the same lines, and `remove`.
export function draw(place, chart, height = 170) {
  let plot;
  let shown = { legend: false, shortest: MINUTE, ...chart };
  const make = () => {
    plot?.destroy();
    plot = new uPlot(options(place, shown, height), data(shown), place);
  };
  const media = ["(prefers-color-scheme: dark)", "print"].map((query) => window.matchMedia(query));
  const sizes = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height }));
  const themes = new MutationObserver(make);
  place.replaceChildren();
  make();
  sizes.observe(place);
  themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  media.forEach((each) => each.addEventListener("change", make));
  return {
    show(times, series) {
      shown = { ...shown, times, series };
      plot.setData(data(shown));
    },
    remove() {
      sizes.disconnect();
      themes.disconnect();
      media.forEach((each) => each.removeEventListener("change", make));
      plot.destroy();
    },
  };
}
