// Falling lines: σ² at the question by chunk, the loss by step. Numbers stand beside them in words.

import { draw, fixed, make } from "./dom.js";

const HEIGHT = 190;
const MARGIN = { left: 34, right: 12, top: 10, bottom: 34 };
const DASHES = { nearest: "2 4", mmr: "8 4", sift: "none" }; // told apart without colours too

/** Draw σ² of each column, anew whenever the place changes its width; return what ends that. */
export function showVariances(place, columns) {
  const chart = make("div", { class: "chart" });
  place.replaceChildren(legend(columns), chart, table(columns));
  const observer = new ResizeObserver(() => chart.replaceChildren(lines(columns, chart.clientWidth)));
  observer.observe(chart);
  return () => observer.disconnect();
}

function lines(columns, width) {
  const all = Object.values(columns).flatMap((column) => column.question_variances);
  const nMost = Math.max(1, ...Object.values(columns).map((column) => column.chunks.length));
  const highest = Math.max(...all);
  const lowest = Math.max(0, Math.floor((Math.min(...all) / highest) * 10 - 0.2) / 10) * highest;
  const x = (i) => MARGIN.left + (i / nMost) * (width - MARGIN.left - MARGIN.right);
  const share = (value) => (highest > lowest ? (value - lowest) / (highest - lowest) : 0);
  const y = (value) => HEIGHT - MARGIN.bottom - share(value) * (HEIGHT - MARGIN.bottom - MARGIN.top);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, "aria-hidden": "true" });
  for (const part of [0, 0.5, 1]) {
    const value = lowest + part * (highest - lowest);
    svg.append(
      draw("line", { class: "grid", x1: x(0), x2: x(nMost), y1: y(value), y2: y(value) }),
      draw("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, fixed(value)),
    );
  }
  const every = Math.ceil(nMost / Math.max(1, Math.floor(width / 60)));
  for (let i = 0; i <= nMost; i += every) {
    svg.append(draw("text", { x: x(i), y: HEIGHT - 18, "text-anchor": "middle" }, String(i)));
  }
  svg.append(draw("text", { x: width / 2, y: HEIGHT - 3, "text-anchor": "middle" }, "chunks chosen"));
  for (const [name, column] of Object.entries(columns)) {
    const points = column.question_variances.map((value, i) => [x(i), y(value)]);
    svg.append(draw("polyline", { class: `line ${name}`, points: points.join(" "), "stroke-dasharray": DASHES[name] }));
    for (const [cx, cy] of points) svg.append(draw("circle", { class: `dot ${name}`, cx, cy, r: 3 }));
  }
  return svg;
}

function legend(columns) {
  return make(
    "ul",
    { class: "legend" },
    ...Object.entries(columns).map(([name, column]) => {
      const line = { class: `line ${name}`, points: "0,6 28,6", "stroke-dasharray": DASHES[name] };
      const swatch = draw("svg", { width: 28, height: 12, "aria-hidden": "true" }, draw("polyline", line));
      return make("li", {}, swatch, ` ${column.title}: ${fixed(column.question_variances.at(-1), 3)} left`);
    }),
  );
}

function table(columns) {
  const all = Object.values(columns);
  const n = Math.max(...all.map((column) => column.question_variances.length));
  const heads = all.map((column) => make("th", { scope: "col" }, column.title));
  const rows = Array.from({ length: n }, (_, i) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, String(i)),
      ...all.map(({ question_variances: values }) => make("td", {}, i < values.length ? fixed(values[i], 3) : "–")),
    ),
  );
  return make(
    "details",
    { class: "numbers" },
    make("summary", {}, "The curve in numbers"),
    make(
      "table",
      {},
      make("caption", {}, "σ² at the question by the number of chunks"),
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "chunks"), ...heads)),
      make("tbody", {}, ...rows),
    ),
  );
}

/** Redraw a small line of losses, and say in words what it shows. */
export function showLosses(svg, losses, nSteps) {
  const highest = Math.max(...losses, Number.EPSILON);
  const points = losses.map((loss, i) => [(i / Math.max(1, nSteps - 1)) * 100, 28 - (loss / highest) * 26]);
  svg.replaceChildren(draw("polyline", { class: "line sift", points: points.join(" ") }));
  svg.setAttribute("aria-label", `The loss went from ${fixed(losses[0])} to ${fixed(losses.at(-1))} nats a token.`);
}
