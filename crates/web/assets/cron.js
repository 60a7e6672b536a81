// The next times of a CronJob: five fields, a descriptor such as @daily, or "@every 1h30m".
// A schedule is due at every minute whose local time matches. Hours that a clock change skips do not occur; hours that it
// repeats occur twice.

const NAMES = {
  month: ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'],
  day: ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'],
};
const FIELDS = [
  { low: 0, high: 59 }, { low: 0, high: 23 }, { low: 1, high: 31 },
  { low: 1, high: 12, names: NAMES.month }, { low: 0, high: 6, names: NAMES.day },
];
const DESCRIPTORS = {
  '@yearly': '0 0 1 1 *', '@annually': '0 0 1 1 *', '@monthly': '0 0 1 * *', '@weekly': '0 0 * * 0',
  '@daily': '0 0 * * *', '@midnight': '0 0 * * *', '@hourly': '0 * * * *',
};
const UNITS = { ns: 1e-6, us: 1e-3, '\u00b5s': 1e-3, '\u03bcs': 1e-3, ms: 1, s: 1000, m: 60000, h: 3600000 };
const MINUTE = 60000;
const DAY = 86400000;
/** February 29 occurs after at most eight years. */
const DAYS_MAX = 9 * 366;

function number(text, field) {
  const named = field.names ? field.names.indexOf(text.toLowerCase()) : -1;
  if (named >= 0) return named + field.low;
  if (!/^\+?[0-9]+$/.test(text)) throw new Error(`"${text}" is not a number`);
  return Number(text);
}

/** A set of numbers, and whether the field is written as a star. */
function readField(text, field) {
  const set = new Set();
  let star = false;
  for (const part of text.split(',').filter((part) => part !== '')) {
    const [range, stepText, more] = part.split('/');
    if (more !== undefined) throw new Error(`"${part}" has too many slashes`);
    const [first, last, third] = range.split('-');
    let start, end, isStar = false;
    if (first === '*' || first === '?') {
      [start, end, isStar] = [field.low, field.high, true];
    } else {
      if (third !== undefined) throw new Error(`"${part}" has too many hyphens`);
      start = number(first, field);
      end = last === undefined ? start : number(last, field);
    }
    let step = 1;
    if (stepText !== undefined) {
      step = number(stepText, {});
      if (last === undefined) end = field.high;
      if (step > 1) isStar = false;
    }
    if (start < field.low || end > field.high || start > end || step === 0) throw new Error(`"${part}" is out of range`);
    for (let n = start; n <= end; n += step) set.add(n);
    star ||= isStar;
  }
  return { set, star };
}

/** Milliseconds of a duration such as 1h30m. */
export function readDuration(text) {
  let rest = text.replace(/^\+/, '');
  if (rest === '0') return 0;
  let total = 0;
  while (rest !== '') {
    const match = /^([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)/.exec(rest);
    if (!match) throw new Error(`"${text}" is not a duration`);
    total += Number(match[1]) * UNITS[match[2]];
    rest = rest.slice(match[0].length);
  }
  return total;
}

/** Reads a schedule. `timeZone`: spec.timeZone, if there is one. Throws an Error with a sentence. */
export function readSchedule(text, timeZone) {
  let zone = timeZone || '';
  let rest = text;
  const written = /^(?:CRON_)?TZ=(\S*) (.*)$/.exec(text);
  if (written) {
    zone ||= written[1];
    rest = written[2].trim();
  }
  if (zone === '' || zone === 'Local') zone = 'UTC';
  if (rest.startsWith('@every ')) {
    return { zone, every: Math.max(1000, Math.floor(readDuration(rest.slice(7)) / 1000) * 1000) };
  }
  if (rest.startsWith('@')) {
    if (!DESCRIPTORS[rest]) throw new Error(`"${rest}" is not a known schedule`);
    rest = DESCRIPTORS[rest];
  }
  const parts = rest.trim().split(/\s+/);
  if (parts.length !== 5) throw new Error(`a schedule has 5 fields, this one has ${parts.length}`);
  const [minutes, hours, days, months, weekdays] = parts.map((part, at) => readField(part, FIELDS[at]));
  return { zone, minutes, hours, days, months, weekdays };
}

const formats = new Map();

/** Local time at an instant, as if it were UTC: the difference to the instant is the offset. */
function localAt(instant, zone) {
  if (zone === 'UTC') return instant;
  let format = formats.get(zone);
  if (!format) {
    format = new Intl.DateTimeFormat('en-US', {
      timeZone: zone, hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric',
      hour: 'numeric', minute: 'numeric', second: 'numeric',
    });
    formats.set(zone, format);
  }
  const part = {};
  for (const { type, value } of format.formatToParts(instant)) part[type] = Number(value);
  return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second);
}

function matchesDay(schedule, local) {
  const date = new Date(local);
  if (!schedule.months.set.has(date.getUTCMonth() + 1)) return false;
  const inMonth = schedule.days.set.has(date.getUTCDate());
  const inWeek = schedule.weekdays.set.has(date.getUTCDay());
  // Both fields restrict the day: either one is sufficient.
  return schedule.days.star || schedule.weekdays.star ? inMonth && inWeek : inMonth || inWeek;
}

/** The first `count` times after the instant `after` (milliseconds). `last`: the time from which "@every" counts. */
export function nextTimes(schedule, after, count, last = after) {
  const times = [];
  if (schedule.every) {
    const passed = Math.max(0, Math.floor((after - last) / schedule.every));
    for (let n = 1; n <= count; n++) times.push(last + (passed + n) * schedule.every);
    return times;
  }
  const { zone } = schedule;
  const minutes = [...schedule.minutes.set].sort((a, b) => a - b);
  const hours = [...schedule.hours.set].sort((a, b) => a - b);
  let day = Math.floor(localAt(after, zone) / DAY) * DAY;
  for (let n = 0; n < DAYS_MAX && times.length < count; n++, day += DAY) {
    if (!matchesDay(schedule, day)) continue;
    // The offsets around this day. They differ on the day of a clock change.
    const offsets = [-14, 0, 6, 12, 18, 24, 38].map((hour) => {
      const instant = day + hour * 3600000;
      return localAt(instant, zone) - instant;
    });
    const found = new Set();
    for (const offset of new Set(offsets)) {
      for (const hour of hours) {
        for (const minute of minutes) {
          const local = day + hour * 3600000 + minute * MINUTE;
          const instant = local - offset;
          if (instant > after && (zone === 'UTC' || localAt(instant, zone) === local)) found.add(instant);
          if (new Set(offsets).size === 1 && found.size >= count) break;
        }
        if (new Set(offsets).size === 1 && found.size >= count) break;
      }
    }
    times.push(...[...found].sort((a, b) => a - b));
  }
  return times.slice(0, count);
}
