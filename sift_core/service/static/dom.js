// Elements and words. Every text of the service enters the page as a text node.

/** Return an element; children are elements, or values that become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  // A string becomes a text node.
  element.append(...children.filter((child) => child || child === 0));
  return element;
}

/** Return a button that does something when it is pressed. */
export function button(text, onClick, attributes = {}) {
  const element = make("button", { type: "button", ...attributes }, text);
  element.addEventListener("click", onClick);
  return element;
}

/** Return a title as a link where its address is on the web, else as text. */
export function titled(title, address) {
  if (!/^https?:\/\//i.test(address)) return make("span", {}, title);
  return make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, title);
}

/** Return the last heading of a title such as "file > part > section", and its file and parts. */
export function placed({ title, url }) {
  const parts = title.split(" > ");
  // Not by the class URL, which throws for what is no address.
  const file = url.replace(/^https?:\/\/(?:[^/?#]*@)?([^?#]*).*$/is, "$1");
  return { heading: parts.at(-1), place: [file, ...parts.slice(1, -1)].filter(Boolean).join(" › ") };
}

/** Return a text of which the first lines are shown, the rest on demand. */
export function folded(text) {
  const body = text.replace(/^\s*#+ .*\n/, "").trim() || text; // its heading is in the title
  return make(
    "details",
    {},
    make(
      "summary",
      {},
      make("span", { class: "start" }, body.slice(0, 300).replace(/\s+/g, " ")),
      make("span", { class: "less" }, "Fold the text"),
    ),
    make("div", { class: "whole" }, text),
  );
}

export const counted = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

/** Return words as "a", "a and b", "a, b and c". */
export const listed = (words) =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

/** Return seconds in the words of a person. */
export function duration(seconds) {
  if (seconds < 1.5) return "a second";
  if (seconds < 90) return `${Math.round(seconds)} seconds`;
  return `${Math.round(seconds / 60)} minutes`;
}
