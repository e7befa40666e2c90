// Patterns of queues. The broker matches them; a page only needs to know whether a text is one.
export const hasWildcards = (text) => /[*?]/.test(text);
