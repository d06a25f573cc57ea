// Round ticks for axes: of values from 0, and of times.

const S = 1_000;
const MIN = 60 * S;
const H = 60 * MIN;
const DAY = 24 * H;
const TIME_STEPS = [S, 5 * S, 15 * S, 30 * S, MIN, 2 * MIN, 5 * MIN, 15 * MIN, 30 * MIN, H, 3 * H, 6 * H, 12 * H, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY];

// Returns round values from 0 to at least `most`, each 1, 2 or 5 times a power of ten apart. `least` is the smallest step.
export function valueTicks(most, least = 0, count = 4) {
  const rough = most > 0 ? Math.max(most / count, least) : 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const last = Math.max(1, Math.ceil(most / step - 1e-9));
  return Array.from({ length: last + 1 }, (_, at) => Number((at * step).toPrecision(6)));
}

// Returns a span of at least `ms` that begins at a round distance before now, and its ticks as distances from now.
export function spanTicks(ms, count = 5) {
  const step = TIME_STEPS.find((each) => each * count >= ms) ?? TIME_STEPS.at(-1);
  const last = Math.max(1, Math.ceil(ms / step - 1e-9));
  return { spanMs: last * step, ticks: Array.from({ length: last + 1 }, (_, at) => (last - at) * step) };
}

// Returns round moments of the local clock between two times: whole minutes, hours or days.
export function momentTicks(firstMs, lastMs, count = 6) {
  const step = TIME_STEPS.find((each) => each * count >= lastMs - firstMs) ?? TIME_STEPS.at(-1);
  const zoneMs = new Date(firstMs).getTimezoneOffset() * MIN;
  const ticks = [];
  for (let ms = Math.ceil((firstMs - zoneMs) / step) * step + zoneMs; ms <= lastMs; ms += step) ticks.push(ms);
  return { step, ticks };
}

export const isDayStep = (step) => step >= DAY;
