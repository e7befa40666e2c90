// Lines over time, drawn by uPlot (vendor/uplot.js, which must be there as `uPlot`), wherever we show some: the report of
// the pipelines has this file in it. A gap is null, and stays one. Colours are the page's: custom properties --chart-1 …
// for lines, --soft for text and --rule for the grid; they are read anew when the theme changes and when it is printed.

const MINUTE = 60;
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]];
const AMOUNTS = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const DECADES = (from, to) => [...Array(to - from)].flatMap((_, at) => [1, 2, 5].map((step) => Number(`${step}e${from + at}`)));

const digits = (value) => String(Number(value.toPrecision(3)));

// A number for people: 12.3k.
export function amount(value) {
  const [size, unit] = AMOUNTS.find(([limit]) => value >= limit) ?? [1, ""];
  return digits(value / size) + unit;
}

// A time for people: 1.2 ms, 90 s, 2 min.
export function duration(seconds) {
  if (seconds <= 0) return "0";
  const [size, unit] = UNITS.find(([limit]) => seconds >= (limit === MINUTE ? 2 * MINUTE : limit)) ?? [1e-6, "µs"];
  return `${digits(seconds / size)} ${unit}`;
}

// By the name that a chart has for what it shows: how a value is written, and the steps of its axis.
const KINDS = {
  amount: { write: amount, steps: DECADES(0, 16) },
  duration: {
    write: duration,
    steps: [...DECADES(-6, 1), 10, 20, 30, ...[1, 2, 5, 10, 20, 30, 60, 120, 240, 480, 1440, 2880, 7200, 14400].map((n) => n * MINUTE)],
  },
};

const two = (number) => String(number).padStart(2, "0");
const clock = (seconds) => `${two(Math.floor(seconds / 3600) % 24)}:${two(Math.floor(seconds / MINUTE) % 60)}`;
const day = (seconds) => new Date(seconds * 1000).toISOString().slice(5, 10);

// Times of the axis, UTC; the day is said where it begins.
const times = (plot, splits) => splits.map((at) => (at % 86400 === 0 ? day(at) : clock(at)));

// Points without a neighbour, which no line shows.
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

function options(place, chart, height) {
  const [text, grid, ...lines] = colours(place, ["--soft", "--rule", ...chart.series.map((each) => `--chart-${each.colour}`)]);
  const { write, steps } = KINDS[chart.kind];
  const axis = { stroke: text, font: "11px system-ui, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  const told = (words) => (plot, value, number, at) => (at === null ? "" : (value ?? null) === null ? "–" : words(value));
  return {
    width: place.clientWidth,
    height,
    padding: [8, 8, 0, 0],
    cursor: { drag: { x: false, y: false } },
    legend: { markers: { width: 0, fill: (plot, at) => lines[at - 1] } },
    scales: {
      x: { range: (plot, low, high) => (low === high ? [low - MINUTE, high + MINUTE] : [low, high]) },
      y: { range: (plot, low, high) => [0, high > 0 ? high * 1.05 : 1] },
    },
    axes: [
      { ...axis, size: 24, space: 70, values: times, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440].map((n) => n * MINUTE) },
      { ...axis, size: 58, space: 28, incrs: steps, values: (plot, splits) => splits.map(write) },
    ],
    series: [
      { label: "UTC", value: told((at) => `${day(at)} ${clock(at)}`) },
      ...chart.series.map((each, at) => ({
        label: each.label,
        stroke: lines[at],
        fill: chart.area ? lines[at].replace(/rgba?\((.*?)\)/, "rgba($1, 0.15)") : undefined,
        width: each.width,
        value: told(write),
        points: { show: false, filter: (plot, number) => alone(plot.data[number]), size: 5 + each.width, fill: lines[at] },
      })),
    ],
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
  };
}

// Draws a chart into an element, which is cleared: {kind: "amount" or "duration", times (seconds since 1970), area,
// series: [{label, values, colour (a number), width}]}. Returns a function that takes it away again.
export function draw(place, chart, height = 170) {
  let plot;
  const data = [chart.times, ...chart.series.map((each) => each.values)];
  const make = () => {
    plot?.destroy();
    plot = new uPlot(options(place, chart, height), data, place);
  };
  const media = ["(prefers-color-scheme: dark)", "print"].map((query) => window.matchMedia(query));
  const sizes = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height }));
  place.replaceChildren();
  make();
  sizes.observe(place);
  media.forEach((each) => each.addEventListener("change", make));
  return () => {
    sizes.disconnect();
    media.forEach((each) => each.removeEventListener("change", make));
    plot.destroy();
  };
}
