// The field of indexes: one cell for each index on a 2D canvas. Only the visible part is drawn.

import { cssColour, h, hideTip, setText, showTip } from './dom.js';
import { count } from './format.js';
import { FAILED, INDEX_STATES, RETRIED, RETRYING, RUNNING } from './model.js';

const SIZES = [2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28];
/** Without zoom, the field is not higher than this. */
const HEIGHT_AUTO = 400;
const GUTTER = 52;
/** Cells of this size have marks in addition to colours. */
const MARK_MIN = 10;

/** The pixel of a CSS colour, in the byte order of ImageData. */
function pixel(context, colour) {
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return new Uint32Array(context.getImageData(0, 0, 1, 1).data.buffer)[0];
}

export class Field {
  /** `describe(index)`: lines of text about an index; `pick(index)`: a click or Enter. */
  constructor({ describe, pick }) {
    Object.assign(this, { describe, pick });
    this.states = new Uint8Array(0);
    this.zoom = 0;
    this.cursor = -1;
    this.canvas = h('canvas', { class: 'field-canvas', 'aria-hidden': 'true' });
    this.spacer = h('div', { class: 'field-spacer' }, this.canvas);
    this.live = h('p', { class: 'field-live', 'aria-live': 'polite' });
    this.scroll = h('div', {
      class: 'field-scroll', tabindex: '0', role: 'application', 'aria-roledescription': 'field of indexes',
      'aria-label': 'Field of indexes. Arrow keys move between indexes, f goes to the next failed index, Enter selects.',
      onscroll: () => this.draw(), onkeydown: (event) => this.key(event), onblur: hideTip,
      onpointermove: (event) => this.hover(event), onpointerleave: hideTip,
      onclick: (event) => { const at = this.indexAt(event); if (at >= 0) { this.moveTo(at); this.pick(at); } },
    }, this.spacer);
    this.zoomOut = h('button', { class: 'small', type: 'button', 'aria-label': 'Smaller cells', title: 'Smaller cells', onclick: () => this.setZoom(-1) }, '−');
    this.zoomIn = h('button', { class: 'small', type: 'button', 'aria-label': 'Larger cells', title: 'Larger cells', onclick: () => this.setZoom(1) }, '+');
    this.element = h('div', { class: 'field' }, this.scroll, h('div', { class: 'field-foot' }, this.live, h('span', { class: 'spring' }), this.zoomOut, this.zoomIn));
    this.observer = new ResizeObserver(() => this.layout());
    this.observer.observe(this.scroll);
    this.palette = null;
  }

  setStates(states) {
    const resized = states.length !== this.states.length;
    this.states = states;
    if (resized) this.layout();
    else this.draw();
    if (this.cursor >= 0) this.tell();
  }

  /** After a change of the theme. */
  recolour() {
    this.palette = null;
    this.draw();
  }

  setZoom(step) {
    const at = SIZES.indexOf(this.cell) + step;
    if (at < 0 || at >= SIZES.length) return;
    this.zoom = SIZES[at];
    this.layout();
    if (this.cursor >= 0) this.reveal();
  }

  layout() {
    const size = this.states.length;
    const width = this.scroll.clientWidth - GUTTER - 8;
    if (width <= 0) return;
    const columnsOf = (cell) => {
      const fit = Math.max(1, Math.floor(width / cell));
      // Round numbers of columns make rows easy to read.
      const round = fit >= 20 ? 10 : fit >= 10 ? 5 : 1;
      return Math.floor(fit / round) * round;
    };
    const fits = SIZES.filter((cell) => Math.ceil(size / columnsOf(cell)) * cell <= HEIGHT_AUTO + 20);
    this.cell = this.zoom || fits[fits.length - 1] || SIZES[0];
    this.columns = columnsOf(this.cell);
    this.rowCount = Math.ceil(size / this.columns);
    const height = this.rowCount * this.cell;
    this.viewHeight = Math.max(this.cell, Math.min(HEIGHT_AUTO + 20, height));
    this.spacer.style.height = `${height + 10}px`;
    this.scroll.style.height = `${this.viewHeight + 16}px`;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round((GUTTER + this.columns * this.cell + 4) * scale);
    this.canvas.height = Math.round((this.viewHeight + 10) * scale);
    this.canvas.style.width = `${this.canvas.width / scale}px`;
    this.canvas.style.height = `${this.canvas.height / scale}px`;
    this.zoomOut.disabled = this.cell === SIZES[0];
    this.zoomIn.disabled = this.cell === SIZES[SIZES.length - 1];
    this.draw();
  }

