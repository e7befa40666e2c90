// Lossless JSON. The browser's parser rounds numbers beyond 2^53, and drops and reorders names. So responses of the API are
// read here, with large integers as BigInt, and payloads are only split for rendering, each piece as it was written.
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;
const ESCAPE = /["\\/bfnrt]|u[0-9a-fA-F]{4}/y;
const QUOTE = 34;
const BACKSLASH = 92;
const FIRST_PRINTABLE = 32;

// `make` builds values: leaf(source), list(values), object([[source of the name, value]]).
class Reader {
  constructor(text, make) {
    Object.assign(this, { text, make, at: 0 });
  }

  fail() {
    throw new SyntaxError(`invalid JSON at character ${this.at + 1}`);
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    if (!pattern.test(this.text)) return false;
    this.at = pattern.lastIndex;
    return true;
  }

  // Skips this character and the space around it. Returns whether it was next.
  next(character) {
    this.match(SPACE);
    if (this.text[this.at] !== character) return false;
    this.at += 1;
    this.match(SPACE);
    return true;
  }

  string() {
    const start = this.at;
    this.at += 1;
    for (;;) {
      const code = this.text.charCodeAt(this.at); // NaN after the end
      if (!(code >= FIRST_PRINTABLE)) this.fail();
      this.at += 1;
      if (code === QUOTE) return this.text.slice(start, this.at);
      if (code === BACKSLASH && !this.match(ESCAPE)) this.fail();
    }
  }

  value() {
    if (this.next("{")) return this.make.object(this.entries("}", () => this.field()));
    if (this.next("[")) return this.make.list(this.entries("]", () => this.value()));
    const start = this.at;
    if (this.text[start] === '"') return this.make.leaf(this.string());
    if (!this.match(NUMBER) && !this.match(WORD)) this.fail();
    return this.make.leaf(this.text.slice(start, this.at));
  }

  entries(end, entry) {
    const found = [];
    if (this.next(end)) return found;
    do found.push(entry());
    while (this.next(","));
    if (!this.next(end)) this.fail();
    return found;
  }

  field() {
    if (this.text[this.at] !== '"') this.fail();
    const name = this.string();
    if (!this.next(":")) this.fail();
    return [name, this.value()];
  }

  whole() {
    const found = this.value();
    this.match(SPACE);
    if (this.at < this.text.length) this.fail();
    return found;
  }
}

const unescaped = (source) => JSON.parse(source); // of one string

function plain(source) {
  if (source[0] === '"') return unescaped(source);
  if (source === "null") return null;
  if (source === "true" || source === "false") return source === "true";
  const number = Number(source);
  return /^-?\d+$/.test(source) && !Number.isSafeInteger(number) ? BigInt(source) : number;
}

const VALUES = { leaf: plain, list: (values) => values, object: (fields) => Object.fromEntries(fields.map(([name, value]) => [unescaped(name), value])) };

// The number that a user typed, or NaN.
export const numberOf = (text) => (/^\s*\d+\s*$/.test(text) ? plain(text.trim()) : Number(text));

// Parses a response of the API. Throws SyntaxError.
export const readJson = (text) => new Reader(text, VALUES).whole();

const PIECES = { leaf: (source) => ({ source }), list: (items) => ({ list: items.map((item, index) => [String(index), item]) }), object: (fields) => ({ object: fields.map(([name, value]) => [name.slice(1, -1), value]) }) };

// A payload as pieces: {source} of a leaf, {list} and {object} with [name, piece]. Undefined if invalid or too deep.
export function jsonPieces(text) {
  try {
    return new Reader(text, PIECES).whole();
  } catch {
    return undefined;
  }
}

// Like JSON.stringify, with integers of any size.
export function writeJson(value, indent = "", here = "") {
  if (typeof value === "bigint") return String(value);
  if (value === null || typeof value !== "object" || typeof value.toJSON === "function") return JSON.stringify(value) ?? "null";
  const list = Array.isArray(value);
  const deeper = here + indent;
  const inside = list ? value.map((item) => writeJson(item, indent, deeper)) : Object.entries(value).filter(([, item]) => item !== undefined).map(([name, item]) => `${JSON.stringify(name)}:${indent && " "}${writeJson(item, indent, deeper)}`);
  const [begin, end] = list ? "[]" : "{}";
  if (inside.length === 0) return begin + end;
  return indent ? `${begin}\n${deeper}${inside.join(`,\n${deeper}`)}\n${here}${end}` : begin + inside.join(",") + end;
}
