// The form, and what follows from a question: columns, the curve, two answers.

import { writeAnswer } from "./answers.js";
import { showColumns } from "./columns.js";
import { showVariances } from "./curve.js";
import { counted, seconds } from "./dom.js";
import { Failure, isStopped, languageModel, search, useKey } from "./service.js";

const at = (id) => document.getElementById(id);
const [question, key, stop] = [at("question"), at("key"), at("stop")];
let current = null; // what ends the question that is being answered
let endCurve = () => {};

const say = (text) => {
  at("progress").textContent = text;
};

async function ask() {
  const text = question.value.trim();
  current?.abort();
  clear();
  if (!text) {
    question.focus();
    at("problem").textContent = "Type a question first.";
    return;
  }
  const mine = (current = new AbortController());
  let end = "";
  stop.disabled = false;
  say("Searches …");
  try {
    useKey(key.value);
    const isWhole = await answered(text, at("n").valueAsNumber, mine.signal);
    end = isWhole ? "Done." : "Ended, but not all is there: the reason stands where it would be.";
  } catch (error) {
    if (current === mine && !isStopped(error)) fail(error);
  }
  if (current !== mine) return; // the next question has the page
  current = null;
  say(mine.signal.aborted ? "Stopped." : end);
  if (document.activeElement === stop) question.focus(); // a disabled button has no focus
  stop.disabled = true;
}

/** Show everything that answers a question; return whether it came to its end. */
async function answered(text, n, signal) {
  at("empty").hidden = true;
  const model = await languageModel(signal);
  signal.throwIfAborted();
  at("answers").hidden = at("jump").hidden = false;
  at("no-model").hidden = model !== null;
  const options = { model: model?.name, question: text, nContext: n, signal, say };
  const writing = (model?.ways ?? []).map((way) => writeAnswer(at("panels"), { ...options, way }));
  const isWhole = await Promise.all([searched(text, n, signal), ...writing]);
  return isWhole.every(Boolean);
}

/** Show what is chosen, or why it is not known; return whether it is. */
async function searched(text, n, signal) {
  try {
    const found = await search(text, n, signal);
    signal.throwIfAborted();
    showFound(found);
    return true;
  } catch (error) {
    if (!isStopped(error)) fail(error);
    return false;
  }
}

function showFound({ columns, candidates, timings }) {
  const all = Object.values(timings).reduce((sum, time) => sum + time, 0);
  at("chosen").hidden = false;
  at("chosen-note").textContent =
    `Each method chose of the same ${counted(candidates.length, "candidate")}, in ${seconds(all)} together.`;
  showColumns(at("columns"), columns);
  at("variance").hidden = false;
  endCurve = showVariances(at("curve"), columns);
  say("What is chosen is shown.");
}

function fail(error) {
  at("problem").textContent =
    error instanceof Failure ? error.message : `This page failed: ${error.message}. Reload it.`;
  if (error.status !== 401) return;
  at("key-row").hidden = false;
  key.focus();
  key.select();
}

function clear() {
  endCurve();
  at("problem").textContent = "";
  say("");
  for (const id of ["chosen", "variance", "answers", "jump"]) at(id).hidden = true;
  for (const id of ["columns", "curve", "panels"]) at(id).replaceChildren();
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("form").requestSubmit();
});
stop.addEventListener("click", () => current?.abort());
languageModel().catch((error) => error.status === 401 && fail(error)); // asks for the key at once
