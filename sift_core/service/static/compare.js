// The second tab: what nearest neighbours, MMR, hybrid search and SIFT found and missed.

import { counted, folded, listed, make, placed } from "./dom.js";
import { telling } from "./passages.js";
import { search } from "./service.js";

const SHORT = { nearest: "Nearest", mmr: "MMR", hybrid: "Hybrid", sift: "SIFT" };
const HOW = {
  nearest: "takes the passages nearest to the question by embedding.",
  mmr: "takes near passages that are unlike the earlier ones.",
  hybrid: "joins the ranks by embedding and by words.",
  sift: "takes the passages that together say most about the question.",
};

/** Fill the tab for a question. */
export async function showComparison(place, question, nSelect, signal) {
  place.replaceChildren(make("p", { class: "state", role: "status" }, "Comparing …"));
  const { columns, candidates, rare_words: rare } = await search(question, nSelect, { compare: true, signal });
  signal.throwIfAborted();
  const words = rare.filter(({ word }) => telling([word]).length);
  const union = unionOf(columns);
  place.replaceChildren(
    make("h2", {}, question),
    make(
      "p",
      { class: "note" },
      `Each method chose at most ${nSelect} of the same ${counted(candidates.length, "candidate")}. ` +
        `Together they chose ${counted(union.length, "passage")}.`,
    ),
    make("ul", { class: "methods" }, ...Object.entries(columns).map((entry) => method(entry, union, words))),
    ...(words.length ? [wordTable(columns, words)] : []),
    passageTable(columns, union),
  );
}

/** Return each passage that any method chose, with its rank by method; those of all methods first. */
function unionOf(columns) {
  const union = new Map();
  for (const [name, { chunks }] of Object.entries(columns)) {
    for (const chunk of chunks) {
      if (!union.has(chunk.candidate)) union.set(chunk.candidate, { chunk, ranks: {} });
      union.get(chunk.candidate).ranks[name] ??= chunk.rank;
    }
  }
  const order = ({ ranks }) => [-Object.keys(ranks).length, ranks.sift ?? Infinity, Math.min(...Object.values(ranks))];
  return [...union.values()].sort((a, b) => {
    const [one, other] = [order(a), order(b)];
    const i = one.findIndex((value, at) => value !== other[at]);
    return i < 0 ? 0 : one[i] - other[i];
  });
}

/** Return in sentences what a method found and missed. */
function method([name, { title, chunks, n_redundant: nRedundant }], union, words) {
  const own = union.filter(({ ranks }) => name in ranks);
  const alone = own.filter(({ ranks }) => Object.keys(ranks).length === 1);
  const missed = union.length - own.length;
  const lacks = words.filter(({ n_candidates: n, ranks }) => n && !ranks[name].length).map(({ word }) => `“${word}”`);
  const repeats = nRedundant ? `${counted(nRedundant, "passage")} nearly ${nRedundant === 1 ? "repeats" : "repeat"} an earlier one.` : "None repeats another.";
  return make(
    "li",
    { class: name },
    make("h3", {}, title[0].toUpperCase() + title.slice(1)),
    make("p", { class: "note" }, `It ${HOW[name]}`),
    make("p", {}, `Found ${counted(chunks.length, "passage")}, ${alone.length || "none"} that no other method found. Missed ${missed || "none"}.`),
    make("p", {}, repeats),
    words.some(({ n_candidates: n }) => n) &&
      make("p", {}, lacks.length ? `Missed the rare ${lacks.length === 1 ? "word" : "words"} ${listed(lacks)}.` : "Found every rare word of the question."),
  );
}

function wordTable(columns, words) {
  return table(
    "Rare words of the question, and the passages that have them",
    "Word",
    columns,
    words.map(({ word, n_candidates: n, ranks }) => [
      make("div", {}, word, make("p", { class: "note" }, n ? `in ${counted(n, "candidate")}` : "in no candidate")),
      (name) => ranks[name].join(", "),
    ]),
  );
}

function passageTable(columns, union) {
  return table(
    "Who found which passage, and as which",
    "Passage",
    columns,
    union.map(({ chunk, ranks }) => {
      const { heading, place } = placed(chunk);
      const about = make("div", {}, make("p", { class: "title" }, heading), make("p", { class: "note place" }, place), folded(chunk.text));
      return [about, (name) => ranks[name]];
    }),
  );
}

function table(caption, first, columns, rows) {
  const names = Object.keys(columns);
  const heads = names.map((name) => make("th", { scope: "col", class: name }, SHORT[name] ?? name));
  const cell = (value) => (value ? make("td", {}, String(value)) : make("td", { class: "missed" }, make("span", { "aria-label": "missed" }, "–")));
  return make(
    "table",
    {},
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, first), ...heads)),
    make("tbody", {}, ...rows.map(([head, value]) => make("tr", {}, make("th", { scope: "row" }, head), ...names.map((name) => cell(value(name)))))),
  );
}
