// The log of a container: follows, search, wrap, times, download, colours.

import { classesOf, parseLine, plainStyle } from './ansi.js';
import { backoff, objectPath, openStream, readLines, withQuery } from './api.js';
import { h, setText, throttled } from './dom.js';
import { count } from './format.js';

/** Lines that are kept. Older ones are removed from the page; a download has all of them. */
const LINES_MAX = 10000;
const TAIL = 5000;
/** Lines are added to blocks: the browser skips blocks that are not visible. */
const BLOCK = 100;
const LENGTH_MAX = 20000;

const rgb = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`;

export class LogView {
  constructor() {
    this.follow = true;
    this.term = '';
    this.matches = [];
    this.match = -1;
    this.body = h('div', { class: 'log-body', tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-label': 'Log', onscroll: () => this.scrolled() });
    this.status = h('span', { class: 'note', role: 'status' });
    this.search = h('input', {
      type: 'search', placeholder: 'Search in the log', 'aria-label': 'Search in the log', class: 'search',
      oninput: throttled(() => this.find(), 200),
      onkeydown: (event) => { if (event.key === 'Enter') { event.preventDefault(); this.step(event.shiftKey ? -1 : 1); } },
    });
    this.found = h('span', { class: 'note', role: 'status' });
    const toggle = (label, pressed, work) => {
      const button = h('button', { type: 'button', class: 'small', 'aria-pressed': String(pressed) }, label);
      button.addEventListener('click', () => {
        const on = button.getAttribute('aria-pressed') !== 'true';
        button.setAttribute('aria-pressed', String(on));
        work(on);
      });
      return button;
    };
    this.followButton = toggle('Follow', true, (on) => { this.follow = on; if (on) this.toEnd(); });
    this.download = h('a', { class: 'button small', download: '' }, 'Download');
    this.tools = h('div', { class: 'log-tools' }, this.search,
      h('button', { type: 'button', class: 'small', 'aria-label': 'Previous match', title: 'Previous match (Shift+Enter)', onclick: () => this.step(-1) }, '↑'),
      h('button', { type: 'button', class: 'small', 'aria-label': 'Next match', title: 'Next match (Enter)', onclick: () => this.step(1) }, '↓'),
      this.found, h('span', { class: 'spring' }), this.followButton,
      toggle('Wrap', true, (on) => this.body.classList.toggle('nowrap', !on)),
      toggle('Times', false, (on) => this.body.classList.toggle('times', on)), this.download);
    this.element = h('div', { class: 'log' }, this.tools, this.body, this.status);
    this.flush = throttled(() => this.render(), 60);
    this.visibility = () => this.resume();
    document.addEventListener('visibilitychange', this.visibility);
  }

  /** Shows the log of a container from its end. `ended`: the Pod will print no more. */
  open(namespace, pod, container, previous, ended) {
    this.close();
    this.clear();
    const path = `${objectPath('', namespace, 'pods', pod)}/log`;
    const query = { container, previous: previous || undefined };
    this.download.href = withQuery(path, query);
    this.download.setAttribute('download', `${pod}${container ? `-${container}` : ''}.log`);
    this.source = { path, query, ended: ended || previous };
    this.control = new AbortController();
    this.run(this.source, this.control.signal);
  }

  clear() {
    this.body.replaceChildren();
    Object.assign(this, { pending: [], lines: 0, removed: 0, style: plainStyle(), lastTime: '', sameTime: 0, block: null });
    this.find();
  }

  close() {
    this.control?.abort();
    this.control = null;
  }

  /** A hidden page holds no connection: the stream continues when the page is visible. */
  resume() {
    if (!this.source || this.source.ended) return;
    if (document.hidden) {
      this.hideTimer = setTimeout(() => this.close(), 20000);
    } else {
      clearTimeout(this.hideTimer);
      if (!this.control) {
        this.control = new AbortController();
        this.run(this.source, this.control.signal);
      }
    }
  }

  async run({ path, query, ended }, signal) {
    let failures = 0;
    while (!signal.aborted) {
      let skip = this.sameTime;
      const from = this.lastTime;
      try {
        setText(this.status, from ? '' : 'Loading…');
        // Times are always requested: they show where to continue after a lost connection.
        const window = from ? { sinceTime: from } : { tailLines: TAIL };
        const response = await openStream(withQuery(path, { ...query, ...window, timestamps: true, follow: !ended }), signal);
        const first = this.lines + this.removed;
        setText(this.status, ended ? '' : 'Following.');
        await readLines(response, (lines) => {
          failures = 0;
          for (const line of lines) {
            const space = line.indexOf(' ');
            const time = space < 0 ? line : line.slice(0, space);
            if (from && time < from) continue;
            if (from && time === from && skip > 0) { skip--; continue; }
            this.add(time, space < 0 ? '' : line.slice(space + 1));
          }
          this.flush();
        });
        if (signal.aborted) return;
        this.source.ended = true;
        const seen = this.lines + this.pending.length;
        const isCut = this.removed > 0 || (first === 0 && seen >= TAIL);
        setText(this.status, seen === 0 ? 'The log is empty.' : isCut ? `End of the log. The last ${count(Math.min(seen, LINES_MAX))} lines are shown; Download has all.` : 'End of the log.');
        this.flush();
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 404) {
          this.source.ended = true;
          setText(this.status, error.message);
          return;
        }
        failures++;
        const wait = error.status >= 400 && error.status < 500 && error.status !== 429 ? 5000 : backoff(failures);
        setText(this.status, `${error.status ? error.message : 'Not connected'}. The next attempt is in ${Math.ceil(wait / 1000)} s.`);
        await new Promise((resolve) => { setTimeout(resolve, wait); signal.addEventListener('abort', resolve); });
      }
    }
  }

  add(time, text) {
    this.sameTime = time === this.lastTime ? this.sameTime + 1 : 1;
    this.lastTime = time;
    this.pending.push([time, text]);
    // What would be removed at once is not rendered, but its colours continue.
    if (this.pending.length > 2 * LINES_MAX) {
      const old = this.pending.splice(0, LINES_MAX);
      old.forEach(([, line]) => parseLine(line.slice(0, LENGTH_MAX), this.style));
      this.removed += old.length;
    }
  }

  render() {
    if (this.pending.length === 0) return;
    const wasAtEnd = this.follow;
    for (const [time, text] of this.pending) {
      if (!this.block || this.block.childElementCount >= BLOCK) {
        this.block = h('div', { class: 'log-block' });
        this.body.append(this.block);
      }
      this.block.append(this.line(time, text));
      this.lines++;
    }
    this.pending = [];
    while (this.lines > LINES_MAX && this.body.firstElementChild !== this.block) {
      const first = this.body.firstElementChild;
      this.lines -= first.childElementCount;
      this.removed += first.childElementCount;
      first.remove();
    }
    if (this.removed > 0 && !this.source?.ended) setText(this.status, `The last ${count(this.lines)} lines are shown; Download has all.`);
    if (this.term) this.find(false);
    if (wasAtEnd) this.toEnd();
  }

  line(time, text) {
    const cut = text.length > LENGTH_MAX ? `${text.slice(0, LENGTH_MAX)}… (${count(text.length)} characters)` : text;
    const element = h('div', { class: 'log-line' });
    element.dataset.time = time.length > 19 ? time.slice(11, 23).replace(/Z$/, '') : time;
    for (const piece of parseLine(cut, this.style)) {
      if (!piece.style) {
        element.append(piece.text);
        continue;
      }
      const span = h('span', { class: classesOf(piece.style) }, piece.text);
      if (Array.isArray(piece.style.fg)) span.style.color = rgb(piece.style.fg);
      if (Array.isArray(piece.style.bg)) span.style.backgroundColor = rgb(piece.style.bg);
      element.append(span);
    }
    if (this.term && element.textContent.toLowerCase().includes(this.term)) element.classList.add('hit');
    return element;
  }

  toEnd() {
    this.ownScroll = performance.now();
    this.body.scrollTop = this.body.scrollHeight;
  }

  /** Scrolling up stops following; scrolling to the end starts it again. */
  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.body;
    const atEnd = scrollHeight - scrollTop - clientHeight < 30;
    if (!atEnd && performance.now() - (this.ownScroll ?? 0) < 200) return;
    if (this.follow !== atEnd) {
      this.follow = atEnd;
      this.followButton.setAttribute('aria-pressed', String(atEnd));
    }
  }

  /** Marks the lines that contain the text, regardless of case. */
  find(jump = true) {
    this.term = this.search.value.toLowerCase();
    this.matches = [];
    for (const block of this.body.children) {
      for (const line of block.children) {
        const hit = this.term !== '' && line.textContent.toLowerCase().includes(this.term);
        if (line.classList.contains('hit') !== hit) line.classList.toggle('hit', hit);
        if (hit) this.matches.push(line);
      }
    }
    if (jump) {
      this.match = -1;
      if (this.matches.length > 0) this.step(-1);
    }
    this.tellMatches();
  }

  tellMatches() {
    const { length } = this.matches;
    setText(this.found, this.term === '' ? '' : length === 0 ? 'no match' : `${this.match >= 0 ? `${this.match + 1} of ` : ''}${count(length)}`);
  }

  step(by) {
    const { length } = this.matches;
    if (length === 0) return;
    this.matches[this.match]?.classList.remove('current');
    this.match = this.match < 0 ? (by < 0 ? length - 1 : 0) : (this.match + by + length) % length;
    const line = this.matches[this.match];
    line.classList.add('current');
    this.follow = false;
    this.followButton.setAttribute('aria-pressed', 'false');
    line.scrollIntoView({ block: 'center' });
    this.tellMatches();
  }

  destroy() {
    this.close();
    this.source = null;
    clearTimeout(this.hideTimer);
    document.removeEventListener('visibilitychange', this.visibility);
  }
}
