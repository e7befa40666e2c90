// Characters that are invisible or change the direction of text could make one name look like another. They are shown as
// escapes such as \u202e, as on the command line.
const UNSEEN = /(?!(?<=[\p{Extended_Pictographic}\p{EMod}\ufe0f])[\u200d\ufe0f])(?![\t\n]|\r\n)[\p{C}\p{Zl}\p{Zp}\p{DI}\u2800]/gu;
const PLAIN = /^[\x20-\x7e\n\t]*$/;
// A text with more of them is not a name; it gets no element for each.
const MOST_MARKED = 500;

export const hasUnseen = (text) => !PLAIN.test(text) && text.search(UNSEEN) >= 0;

function number(character) {
  const digits = character.codePointAt(0).toString(16);
  return digits.length <= 2 ? `\\x${digits.padStart(2, "0")}` : digits.length <= 4 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

// As plain text, where no elements are possible.
export const plainly = (text) => (typeof text === "string" ? text.replace(UNSEEN, number) : text);

// As pieces, with escapes wrapped by `mark`.
export function marked(text, mark) {
  const found = [...text.matchAll(UNSEEN)];
  if (found.length > MOST_MARKED) return plainly(text);
  const pieces = found.flatMap(({ 0: character, index }, at) => {
    const before = at === 0 ? 0 : found[at - 1].index + found[at - 1][0].length;
    return [text.slice(before, index), mark(number(character), at)];
  });
  const last = found.at(-1);
  return [...pieces, text.slice(last.index + last[0].length)];
}
