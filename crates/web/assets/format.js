// Numbers and times as text.

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

/** A duration in at most two units: 45s, 3m 20s, 2h 5m, 4d 3h. */
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined || Number.isNaN(milliseconds)) return '';
  const ms = Math.max(0, milliseconds);
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)}s`;
  const two = (big, bigName, small, smallName) => {
    const first = Math.floor(ms / big), second = Math.floor((ms % big) / small);
    return second ? `${first}${bigName} ${second}${smallName}` : `${first}${bigName}`;
  };
  if (ms < HOUR) return two(MINUTE, 'm', SECOND, 's');
  if (ms < DAY) return two(HOUR, 'h', MINUTE, 'm');
  return two(DAY, 'd', HOUR, 'h');
}

/** A duration in one unit, for narrow columns. */
export function shortDuration(milliseconds) {
  return duration(milliseconds).split(' ')[0];
}

const DIGITS = new Intl.NumberFormat('en-US');

export function count(number) {
  return DIGITS.format(number ?? 0);
}

/** Completions for each second, minute or hour: the unit in which the number is at least 1. */
export function rate(perSecond) {
  if (!(perSecond > 0)) return '';
  const [value, unit] = perSecond >= 1 ? [perSecond, 's'] : perSecond * 60 >= 1 ? [perSecond * 60, 'min'] : [perSecond * 3600, 'h'];
  return `${value >= 100 ? count(Math.round(value)) : value.toFixed(value >= 10 ? 0 : 1)}/${unit}`;
}

const pad = (number) => String(number).padStart(2, '0');

/** Local date and time: 2026-11-17 07:31:32. */
export function dateTime(instant) {
  if (!instant) return '';
  const d = new Date(instant);
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

export function clock(instant) {
  return dateTime(instant).slice(11);
}

/** Date and time in a named time zone, with its abbreviation. */
export function dateTimeIn(instant, zone) {
  const text = new Intl.DateTimeFormat('en-GB', {
    timeZone: zone, weekday: 'short', year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit',
    hourCycle: 'h23', timeZoneName: 'short',
  });
  return text.format(instant);
}

/** Bytes with a binary unit. */
export function bytes(number) {
  let value = number, at = 0;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at++; }
  return `${value >= 100 || at === 0 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

const SUFFIXES = {
  '': 1, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** The number of a Kubernetes quantity such as 500m or 2Gi; 0 if the text is none. */
export function quantity(text) {
  const match = /^([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)(n|u|m|k|[MGTPE]i?|Ki)?$/.exec(String(text ?? ''));
  return match ? Number(match[1]) * SUFFIXES[match[2] ?? ''] : 0;
}
