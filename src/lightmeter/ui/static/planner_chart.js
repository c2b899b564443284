// The chart of a run in the planner: credits left against the cap, with the forecast as a band.

const CHART = { width: 560, height: 170, left: 52, right: 12, top: 10, bottom: 26 };

/** Return a duration in seconds with a fitting unit: `42 s`, `3 min`, `2.5 h`. */
function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** Return the axis values 0 … `most` at round steps, at most `count` steps. */
function ticks(most, count) {
  const rough = Math.max(most / count, 1e-9);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, n) => n * step);
}

/** Return the chart of credits left over time as an SVG element with a text for screen readers. */
function burnDownChart({ cap, points, eta_s, remaining }) {
  const last = points.at(-1);
  const most = cap ?? last[1] + last[2] + (remaining.high ?? remaining.low);
  const end = last[0] + (eta_s?.[1] ?? 0);
  const { width, height, left, right, top, bottom } = CHART;
  const x = (seconds) => left + (seconds / Math.max(end, 1)) * (width - left - right);
  const y = (credits) => top + (1 - Math.max(credits, 0) / Math.max(most, 1)) * (height - top - bottom);
  const path = (pairs) => pairs.map(([s, c], n) => `${n ? "L" : "M"}${x(s).toFixed(1)},${y(c).toFixed(1)}`).join("");
  const spent = points.map(([seconds, paid]) => [seconds, most - paid]);
  const reserved = points.map(([seconds, paid, held]) => [seconds, most - paid - held]);
  const now = most - last[1];
  const parts = [
    ...ticks(most, 4).map((credits) => [
      svg("line", { class: "lm-grid-line", x1: left, x2: width - right, y1: y(credits), y2: y(credits) }),
      svg("text", { x: left - 6, y: y(credits) + 4, "text-anchor": "end" }, credits.toLocaleString("en-US")),
    ]),
    ...ticks(Math.max(end, 1), 5).map((seconds) =>
      svg("text", { x: x(seconds), y: height - 8, "text-anchor": "middle" }, duration(seconds))),
    svg("path", { class: "lm-held", d: `${path(spent)}${path([...reserved].reverse()).replace("M", "L")}Z` }),
    eta_s && svg("path", { class: "lm-band", d: `${path([[last[0], now], [last[0] + eta_s[0], now - remaining.low],
      [last[0] + eta_s[1], now - remaining.low], [last[0] + eta_s[1], now - (remaining.high ?? now)],
      [last[0] + eta_s[0], now - (remaining.high ?? now)]])}Z` }),
    svg("path", { class: "lm-spent", d: path(spent) }),
    svg("circle", { class: "lm-now", cx: x(last[0]), cy: y(now), r: 3.5 }),
  ];
  const label = `Credits left over time: ${Math.round(now).toLocaleString("en-US")} of ${most.toLocaleString("en-US")}`;
  return svg("svg", { class: "lm-burn", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, parts);
}
