// Log lines with terminal colours, as pieces of text with classes. All other control sequences are removed.

const PLAIN = { fg: null, bg: null, bold: false, dim: false, italic: false, underline: false, inverse: false, strike: false };

/** The state at the start of a log. */
export function plainStyle() {
  return { ...PLAIN };
}

const LEVELS = [0, 95, 135, 175, 215, 255];

/** A colour of the 256: 0 to 15 is a number (a class), the others are [red, green, blue]. */
function paletteColour(n) {
  if (!(n >= 0 && n <= 255)) return null;
  if (n < 16) return n;
  if (n >= 232) {
    const grey = 8 + (n - 232) * 10;
    return [grey, grey, grey];
  }
  const at = n - 16;
  return [LEVELS[Math.floor(at / 36)], LEVELS[Math.floor(at / 6) % 6], LEVELS[at % 6]];
}

/** Applies one "Select Graphic Rendition" sequence to the style. */
function applySgr(style, parameters) {
  const codes = parameters === '' ? [0] : parameters.split(/[;:]/).map((part) => (part === '' ? 0 : Number(part)));
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    if (code === 0) Object.assign(style, PLAIN);
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 7) style.inverse = true;
    else if (code === 9) style.strike = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 23) style.italic = false;
    else if (code === 24) style.underline = false;
    else if (code === 27) style.inverse = false;
    else if (code === 29) style.strike = false;
    else if (code >= 30 && code <= 37) style.fg = code - 30;
    else if (code >= 40 && code <= 47) style.bg = code - 40;
    else if (code >= 90 && code <= 97) style.fg = code - 90 + 8;
    else if (code >= 100 && code <= 107) style.bg = code - 100 + 8;
    else if (code === 39) style.fg = null;
    else if (code === 49) style.bg = null;
    else if (code === 38 || code === 48) {
      const side = code === 38 ? 'fg' : 'bg';
      if (codes[at + 1] === 5) {
        style[side] = paletteColour(codes[at + 2]);
        at += 2;
      } else if (codes[at + 1] === 2) {
        const colour = codes.slice(at + 2, at + 5);
        if (colour.length === 3 && colour.every((part) => part >= 0 && part <= 255)) style[side] = colour;
        at += 4;
      }
    }
  }
}

function isPlainStyle(style) {
  return style.fg === null && style.bg === null && !(style.bold || style.dim || style.italic || style.underline
    || style.inverse || style.strike);
}

/** The class names of a style. Colours that are not among the 16 have no class. */
export function classesOf(style) {
  const names = [];
  if (typeof style.fg === 'number') names.push(`fg${style.fg}`);
  if (typeof style.bg === 'number') names.push(`bg${style.bg}`);
  for (const name of ['bold', 'dim', 'italic', 'underline', 'inverse', 'strike']) if (style[name]) names.push(name);
  return names.map((name) => `ansi-${name}`).join(' ');
}

// CSI, OSC and other string sequences (also without an end), two-character escapes, then single control characters.
const SEQUENCE = /\x1b\[([0-9;:<=>?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?|\x9b[0-9;:<=>?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/**
 * The pieces of one line: [{text, style}], where style is null for plain text. `style` is the state at the start of the line and
 * is changed to the state at its end. Of a line that was overwritten with carriage returns the last version is shown.
 */
export function parseLine(line, style) {
  let text = line.endsWith('\r') ? line.replace(/\r+$/, '') : line;
  const shown = text.lastIndexOf('\r') + 1;
  const pieces = [];
  const add = (part, start) => {
    // Text before the last carriage return changes only the style.
    const visible = start + part.length <= shown ? '' : part.slice(Math.max(0, shown - start));
    if (visible === '') return;
    const last = pieces[pieces.length - 1];
    const now = isPlainStyle(style) ? null : { ...style };
    if (last && last.style === null && now === null) last.text += visible;
    else pieces.push({ text: visible, style: now });
  };
  let from = 0;
  SEQUENCE.lastIndex = 0;
  for (let match = SEQUENCE.exec(text); match; match = SEQUENCE.exec(text)) {
    if (match[0] === '') { SEQUENCE.lastIndex++; continue; }
    if (match.index > from) add(text.slice(from, match.index), from);
    if (match[2] === 'm' && /^[0-9;:]*$/.test(match[1])) applySgr(style, match[1]);
    from = match.index + match[0].length;
  }
  if (from < text.length) add(text.slice(from), from);
  return pieces;
}
