// Calls of the service. What goes wrong is a Failure, whose message is a sentence for the reader.

let key = ""; // in memory only

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

/** Return the language model's name and the ways to answer that the page shows; null if none. */
export async function languageModel(signal) {
  const { data } = await json(await call("v1/models", { signal }));
  const reading = data.find((model) => model.id.endsWith(":context"));
  if (!reading) return null;
  const name = reading.id.slice(0, -":context".length);
  const ways = ["context", "fine_tune"];
  return { name, ways: ways.filter((way) => data.some(({ id }) => id === `${name}:${way}`)) };
}

/** Return what nearest neighbours, MMR and SIFT choose. */
export async function search(query, nSelect, signal) {
  const body = { query, n_select: nSelect, compare: true };
  return json(await call("search", { body, signal }));
}

/** Yield the pieces of an answer as they come. Leaving the loop stops the answer's work. */
export async function* answer(model, question, nContext, signal) {
  const body = {
    model,
    messages: [{ role: "user", content: question }],
    stream: true,
    stream_options: { include_usage: true },
    sift: { n_context: nContext },
  };
  const response = await call("v1/chat/completions", { body, signal });
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
        const told = line.slice("data:".length).trim();
        if (told === "[DONE]") return;
        const piece = JSON.parse(told);
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

async function call(path, { body, signal }) {
  const headers = {};
  if (key) headers.authorization = `Bearer ${key}`;
  if (body) headers["content-type"] = "application/json";
  const method = body ? "POST" : "GET";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
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
  const told = await response.json().catch(() => null);
  const message = told?.error?.message ?? told?.detail;
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
