// Patterns of queues. The broker matches them; pages only distinguish them from names.
export const hasWildcards = (text) => /[*?]/.test(text);
