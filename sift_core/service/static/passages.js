// The passages beside an answer: file, place, text, and the reason in plain words.

import { folded, listed, make, placed, titled } from "./dom.js";

const ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split(" ");
// English words that say nothing about a subject. The service goes by rarity alone, so that these
// stay in small collections.
const COMMON = new Set(
  ("a about all an and any are as at be been but by can do does for from had has have how i if in into is it its " +
    "me more most much my no not of on one only or our so some such than that the their them then there these they " +
    "this to was we were what when where which who why will with would you your").split(" "),
);

/** Return the words that say something about why a passage was chosen. */
export const telling = (words = []) => words.filter((word) => !COMMON.has(word));
const quoted = (words) => listed(words.map((word) => `“${word}”`));
const passage = (rank) => (rank <= 10 ? `the ${ORDINALS[rank - 1]} passage` : `passage ${rank}`);

/** Return why a passage was chosen, as one sentence. */
export function reasonOf({ shares, reached_from: from, reached_by: by, is_near: isNear }) {
  if (isNear) return "Is among the nearest, but hardly about the question.";
  const links = telling(by);
  if (from && links.length) return `Names ${quoted(links)}, which ${passage(from)} mentions.`;
  const shared = telling(shares);
  if (shared.length) return `Has ${quoted(shared)} from the question.`;
  if (from) return `Goes on from ${passage(from)}.`;
  return "Is close to the question in meaning.";
}

/** Return a list of passages; `prefix` makes their ids, to which sentences link. */
export function listPassages(passages, prefix) {
  return make("ol", { class: "passages" }, ...passages.map((one, i) => card(one, `${prefix}-${i + 1}`)));
}

function card(one, id) {
  const { heading, place } = placed(one);
  return make(
    "li",
    { id, tabindex: "-1", class: "passage" },
    make("p", { class: "title" }, titled(heading, one.url)),
    make("p", { class: "note place" }, place),
    make("p", { class: "reason" }, reasonOf(one)),
    folded(one.text),
    make("p", { class: "note uses" }),
  );
}
