// Payloads are arbitrary bytes. They arrive as base64 and are rendered from the bytes, so that nothing is changed: numbers
// keep all digits, and bytes that are not text stay bytes.
export function fromBase64(text) {
  return Uint8Array.from(window.atob(text), (character) => character.charCodeAt(0));
}

// The text, or null if the bytes are not UTF-8. Truncation may have cut the last character.
export function asText(bytes, truncated = false) {
  for (let cut = 0; cut <= (truncated ? 3 : 0); cut += 1) {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.subarray(0, bytes.length - cut));
    } catch {
      // Retry without the last byte.
    }
  }
  return null;
}

// A text area normalizes line endings, so text with a carriage return is edited as bytes.
export const isEditable = (text) => text !== null && !text.includes("\r");

export const asHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

const WIDTH = 16;

export function hexLines(bytes, most) {
  const lines = [];
  for (let start = 0; start < Math.min(bytes.length, most); start += WIDTH) {
    const row = bytes.subarray(start, Math.min(start + WIDTH, bytes.length));
    const digits = Array.from(row, (byte) => byte.toString(16).padStart(2, "0"));
    const shown = Array.from(row, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    const halves = [digits.slice(0, 8).join(" "), digits.slice(8).join(" ")].join("  ");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${halves.padEnd(48)}  ${shown}`);
  }
  return lines;
}

const UNPRINTABLE = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f]/;

// One line of a payload for a list: text, or else bytes.
export function preview({ size, value, truncated }) {
  if (size === 0) return "(empty)";
  const data = fromBase64(value);
  const text = asText(data, truncated);
  const line = text === null || UNPRINTABLE.test(text) ? asHex(data) : text.replace(/\s+/g, " ");
  return truncated ? `${line}…` : line;
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
