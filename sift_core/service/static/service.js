// Calls of the service. What goes wrong is a Failure, whose message is a sentence for the reader.

let key = ""; // in memory only
let path = ""; // of the collection

export class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

export const isStopped = (error) => error.name === "AbortError";

/** Take the key that goes with every call; an empty one is none. */
export function useKey(text) {
  if (!/^[\x21-\x7e]*$/.test(text.trim())) {
    throw new Failure("A key has ASCII letters, digits and signs only, and no space.", 401);
  }
  key = text.trim();
}

/** Take the collection that later calls go to, by the path of its routes. */
export function useCollection(itsPath) {
  path = itsPath;
}

/** Return the names of the collections and the paths of their routes. */
export async function collections() {
  return (await json(await call("collections"))).data;
}

/** Return the language model's name and whether it learns; null if there is none. */
export async function languageModel(signal) {
  const { data } = await json(await call(`${path}v1/models`, { signal }));
  const reading = data.find((model) => model.id.endsWith(":context"));
  if (!reading) return null;
  const name = reading.id.slice(0, -":context".length);
  return { name, learns: data.some(({ id }) => id === `${name}:fine_tune`) };
}

/** Return what is chosen; with `compare` what the other methods choose, too. */
export async function search(query, nSelect, { compare = false, signal } = {}) {
  const body = { query, n_select: nSelect, compare };
  return json(await call(`${path}search`, { body, signal }));
}

/** Return how long learning for the last message would take. */
export async function learningTime(model, messages, signal) {
  return json(await call(`${path}learning-time`, { body: { model, messages }, signal }));
}

/** Yield the pieces of an answer as they come. Leaving the loop stops the answer's work. */
export async function* answer(model, messages, { nContext, signal }) {
  const body = { model, messages, stream: true, sift: { n_context: nContext, passages: true } };
  const response = await call(`${path}v1/chat/completions`, { body, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw isStopped(error) ? error : broken();
      });
      if (done) throw broken();
      const lines = (rest + value).split("\n"); // the service writes each event in one line
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue; // a comment that keeps the connection alive
        const data = line.slice("data:".length).trim();
        if (data === "[DONE]") return;
        const piece = JSON.parse(data);
        if (piece.error) throw new Failure(sentence(piece.error.message));
        yield piece;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const broken = () =>
  new Failure("The connection broke off before the answer was complete. Is the service still up?");

async function call(address, { body, signal } = {}) {
  const headers = {};
  if (key) headers.authorization = `Bearer ${key}`;
  if (body) headers["content-type"] = "application/json";
  const method = body ? "POST" : "GET";
  let response;
  try {
    response = await fetch(address, { method, headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (isStopped(error)) throw error;
    throw new Failure(`The service at ${location.host} does not answer. Is it still running?`);
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function json(response) {
  try {
    return await response.json();
  } catch (error) {
    if (isStopped(error)) throw error;
    throw new Failure("The service's answer broke off, or is not what a sift service sends.");
  }
}

/** Return what the service says of a request that it does not serve, and what to do. */
async function refusal(response) {
  const { status, headers } = response;
  const record = await response.json().catch(() => null);
  const message = record?.error?.message ?? record?.detail;
  const parts = [];
  if (status === 401) {
    parts.push(key ? "The service refuses this key." : "This service asks for a key.");
  } else if (typeof message === "string" && message) {
    parts.push(status === 429 ? `The service is busy: ${sentence(message, false)}` : sentence(message));
  } else {
    parts.push(`The service answered with status ${status} and did not say why.`);
  }
  const wait = headers.get("retry-after");
  if (wait) parts.push(`Ask again in ${wait} s.`);
  const id = headers.get("x-request-id");
  if (status >= 500 && id) parts.push(`The request was ${id}.`);
  return new Failure(parts.join(" "), status);
}

function sentence(text, isFirst = true) {
  const ended = /[.!?]$/.test(text) ? text : `${text}.`;
  return isFirst ? ended[0].toUpperCase() + ended.slice(1) : ended;
}
