// Two canvases over time: the curve of running, succeeded and failed Pods, and the timeline of Pods.

import { cssColour, h, hideTip, setText, showTip } from './dom.js';
import { clock, count, dateTime, duration, shortDuration } from './format.js';
import { packLanes, podState } from './model.js';

const LEFT = 46, RIGHT = 10;
const FONT = '11px system-ui, sans-serif';
const SECOND = 1000;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800].map((s) => s * SECOND);

/** Marks of the time axis: about one for every 110 pixels. */
function timeMarks(from, to, width) {
  const target = ((to - from) / Math.max(1, width)) * 110;
  const step = STEPS.find((one) => one >= target) ?? Math.ceil(target / STEPS[STEPS.length - 1]) * STEPS[STEPS.length - 1];
  const marks = [];
  for (let t = 0; t <= to - from; t += step) marks.push(t);
  return marks;
}

function prepare(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [w, tall] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== tall) {
    canvas.width = w;
    canvas.height = tall;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = FONT;
  return context;
}

/** The next round number at or above: one digit times a power of ten. */
function roundUp(number) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, number)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= number);
}

function colours() {
  const of = (name) => cssColour(`--index-${name}`);
  return {
    running: of('running'), succeeded: of('succeeded'), failed: of('failed'), waiting: of('waiting'),
    text: cssColour('--faint'), line: cssColour('--line'), strong: cssColour('--text'), mark: cssColour('--mark'), markDark: cssColour('--mark-dark'),
  };
}

function drawTimeAxis(context, c, from, to, width, top, bottom) {
  context.textAlign = 'center';
  context.textBaseline = 'top';
  const x = (t) => LEFT + (t / Math.max(1, to - from)) * (width - LEFT - RIGHT);
  for (const t of timeMarks(from, to, width - LEFT - RIGHT)) {
    context.fillStyle = c.line;
    context.fillRect(Math.round(x(t)), top, 1, bottom - top);
    context.fillStyle = c.text;
    if (x(t) < width - 20) context.fillText(t === 0 ? clock(from) : `+${duration(t)}`, Math.max(x(t), LEFT - 16), bottom + 5);
  }
}

/** Succeeded and failed above, running below, each with its own scale. */
export class Curve {
  constructor() {
    this.points = [];
    this.canvas = h('canvas', { role: 'img', 'aria-label': 'Pods over time' });
    this.note = h('p', { class: 'note' });
    this.element = h('div', { class: 'chart' }, this.canvas, this.note);
    this.canvas.addEventListener('pointermove', (event) => this.hover(event));
    this.canvas.addEventListener('pointerleave', hideTip);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
  }

  set(points, note) {
    this.points = points;
    setText(this.note, note);
    this.draw();
  }

  recolour() { this.draw(); }

