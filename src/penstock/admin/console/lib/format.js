// Formats numbers, sizes, durations and times.
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const NONE = "–";

export const count = (value) => (value === null || value === undefined ? NONE : whole.format(value));
export const compact = (value) =>
  value === null || value === undefined ? NONE : Math.abs(Number(value)) < 10_000 ? whole.format(Math.round(Number(value))) : short.format(value);

export function rate(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0";
  if (value < 0.1) return "<0.1";
  return value < 10 ? value.toFixed(1) : compact(Math.round(value));
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let size = Number(value);
  let unit = 0;
  while (size >= 1024 && unit < SIZES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${SIZES[unit]}`;
}

// The two largest units are enough to judge an age.
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 0.001) return seconds <= 0 ? "0 s" : `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", year: "numeric" });

// `text` is a time of RFC 3339.
export function moment(text) {
  if (!text) return NONE;
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  const today = new Date().toDateString() === at.toDateString();
  return today ? clock.format(at) : `${day.format(at)} ${clock.format(at)}`;
}

export const age = (text) => (text ? duration(Math.max(0, (Date.now() - new Date(text)) / 1000)) : NONE);
export const percent = (part) => (part === null || part === undefined ? NONE : `${Math.round(part * 100)} %`);
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
