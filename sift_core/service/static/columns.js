// What each method chose, side by side; what an earlier chunk says already is struck through.

import { counted, fixed, make, parted, titled } from "./dom.js";

const STOPS = {
  pool_exhausted: "There are no more candidates.",
  alpha: "One more would not have paid for its compute.",
  max_variance: "The variance is as low as was asked for.",
  min_gain: "One more would have told next to nothing.",
};

export function showColumns(place, columns) {
  place.replaceChildren(...Object.entries(columns).map(([name, column]) => drawn(name, column)));
}

function drawn(name, column) {
  const { chunks, n_copies: nCopies, n_redundant: nRedundant } = column;
  const id = `column-${name}`;
  const copies = nCopies ? `, ${nCopies} of them ${nCopies === 1 ? "a copy" : "copies"}` : "";
  const alike = nRedundant > nCopies ? `, ${nRedundant - nCopies} much alike` : "";
  const stop = STOPS[column.stop_reason];
  return make(
    "article",
    { class: `column ${name}`, "aria-labelledby": id },
    make("h3", { id }, column.title[0].toUpperCase() + column.title.slice(1)),
    make(
      "p",
      { class: "note" },
      `${counted(chunks.length, "chunk")}${copies}${alike}; ` +
        `${(100 * column.explained).toFixed(0)}\u00a0% of σ² is gone.${stop ? ` ${stop}` : ""}`,
    ),
    make("ol", {}, ...chunks.map(item)),
  );
}

function item(chunk, i) {
  const { near_duplicate_of: repeat, is_copy: isCopy } = chunk;
  const [last, path] = parted(chunk.title);
  const title = titled(last, chunk.url);
  const { gain, alone } = chunk.information;
  const told = `tells ${fixed(gain)} nats${i === 0 ? "" : ` (alone ${fixed(alone)})`}`;
  return make(
    "li",
    isCopy ? { class: "copy" } : {},
    make("p", { class: "title" }, isCopy ? make("s", {}, title) : title),
    path && make("p", { class: "note path" }, path),
    repeat &&
      make(
        "p",
        { class: "repeat" },
        `${isCopy ? "A copy of" : "Much like"} ${repeat.rank} (cosine ${fixed(repeat.cosine)})`,
      ),
    folded(chunk.text, isCopy),
    make("p", { class: "note" }, `similarity ${fixed(chunk.similarity)} · ${told}`),
  );
}

/** Return a text of which the first lines are shown, the rest on demand. */
function folded(text, isCopy) {
  const body = text.replace(/^\s*#+ .*\n/, "").trim() || text; // its heading is in the title
  const start = body.slice(0, 240).replace(/\s+/g, " ");
  const shown = make(isCopy ? "s" : "span", { class: "start" }, start);
  return make(
    "details",
    {},
    make("summary", {}, shown, make("span", { class: "less" }, "Fold the text")),
    make("div", { class: "whole" }, text),
  );
}
