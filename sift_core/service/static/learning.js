// Learning on request: first how long it takes, then a second answer, of the model that has learned.

import { button, counted, duration, make } from "./dom.js";
import { Linker } from "./links.js";
import { answer, isStopped, learningTime } from "./service.js";

/** Return what offers to learn for the question of a turn. */
export function offerLearning(turn) {
  const model = `${turn.model.name}:fine_tune`;
  const said = make("p", { class: "note", role: "status" });
  const begin = button("Learn for this question …", () => guarded(ask));
  const place = make("div", { class: "learning" }, begin, said);

  async function guarded(work) {
    const mine = new AbortController();
    const end = button("Stop learning", () => mine.abort());
    place.querySelectorAll("button").forEach((one) => one.remove());
    place.append(end);
    try {
      await work(AbortSignal.any([mine.signal, turn.closing.signal]));
    } catch (error) {
      said.textContent = isStopped(error) ? "Stopped." : error.message;
      place.append(begin);
    }
    end.remove();
  }

  async function ask(signal) {
    said.textContent = "Estimating how long it takes. The first time this takes some seconds …";
    const time = await learningTime(model, turn.messages, signal);
    said.textContent =
      `Learning ${counted(time.n_chunks, "passage")} takes about ${duration(time.learning_s)}. ` +
      `The answer then takes up to ${duration(time.longest_answer_s)}.`;
    const yes = button("Learn now", () => guarded(learn));
    place.append(yes, button("No", close));
    yes.focus();
  }

  function close() {
    place.replaceChildren(begin, said);
    said.textContent = "";
    begin.focus();
  }

  async function learn(signal) {
    const started = performance.now();
    const bar = make("progress", { "aria-label": "Training steps", max: "1", value: "0" });
    const text = make("div", { class: "text", "aria-live": "polite" });
    const panel = make("section", { "aria-label": "Learned answer", "aria-busy": "true" }, make("h3", {}, "After learning"), text);
    place.append(bar, panel);
    const linker = new Linker(text, [], null);
    try {
      const context = { nContext: turn.nContext, signal };
      for await (const { choices, sift } of answer(model, turn.messages, context)) {
        if (sift?.event === "learning") {
          said.textContent = `Learning: step ${sift.step} of ${sift.n_steps} …`;
          [bar.max, bar.value] = [Math.max(sift.step, sift.n_steps), sift.step];
        }
        linker.take(choices[0]?.delta?.content ?? "");
      }
      said.textContent = `Done after ${duration((performance.now() - started) / 1000)}. The model wrote this from what it learned, without reading a passage.`;
    } finally {
      linker.end();
      bar.remove();
      panel.setAttribute("aria-busy", "false");
      if (!linker.text) panel.remove();
    }
  }

  return place;
}
