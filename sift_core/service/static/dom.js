// Elements and numbers. What comes from the service enters the page as text, here and nowhere else.

/** Return an element; children are elements, or values that become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null)); // a string becomes a text node
  return element;
}

/** Return an SVG element. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Return a title as a link where its address is on the web, else as text. */
export function titled(title, address) {
  if (!/^https?:\/\//i.test(address)) return make("span", {}, title);
  return make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, title);
}

/** Return the last heading of a title such as "file > part > section", and what stands before. */
export function parted(title) {
  const parts = title.split(" > ");
  return [parts.at(-1), parts.slice(0, -1).join(" > ")];
}

export const fixed = (number, digits = 2) =>
  number === null ? "?" : number.toFixed(digits).replace("-", "−");

export const counted = (n, word, plural = `${word}s`) =>
  `${n.toLocaleString("en")} ${n === 1 ? word : plural}`;

/** Return seconds with as many digits as mean something. */
export const seconds = (number) =>
  number < 0.0995 ? `${Math.max(1, Math.round(number * 1000))} ms` : `${fixed(number, 1)} s`;

export const spelledTimings = (timings) =>
  Object.entries(timings)
    .map(([stage, time]) => `${stage.replaceAll("_", " ")} ${seconds(time)}`)
    .join(" · ");
