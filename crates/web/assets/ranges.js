// Index lists of an Indexed Job, such as "1,3-5,9".

/** Calls `each(first, last)` for every range of the text. Ranges that are not numbers or are not below `limit` are left out. */
export function eachRange(text, limit, each) {
  if (!text) return;
  for (const part of text.split(',')) {
    const dash = part.indexOf('-');
    // parseInt, because Number('') is 0.
    const first = parseInt(part, 10);
    let last = dash < 0 ? first : parseInt(part.slice(dash + 1), 10);
    if (!(first >= 0 && first < limit && last >= first)) continue;
    if (last >= limit) last = limit - 1;
    each(first, last);
  }
}

/** The number of indexes in the text. */
export function countIndexes(text, limit = Infinity) {
  let count = 0;
  eachRange(text, limit, (first, last) => { count += last - first + 1; });
  return count;
}

/** The indexes as numbers, ascending. */
export function readIndexes(text, limit = Infinity) {
  const all = [];
  eachRange(text, limit, (first, last) => { for (let i = first; i <= last; i++) all.push(i); });
  return all.sort((a, b) => a - b).filter((value, at) => at === 0 || value !== all[at - 1]);
}

/** The ranges `[first, last]` below `size` that are in none of the texts. */
export function absentRanges(texts, size) {
  const ranges = [];
  for (const text of texts) eachRange(text, size, (first, last) => ranges.push([first, last]));
  ranges.sort((a, b) => a[0] - b[0]);
  const absent = [];
  let next = 0;
  for (const [first, last] of [...ranges, [size, size]]) {
    if (first > next) absent.push([next, first - 1]);
    next = Math.max(next, last + 1);
  }
  return absent;
}

/** The text for ascending numbers. Two neighbours are written "4,5", three or more "4-6". */
export function writeIndexes(numbers) {
  const parts = [];
  for (let at = 0; at < numbers.length;) {
    let end = at;
    while (end + 1 < numbers.length && numbers[end + 1] === numbers[end] + 1) end++;
    if (end === at) parts.push(String(numbers[at]));
    else if (end === at + 1) parts.push(String(numbers[at]), String(numbers[end]));
    else parts.push(`${numbers[at]}-${numbers[end]}`);
    at = end + 1;
  }
  return parts.join(',');
}
