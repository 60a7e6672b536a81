// Objects as YAML text: block style, two spaces, keys in the order of the object.

const RESERVED = /^(?:~|null|true|false|yes|no|on|off|y|n|[-+]?\.inf|\.nan)$/i;
/** Starts like a number, a date or a sexagesimal number: such text is quoted. */
const NUMERIC = /^[-+]?(?:\.?[0-9]|0[xob])/i;
const SPECIAL_START = /^[\s\-?:,[\]{}#&*!|>'"%@`=<]/;

function isPlain(text) {
  if (text === '' || RESERVED.test(text) || NUMERIC.test(text)) return false;
  if (SPECIAL_START.test(text) || /[:\s]$/.test(text)) return false;
  if (/: | #|[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]/.test(text)) return false;
  return true;
}

function scalar(text) {
  if (isPlain(text)) return text;
  // JSON strings are YAML double-quoted strings; DEL, C1 controls and line separators are escaped in addition.
  return JSON.stringify(text)
    .replace(/[\x7f-\x9f\u2028\u2029\ufeff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Lines of a string as a literal block, or null if a block cannot represent it. */
function block(text, indent) {
  if (!text.includes('\n') || /[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]/.test(text)) return null;
  const body = text.replace(/\n+$/, '');
  const newlines = text.length - body.length;
  if (body === '' || body.startsWith('\n')) return null;
  // A first line that begins with a space needs an indentation indicator.
  const indicator = body.startsWith(' ') || body.startsWith('\t') ? '2' : '';
  const chomp = newlines === 0 ? '-' : newlines === 1 ? '' : '+';
  const lines = body.split('\n').map((line) => (line === '' ? '' : indent + line));
  for (let n = 1; n < newlines; n++) lines.push('');
  return `|${indicator}${chomp}\n${lines.join('\n')}`;
}

function write(value, indent, out) {
  if (Array.isArray(value)) {
    for (const item of value) writeEntry(`${indent}-`, item, indent, out, true);
    return;
  }
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue;
    writeEntry(`${indent}${scalar(key)}:`, item, indent, out, false);
  }
}

function writeEntry(head, item, indent, out, inList) {
  if (item !== null && typeof item === 'object') {
    const isEmpty = Array.isArray(item) ? item.length === 0 : Object.keys(item).length === 0;
    if (isEmpty) {
      out.push(`${head} ${Array.isArray(item) ? '[]' : '{}'}`);
    } else if (inList) {
      // The first line of the item follows the dash.
      const at = out.length;
      write(item, `${indent}  `, out);
      out[at] = `${head} ${out[at].slice(indent.length + 2)}`;
    } else {
      out.push(head);
      // A list in a map is not indented further, as kubectl writes it.
      write(item, Array.isArray(item) ? indent : `${indent}  `, out);
    }
    return;
  }
  if (typeof item === 'string') {
    // The content of a block must be indented deeper than its parent.
    out.push(`${head} ${block(item, `${indent}  `) ?? scalar(item)}`);
  } else {
    out.push(`${head} ${item === null || item === undefined ? 'null' : String(item)}`);
  }
}

/** The YAML text of a JSON value, with a final newline. */
export function toYaml(value) {
  if (value === null || typeof value !== 'object') {
    return `${typeof value === 'string' ? scalar(value) : String(value)}\n`;
  }
  if (Object.keys(value).length === 0) return Array.isArray(value) ? '[]\n' : '{}\n';
  const out = [];
  write(value, '', out);
  return `${out.join('\n')}\n`;
}
