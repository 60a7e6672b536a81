// Elements without markup: text is always a text node, styles are classes or CSSOM properties.

/** Creates an element. `props`: attributes; `on...` functions are listeners; `class` may be a list; false and null are left out. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.className = Array.isArray(value) ? value.filter(Boolean).join(' ') : value;
    else if (name === 'value' || name === 'checked') element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Sets text only if it differs: unchanged nodes cause no layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === '') element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Runs `work` at most once in `interval` milliseconds, and not while the page is hidden. */
export function throttled(work, interval = 150) {
  let planned = false, last = 0;
  const run = () => {
    planned = false;
    last = performance.now();
    work();
  };
  return () => {
    if (planned) return;
    planned = true;
    const wait = Math.max(0, interval - (performance.now() - last));
    setTimeout(() => requestAnimationFrame(run), wait);
  };
}

/** The value of a CSS variable, for canvases. */
export function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A bar with parts, for example succeeded and failed. */
export function bar() {
  const parts = ['succeeded', 'failed', 'running'].map((name) => h('span', { class: `bar-part part-${name}` }));
  const element = h('span', { class: 'bar', 'aria-hidden': 'true' }, parts);
  return {
    element,
    set(total, ...counts) {
      counts.forEach((count, at) => {
        const width = total > 0 ? `${Math.min(100, (count / total) * 100)}%` : '0%';
        if (parts[at].style.width !== width) parts[at].style.width = width;
      });
    },
  };
}

/** A line at the foot of the page that says what has happened, for eyes and for screen readers. */
export function toast(message, kind = 'info') {
  const box = document.getElementById('toasts');
  const line = h('div', { class: `toast toast-${kind}`, role: kind === 'error' ? 'alert' : 'status' }, message);
  box.append(line);
  setTimeout(() => line.remove(), kind === 'error' ? 12000 : 5000);
}

/** The tooltip of canvases: one element, moved with the pointer. */
let tip = null;
export function showTip(lines, x, y) {
  if (!tip) {
    tip = h('div', { class: 'tip', 'aria-hidden': 'true' });
    document.body.append(tip);
  }
  const text = lines.filter(Boolean).join('\n');
  setText(tip, text);
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height > window.innerHeight ? y - height - 10 : y + 18}px`;
}
export function hideTip() { if (tip) tip.hidden = true; }
