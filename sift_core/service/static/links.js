// Sentences of an answer and the passages that they come from: by marks such as [2], else by words.

import { button, counted, make } from "./dom.js";

const SENTENCE = /[^\n]*?(?:[.!?:]["”')]*(?:\s*\[\d+(?:,\s*\d+)*\])*(?=\s)\s*|\n+|$)/g;
const MARK = /\[(\d+(?:,\s*\d+)*)\]/g;
const WORD = /[\p{L}\p{N}_]+/gu;
const LEAST_SHARED = 2 / 3; // of a sentence's words, rare ones counting most. A guess.
const FEWEST_WORDS = 4; // a shorter sentence says too little to be found again

/** Return the sentences of a text; joined they are the text. */
export const sentencesOf = (text) => text.match(SENTENCE)?.filter(Boolean) ?? [];

const wordsOf = (text) => new Set(text.toLowerCase().match(WORD));

/** Return a function of a sentence: the positions of its passages, and whether marks cite them; null if it is too short. */
export function matcher(passages) {
  const words = passages.map(({ title, text }) => wordsOf(`${title} ${text}`));
  const weight = (word) => Math.log((words.length + 1) / (words.filter((own) => own.has(word)).length + 0.5));
  return (sentence) => {
    const marks = [...sentence.matchAll(MARK)].flatMap(([, numbers]) => numbers.split(",").map((n) => n - 1));
    const cited = [...new Set(marks)].filter((i) => i < passages.length && i >= 0);
    if (cited.length) return { positions: cited, isCited: true };
    const own = [...wordsOf(sentence)];
    if (own.length < FEWEST_WORDS) return null;
    const total = own.reduce((sum, word) => sum + weight(word), 0);
    const shares = words.map((there) => own.reduce((sum, w) => sum + (there.has(w) ? weight(w) : 0), 0) / total);
    const best = shares.indexOf(Math.max(...shares));
    return { positions: shares[best] >= LEAST_SHARED ? [best] : [], isCited: false };
  };
}

/** Links the sentences of one answer with its passages, both ways, as the answer grows. */
export class Linker {
  constructor(place, passages, list) {
    this.place = place;
    this.list = list;
    this.match = matcher(passages);
    this.text = "";
    this.done = 0; // characters that stand in sentences
    this.tail = document.createTextNode("");
    this.sentences = []; // [element, positions]
    this.counts = { checked: 0, linked: 0 };
    place.append(this.tail);
  }

  /** Take a piece of the text. A sentence is linked once the next one begins. */
  take(piece) {
    this.text += piece;
    const open = sentencesOf(this.text.slice(this.done));
    for (const sentence of open.slice(0, -1)) this.add(sentence);
    this.tail.data = this.text.slice(this.done);
  }

  /** Link what is left, and let the passages say where they are used. */
  end() {
    for (const sentence of sentencesOf(this.text.slice(this.done))) this.add(sentence);
    this.tail.data = "";
    [...(this.list?.children ?? [])].forEach((card, i) => this.showUses(card, i));
  }

  /** Return in a sentence how much of the answer is linked; empty for an answer of no sentence. */
  get summary() {
    const { checked, linked } = this.counts;
    if (!checked || !this.list) return "";
    if (!linked) return "No sentence leads to a passage: check the answer.";
    const found = `${linked} of ${counted(checked, "sentence")} ${linked === 1 ? "leads" : "lead"} to a passage.`;
    return linked < checked ? `${found} Check the rest.` : found;
  }

  add(sentence) {
    const found = this.list ? this.match(sentence) : null;
    this.done += sentence.length;
    if (found) this.counts.checked += 1;
    if (!found?.positions.length) {
      this.tail.before(make("span", found ? { class: "unfound", title: "No passage has two thirds of these words." } : {}, sentence));
      return;
    }
    this.counts.linked += 1;
    const body = sentence.trimEnd();
    const [first] = found.positions;
    const names = found.positions.map((i) => i + 1).join(", ");
    const title = found.isCited ? `Cites passage ${names}.` : `Shares most of its words with passage ${names}.`;
    const link = make("a", { class: "sentence", href: `#${this.list.children[first].id}`, title }, body, make("sup", {}, names));
    this.connect(link, found.positions);
    this.tail.before(link, sentence.slice(body.length));
  }

  connect(link, positions) {
    const cards = positions.map((i) => this.list.children[i]);
    lightUp(link, [link, ...cards]);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      show(cards[0]);
    });
    this.sentences.push([link, positions]);
  }

  showUses(card, i) {
    const links = this.sentences.filter(([, positions]) => positions.includes(i)).map(([link]) => link);
    if (!links.length) return;
    lightUp(card, [card, ...links]);
    card.querySelector(".uses").replaceChildren(
      button(`Used in ${counted(links.length, "sentence")}`, () => show(links[0]), { class: "quiet" }),
    );
  }
}

/** Mark elements while another one is pointed at or focused. */
function lightUp(element, others) {
  const light = (isOn) => others.forEach((other) => other.classList.toggle("lit", isOn));
  for (const name of ["mouseenter", "focusin"]) element.addEventListener(name, () => light(true));
  for (const name of ["mouseleave", "focusout"]) element.addEventListener(name, () => light(false));
}

function show(element) {
  element.scrollIntoView({ block: "nearest" });
  element.focus({ preventScroll: true });
}
