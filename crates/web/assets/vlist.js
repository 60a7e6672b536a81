// A list of thousands of rows: only the visible ones are elements.

import { h, setAttribute } from './dom.js';

const EXTRA_ROWS = 6;

/**
 * `makeRow()` returns {element, ...}; `fillRow(row, item)` shows an item in it; `open(item)` is Enter or a click;
 * `keyOf(item)` identifies an item so that the selection follows it; `rowHeight(item)` in pixels, without an item that of the
 * lowest row; it is read again on resize.
 */
export class VirtualList {
  constructor({ label, rowHeight, makeRow, fillRow, open = null, keyOf = (item) => item.uid, empty = '' }) {
    Object.assign(this, { rowHeight, makeRow, fillRow, open, keyOf });
    this.items = [];
    /** Where each item begins, and where the last one ends. */
    this.tops = new Float64Array(1);
    this.rows = [];
    this.selected = -1;
    this.selectedKey = null;
    this.spacer = h('div', { class: 'vlist-spacer', role: 'presentation' });
    this.empty = h('p', { class: 'empty', hidden: true }, empty);
    this.element = h('div', {
      class: 'vlist', role: 'listbox', tabindex: '0', 'aria-label': label, onscroll: () => this.draw(false), onkeydown: (event) => this.key(event),
    }, this.empty, this.spacer);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.element);
    this.height = rowHeight();
  }

  resize() {
    this.height = this.rowHeight();
    // The header above the list leaves space for the scroll bar.
    this.element.parentElement?.style.setProperty('--scrollbar', `${this.element.offsetWidth - this.element.clientWidth - 2}px`);
    this.measure();
    this.draw();
  }

  measure() {
    this.tops = new Float64Array(this.items.length + 1);
    this.items.forEach((item, at) => { this.tops[at + 1] = this.tops[at] + this.rowHeight(item); });
    const height = `${this.tops[this.items.length]}px`;
    if (this.spacer.style.height !== height) this.spacer.style.height = height;
  }

  /** The item at this height. */
  itemAt(y) {
    let low = 0, high = this.items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tops[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  setEmpty(text) {
    if (this.empty.textContent !== text) this.empty.textContent = text;
  }

  setItems(items) {
    this.items = items;
    this.selected = this.selectedKey === null ? -1 : items.findIndex((item) => this.keyOf(item) === this.selectedKey);
    this.empty.hidden = items.length > 0;
    this.measure();
    this.draw();
  }

  /** Shows the visible items. `all`: fill rows again that show the same item as before. */
  draw(all = true) {
    const first = Math.max(0, this.itemAt(this.element.scrollTop) - EXTRA_ROWS);
    const wanted = Math.ceil(this.element.clientHeight / this.height) + 2 * EXTRA_ROWS;
    const last = Math.min(this.items.length, first + wanted);
    while (this.rows.length < Math.min(wanted, this.items.length)) this.addRow();
    const pool = this.rows.length;
    const used = new Set();
    let active = null;
    for (let at = first; at < last; at++) {
      // An item keeps its row while it is visible: scrolling by a line fills one row.
      const row = this.rows[at % pool];
      used.add(row);
      const y = this.tops[at];
      if (row.at !== at || row.y !== y) {
        [row.at, row.y] = [at, y];
        row.element.style.transform = `translateY(${y}px)`;
        row.element.setAttribute('aria-posinset', at + 1);
      }
      setAttribute(row.element, 'aria-setsize', String(this.items.length));
      setAttribute(row.element, 'aria-selected', String(at === this.selected));
      if (at === this.selected) active = row;
      const item = this.items[at];
      if (all || row.item !== item || row.element.hidden) {
        row.item = item;
        this.fillRow(row, item);
      }
      row.element.hidden = false;
    }
    for (const row of this.rows) if (!used.has(row)) row.element.hidden = true;
    setAttribute(this.element, 'aria-activedescendant', active?.element.id);
  }

  addRow() {
    const row = this.makeRow();
    row.element.setAttribute('role', 'option');
    row.element.classList.add('vrow');
    row.element.id = `row-${VirtualList.next++}`;
    row.element.addEventListener('click', (event) => {
      this.select(row.at);
      // A link handles its own click; modified clicks open tabs.
      if (this.open && !event.defaultPrevented && !event.target.closest('a,button') && !getSelection().toString()) this.open(row.item);
    });
    this.rows.push(row);
    this.spacer.append(row.element);
  }

  select(at) {
    if (this.items.length === 0) return;
    this.selected = Math.max(0, Math.min(this.items.length - 1, at));
    this.selectedKey = this.keyOf(this.items[this.selected]);
    const [top, end] = [this.tops[this.selected], this.tops[this.selected + 1]], { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (end > scrollTop + clientHeight) this.element.scrollTop = end - clientHeight;
    this.draw();
  }

  /** Arrows, j and k, Page keys, Home, End and Enter. Returns whether the key was used. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return false;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) this.select(this.selected < 0 && steps[event.key] < 0 ? 0 : this.selected + steps[event.key]);
    else if (event.key === 'Enter' && this.open && this.selected >= 0 && !event.target.closest?.('a,button')) this.open(this.items[this.selected]);
    else return false;
    event.preventDefault();
    return true;
  }

  destroy() { this.observer.disconnect(); }
}
VirtualList.next = 1;