  draw() {
    const width = this.element.clientWidth;
    if (width <= 0) return;
    const [top, middle, gap, bottom] = [8, 130, 14, 200];
    const context = prepare(this.canvas, width, 222);
    const c = colours();
    const { points } = this;
    if (points.length < 2) {
      context.fillStyle = c.text;
      context.textAlign = 'left';
      context.fillText('Nothing to show yet.', 8, 24);
      return;
    }
    const from = points[0].t, to = Math.max(points[points.length - 1].t, from + SECOND);
    const last = points[points.length - 1];
    const ended = roundUp(Math.max(1, last.succeeded + last.failed));
    const most = roundUp(Math.max(1, ...points.map((point) => point.running)));
    drawTimeAxis(context, c, from, to, width, top, bottom);
    const x = (t) => LEFT + ((t - from) / (to - from)) * (width - LEFT - RIGHT);
    const area = (value, base, low, high, max, colour) => {
      const y = (n) => low - (n / max) * (low - high);
      context.beginPath();
      context.moveTo(x(from), y(base(points[0])));
      points.forEach((point, at) => {
        if (at > 0) context.lineTo(x(point.t), y(value(points[at - 1])));
        context.lineTo(x(point.t), y(value(point)));
      });
      for (let at = points.length - 1; at >= 0; at--) {
        context.lineTo(x(points[at].t), y(base(points[at])));
        if (at > 0) context.lineTo(x(points[at].t), y(base(points[at - 1])));
      }
      context.closePath();
      context.fillStyle = colour;
      context.fill();
    };
    area((p) => p.succeeded, () => 0, middle, top, ended, c.succeeded);
    area((p) => p.succeeded + p.failed, (p) => p.succeeded, middle, top, ended, c.failed);
    area((p) => p.running, () => 0, bottom, middle + gap, most, c.running);
    context.fillStyle = c.line;
    context.fillRect(LEFT, middle, width - LEFT - RIGHT, 1);
    context.fillRect(LEFT, bottom, width - LEFT - RIGHT, 1);
    context.fillStyle = c.text;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const [n, y] of [[ended, top + 4], [0, middle - 4], [most, middle + gap + 4], [0, bottom - 4]]) context.fillText(count(n), LEFT - 6, y);
  }

  hover(event) {
    const { points } = this;
    if (points.length < 2) return;
    const box = this.canvas.getBoundingClientRect();
    const from = points[0].t, to = points[points.length - 1].t;
    const t = from + ((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * (to - from);
    let at = points.findIndex((point) => point.t > t) - 1;
    if (at === -2) at = points.length - 1;
    if (at < 0) return hideTip();
    const { running, succeeded, failed } = points[at];
    showTip([dateTime(t), `${count(running)} running`, `${count(succeeded)} succeeded`, `${count(failed)} failed`], event.clientX, event.clientY);
  }

  destroy() {
    this.observer.disconnect();
    hideTip();
  }
}

const LANE = 15;

/** A bar for every Pod. Pods that do not overlap share a lane, or each Pod has its own row. */
export class Timeline {
  constructor({ describe, pick }) {
    Object.assign(this, { describe, pick });
    this.pods = [];
    this.packed = true;
    this.range = null;
    this.now = 0;
    this.canvas = h('canvas', { class: 'sticky', 'aria-hidden': 'true' });
    this.spacer = h('div', null, this.canvas);
    this.axis = h('canvas', { 'aria-hidden': 'true' });
    this.scroll = h('div', {
      class: 'timeline-scroll', tabindex: '0', role: 'img',
      'aria-label': 'Timeline of Pods. Plus and minus zoom, left and right arrows move. The tab Attempts has the same as a table.',
      onscroll: () => this.draw(), onpointermove: (event) => this.hover(event), onpointerleave: hideTip,
      onclick: (event) => { const pod = this.podAt(event); if (pod) this.pick(pod); },
      onkeydown: (event) => this.key(event),
    }, this.spacer);
    const button = (label, title, work) => h('button', { class: 'small', type: 'button', title, 'aria-label': title, onclick: work }, label);
    this.mode = button('One row per Pod', 'Give every Pod its own row', () => {
      this.packed = !this.packed;
      this.mode.setAttribute('aria-pressed', String(!this.packed));
      this.arrange();
    });
    this.mode.setAttribute('aria-pressed', 'false');
    this.note = h('span', { class: 'note' });
    this.element = h('div', { class: 'chart' }, h('div', { class: 'chart-bar' }, this.mode, h('span', { class: 'spring' }),
      button('−', 'Show more time', () => this.zoom(2)), button('+', 'Show less time', () => this.zoom(0.5)),
      button('All', 'Show all time', () => { this.range = null; this.draw(); })), this.scroll, this.axis, this.note);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.scroll);
  }

  set(pods, now, note) {
    this.pods = [...pods].sort((a, b) => a.created - b.created || a.index - b.index);
    this.now = now;
    setText(this.note, note);
    this.arrange();
  }

  recolour() { this.draw(); }

  arrange() {
    if (this.packed) ({ lanes: this.lanes, count: this.laneCount } = packLanes(this.pods, this.now));
    else [this.lanes, this.laneCount] = [Int32Array.from(this.pods.keys()), this.pods.length];
    // The Pods of each lane in order of time, to find those that are visible.
    this.byLane = Array.from({ length: this.laneCount }, () => []);
    this.lanes.forEach((lane, at) => this.byLane[lane].push(this.pods[at]));
    const height = this.laneCount * LANE;
    this.spacer.style.height = `${height}px`;
    this.scroll.style.height = `${Math.max(LANE * 2, Math.min(height, 460)) + 2}px`;
    this.draw();
  }

  bounds() {
    if (this.range) return this.range;
    const from = this.pods[0]?.created ?? this.now;
    const to = this.pods.reduce((latest, pod) => Math.max(latest, pod.ended || this.now), from + SECOND);
    return [from, to];
  }

  draw() {
    const width = this.scroll.clientWidth, height = this.scroll.clientHeight;
    if (width <= 0 || !this.byLane) return;
    const c = colours();
    const [from, to] = this.bounds();
    const context = prepare(this.canvas, width, Math.max(1, height - 1));
    drawTimeAxis(context, c, from, to, width, 0, height);
    const axis = prepare(this.axis, width, 20);
    drawTimeAxis(axis, c, from, to, width, 0, 1);
    const x = (t) => LEFT + ((t - from) / (to - from)) * (width - LEFT - RIGHT);
    const first = Math.floor(this.scroll.scrollTop / LANE);
    const last = Math.min(this.laneCount, first + Math.ceil(height / LANE) + 1);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT - RIGHT, height);
    context.clip();
    for (let lane = first; lane < last; lane++) {
      const y = lane * LANE - this.scroll.scrollTop + 2;
      let drawnTo = -1;
      for (const pod of this.byLane[lane]) {
        const end = x(pod.ended || this.now);
        if (end < LEFT || x(pod.created) > width) continue;
        // Thousands of bars of less than a pixel: only those that change a pixel.
        if (end <= drawnTo && podState(pod) !== 'failed') continue;
        const start = x(pod.began || pod.ended || this.now);
        if (start - x(pod.created) > 1) {
          context.fillStyle = c.waiting;
          context.fillRect(x(pod.created), y + 4, start - x(pod.created), LANE - 12);
        }
        const barWidth = Math.max(2, end - start - 1);
        const state = podState(pod);
        context.fillStyle = c[state];
        context.fillRect(start, y, barWidth, LANE - 4);
        if (state === 'failed' && barWidth > 9) {
          context.fillStyle = c.mark;
          context.textBaseline = 'middle';
          context.textAlign = 'left';
          context.fillText('✕', start + 2, y + (LANE - 4) / 2 + 1);
        } else if (barWidth > 34 && pod.index >= 0) {
          context.fillStyle = state === 'succeeded' ? c.markDark : c.mark;
          context.textBaseline = 'middle';
          context.textAlign = 'left';
          context.fillText(String(pod.index), start + 4, y + (LANE - 4) / 2 + 1);
        }
        drawnTo = start + barWidth;
      }
    }
    context.restore();
    context.fillStyle = c.text;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let lane = first; lane < last; lane++) {
      if (this.packed ? lane % 5 === 0 : true) {
        const label = this.packed ? count(lane + 1) : this.pods[lane].index >= 0 ? String(this.pods[lane].index) : count(lane + 1);
        context.fillText(label, LEFT - 6, lane * LANE - this.scroll.scrollTop + LANE / 2);
      }
    }
  }

  podAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const lane = Math.floor((event.clientY - box.top + this.scroll.scrollTop) / LANE);
    const [from, to] = this.bounds();
    const perPixel = (to - from) / (box.width - LEFT - RIGHT);
    const t = from + (event.clientX - box.left - LEFT) * perPixel;
    let nearest = null, distance = 4 * perPixel;
    for (const pod of this.byLane?.[lane] ?? []) {
      const end = pod.ended || this.now;
      const away = t < pod.created ? pod.created - t : t > end ? t - end : 0;
      if (away < distance || (away === 0 && distance === 0)) [nearest, distance] = [pod, away];
    }
    return nearest;
  }

  hover(event) {
    if (event.pointerType === 'touch') return;
    const pod = this.podAt(event);
    if (pod) showTip(this.describe(pod), event.clientX, event.clientY);
    else hideTip();
  }

  zoom(factor) {
    const [from, to] = this.bounds();
    const centre = (from + to) / 2, half = Math.max(SECOND, ((to - from) / 2) * factor);
    this.range = [centre - half, centre + half];
    this.draw();
  }

  move(share) {
    const [from, to] = this.bounds();
    const by = (to - from) * share;
    this.range = [from + by, to + by];
    this.draw();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === '+') this.zoom(0.5);
    else if (event.key === '-') this.zoom(2);
    else if (event.key === 'ArrowLeft') this.move(-0.2);
    else if (event.key === 'ArrowRight') this.move(0.2);
    else return;
    event.preventDefault();
  }

  destroy() {
    this.observer.disconnect();
    hideTip();
  }
}

/** Lines of text about a Pod, for tooltips. */
export function podLines(pod, now) {
  const state = podState(pod);
  const exit = pod.exitCode !== null && state !== 'running' ? `exit code ${pod.exitCode}${pod.signal ? `, signal ${pod.signal}` : ''}` : '';
  return [
    pod.name,
    `${pod.index >= 0 ? `index ${pod.index}, ` : ''}attempt ${pod.attempt}: ${state}${exit ? `, ${exit}` : ''}${pod.reason && state !== 'succeeded' ? ` (${pod.reason})` : ''}`,
    pod.began ? `started ${dateTime(pod.began)}, ${state === 'running' ? 'for' : 'took'} ${duration((pod.ended || now) - pod.began)}` : '',
    pod.began && pod.began - pod.created >= SECOND ? `waited ${shortDuration(pod.began - pod.created)} before that` : '',
    pod.node ? `node ${pod.node}` : '',
    pod.message.slice(0, 200),
  ];
}
