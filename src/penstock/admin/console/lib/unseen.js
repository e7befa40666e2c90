// Characters that nobody sees, or that turn the text around them: a name could pass for another one. They are shown by
// their numbers, as the command line shows them: \u202e.
const UNSEEN = /(?!(?<=[\p{Extended_Pictographic}\p{EMod}\ufe0f])[\u200d\ufe0f])(?![\t\n]|\r\n)[\p{C}\p{Zl}\p{Zp}\p{DI}\u2800]/gu;
const PLAIN = /^[\x20-\x7e\n\t]*$/;
// More than these in one text are no name, and not worth an element each.
const MOST_MARKED = 500;

export const hasUnseen = (text) => !PLAIN.test(text) && text.search(UNSEEN) >= 0;

function number(character) {
  const digits = character.codePointAt(0).toString(16);
  return digits.length <= 2 ? `\\x${digits.padStart(2, "0")}` : digits.length <= 4 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

// As one text, where there is no other way.
export const plainly = (text) => (typeof text === "string" ? text.replace(UNSEEN, number) : text);

// In pieces, with what is not seen as `mark` makes it.
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