  draw() {
    if (!this.columns || this.states.length === 0) return;
    const context = this.canvas.getContext('2d');
    if (!this.palette) {
      const one = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
      this.palette = INDEX_STATES.map((state) => pixel(one, cssColour(`--index-${state.id}`)));
      this.markColours = { light: cssColour('--mark'), dark: cssColour('--mark-dark') };
      this.textColour = cssColour('--faint');
      this.cursorColour = cssColour('--text');
    }
    const scale = window.devicePixelRatio || 1;
    const { columns, cell, states, palette } = this;
    const firstRow = Math.floor(this.scroll.scrollTop / cell);
    const lastRow = Math.min(this.rowCount, firstRow + Math.ceil(this.viewHeight / cell) + 1);
    this.firstRow = firstRow;
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    // The edges of cells in device pixels.
    const edge = (n) => Math.round(n * cell * scale);
    const width = edge(columns), height = Math.min(this.canvas.height, edge(lastRow - firstRow));
    if (width === 0 || height === 0) return;
    const gap = cell >= 6 ? Math.max(1, Math.round(scale)) : cell >= 5 ? 1 : 0;
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let row = firstRow; row < lastRow; row++) {
      const top = edge(row - firstRow), bottom = Math.min(height, edge(row - firstRow + 1) - gap);
      if (top >= bottom) continue;
      const start = row * columns, end = Math.min(states.length, start + columns);
      const line = top * width;
      for (let at = start; at < end; at++) {
        pixels.fill(palette[states[at]], line + edge(at - start), line + edge(at - start + 1) - gap);
      }
      for (let y = top + 1; y < bottom; y++) pixels.copyWithin(y * width, line, line + width);
    }
    context.putImageData(image, Math.round(GUTTER * scale), 0);
    context.save();
    context.scale(scale, scale);
    this.drawLabels(context, firstRow, lastRow);
    if (cell >= MARK_MIN) {
      this.drawMarks(context, firstRow, lastRow, this.markColours.light, [FAILED, RUNNING]);
      this.drawMarks(context, firstRow, lastRow, this.markColours.dark, [RETRYING, RETRIED]);
    }
    if (this.cursor >= 0) this.drawCursor(context, firstRow);
    context.restore();
  }

  /** The first index of some rows, at the left. */
  drawLabels(context, firstRow, lastRow) {
    const step = Math.max(1, Math.ceil(18 / this.cell));
    context.fillStyle = this.textColour;
    context.font = '11px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';
    context.textAlign = 'right';
    context.textBaseline = 'top';
    for (let row = Math.ceil(firstRow / step) * step; row < lastRow; row += step) {
      const y = (row - firstRow) * this.cell + Math.max(0, (this.cell - 11) / 2);
      context.fillText(count(row * this.columns), GUTTER - 8, y);
    }
  }

  /** Marks tell the states apart without colours. */
  drawMarks(context, firstRow, lastRow, colour, marked) {
    const { cell, columns, states } = this;
    const end = Math.min(states.length, lastRow * columns);
    const inner = cell - 1, pad = inner * 0.3;
    context.strokeStyle = colour;
    context.lineWidth = Math.max(1.2, cell / 10);
    context.beginPath();
    for (let at = firstRow * columns; at < end; at++) {
      const state = states[at];
      if (state !== marked[0] && state !== marked[1]) continue;
      const x = GUTTER + (at % columns) * cell, y = (Math.floor(at / columns) - firstRow) * cell;
      if (state === FAILED) {
        context.moveTo(x + pad, y + pad);
        context.lineTo(x + inner - pad, y + inner - pad);
        context.moveTo(x + inner - pad, y + pad);
        context.lineTo(x + pad, y + inner - pad);
      } else if (state === RUNNING) {
        context.moveTo(x + pad, y + inner / 2);
        context.lineTo(x + inner - pad, y + inner / 2);
      } else if (state === RETRYING) {
        context.moveTo(x + pad, y + inner / 2);
        context.lineTo(x + inner - pad, y + inner / 2);
        context.moveTo(x + inner / 2, y + pad);
        context.lineTo(x + inner / 2, y + inner - pad);
      } else {
        context.moveTo(x + pad, y + inner / 2);
        context.lineTo(x + inner * 0.45, y + inner - pad);
        context.lineTo(x + inner - pad, y + pad);
      }
    }
    context.stroke();
  }

  drawCursor(context, firstRow) {
    const x = GUTTER + (this.cursor % this.columns) * this.cell;
    const y = (Math.floor(this.cursor / this.columns) - firstRow) * this.cell;
    context.strokeStyle = this.cursorColour;
    context.lineWidth = 2;
    const grow = this.cell < 6 ? 3 : 1;
    context.strokeRect(x - grow, y - grow, this.cell + 2 * grow - 1, this.cell + 2 * grow - 1);
  }

  indexAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - GUTTER) / this.cell);
    const row = Math.floor((event.clientY - box.top) / this.cell) + this.firstRow;
    const at = row * this.columns + column;
    return column >= 0 && column < this.columns && row >= 0 && at < this.states.length ? at : -1;
  }

  hover(event) {
    if (event.pointerType === 'touch') return;
    const at = this.indexAt(event);
    if (at < 0) hideTip();
    else showTip(this.describe(at), event.clientX, event.clientY);
  }

  reveal() {
    const top = Math.floor(this.cursor / this.columns) * this.cell;
    const { scrollTop } = this.scroll;
    if (top < scrollTop) this.scroll.scrollTop = top;
    else if (top + this.cell > scrollTop + this.viewHeight) this.scroll.scrollTop = top + this.cell - this.viewHeight;
  }

  moveTo(at) {
    this.cursor = Math.max(0, Math.min(this.states.length - 1, at));
    this.reveal();
    this.draw();
    this.tell();
  }

  tell() { setText(this.live, this.describe(this.cursor).filter(Boolean).join(' · ')); }

  /** The next index that has failed or is tried again, after the cursor; the search continues at the start. */
  nextFailed() {
    const { states, cursor } = this;
    for (let n = 1; n <= states.length; n++) {
      const at = (cursor + n + states.length) % states.length;
      if (states[at] === FAILED || states[at] === RETRYING) return at;
    }
    return -1;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.states.length === 0) return;
    const steps = {
      ArrowRight: 1, l: 1, ArrowLeft: -1, h: -1, ArrowDown: this.columns, j: this.columns, ArrowUp: -this.columns, k: -this.columns,
      PageDown: 10 * this.columns, PageUp: -10 * this.columns, Home: -Infinity, End: Infinity,
    };
    if (event.key in steps) this.moveTo(this.cursor < 0 ? 0 : this.cursor + steps[event.key]);
    else if (event.key === 'f') { const at = this.nextFailed(); if (at >= 0) this.moveTo(at); }
    else if (event.key === 'Enter' && this.cursor >= 0) this.pick(this.cursor);
    else if (event.key === '+' || event.key === '-') this.setZoom(event.key === '+' ? 1 : -1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  destroy() {
    this.observer.disconnect();
    hideTip();
  }
}
