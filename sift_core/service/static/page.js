// The form and the conversation: each question becomes a turn, the tab compares for the last one.

import { showComparison } from "./compare.js";
import { make } from "./dom.js";
import { Failure, collections, isStopped, languageModel, useCollection, useKey } from "./service.js";
import { connectTabs } from "./tabs.js";
import { Turn } from "./turn.js";

const N_REMEMBERED = 3; // turns: each that the model reads again delays the next answer
const at = (id) => document.getElementById(id);
const [question, key, stop, place] = [at("question"), at("key"), at("stop"), at("compare")];
let turns = [];
let current = null; // what ends the question that is being answered
let comparing = null; // what ends the comparison
let compared = null; // the turn that the second tab shows

const say = (text) => {
  at("progress").textContent = text;
};

async function ask() {
  const text = question.value.trim();
  at("problem").textContent = "";
  if (!text) {
    question.focus();
    at("problem").textContent = "Type a question first.";
    return;
  }
  await working(async (signal) => {
    useKey(key.value);
    const model = await languageModel(signal);
    signal.throwIfAborted();
    const history = turns.slice(-N_REMEMBERED).flatMap((turn) => turn.said);
    const turn = new Turn({ question: text, history, model, nContext: at("n").valueAsNumber });
    turns.push(turn);
    at("turns").append(turn.node);
    at("empty").hidden = true;
    at("new").hidden = false;
    question.value = "";
    turn.node.scrollIntoView({ block: "start" });
    await turn.run(signal);
  });
}

/** Run work that can be stopped, after stopping the work before it. */
async function working(work) {
  current?.abort();
  const mine = (current = new AbortController());
  stop.disabled = false;
  say("Working …");
  let end = "Done.";
  try {
    await work(mine.signal);
  } catch (error) {
    end = "";
    if (current === mine && !isStopped(error)) fail(error);
  }
  if (current !== mine) return; // the next question has the page
  current = null;
  say(mine.signal.aborted ? "Stopped." : end);
  if (document.activeElement === stop) question.focus(); // a disabled button has no focus
  stop.disabled = true;
}

function fail(error) {
  const known = error instanceof Failure;
  if (!error.isShown) at("problem").textContent = known ? error.message : `This page failed: ${error.message}. Reload it.`;
  if (error.status !== 401) return;
  at("key-row").hidden = false;
  key.focus();
  key.select();
}

/** Leave a refusal of the service to the next question, and let a fault of the page go on. */
function passOver(error) {
  if (!(error instanceof Failure)) throw error;
}

function forget() {
  current?.abort();
  comparing?.abort();
  for (const turn of turns) turn.closing.abort();
  [turns, compared] = [[], null];
  at("turns").replaceChildren();
  at("problem").textContent = "";
  at("empty").hidden = false;
  at("new").hidden = true;
  place.replaceChildren();
  at("tab-answers").click();
  question.focus();
}

/** Compare the methods for the last question, unless that is shown. */
async function compare() {
  const turn = turns.at(-1);
  if (!turn) {
    place.replaceChildren(make("p", {}, "Ask a question first. Then this tab compares what four methods find for it."));
    return;
  }
  if (compared === turn) return;
  comparing?.abort();
  const mine = (comparing = new AbortController());
  compared = turn;
  try {
    await showComparison(place, turn.question, turn.nContext, mine.signal);
  } catch (error) {
    if (isStopped(error)) return;
    compared = null;
    place.replaceChildren(make("p", { class: "problem", role: "alert" }, error.message));
  }
}

/** List the collections. The list is hidden if there is only one. */
async function listCollections() {
  const found = await collections();
  const select = at("collection");
  const chosen = select.value;
  select.replaceChildren(...found.map(({ name, path }) => make("option", { value: path }, name)));
  if (chosen) select.value = chosen;
  at("collections").hidden = found.length < 2;
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
key.addEventListener("change", () => {
  try {
    useKey(key.value);
    listCollections().catch(passOver);
  } catch (error) {
    fail(error);
  }
});
at("collection").addEventListener("change", ({ target }) => {
  useCollection(target.value);
  forget();
});
at("turns").addEventListener("again", ({ detail: turn }) =>
  working((signal) => turn.run(signal, `${turn.model.name}:context`)),
);
stop.addEventListener("click", () => current?.abort());
at("new").addEventListener("click", forget);
connectTabs((panel) => panel === "compare" && compare());
listCollections().catch((error) => (error.status === 401 ? fail : passOver)(error)); // asks for the key at once
