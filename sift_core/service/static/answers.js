// One answer as it is written: what happens now, the loss while it learns, the text, what it rests on.

import { showLosses } from "./curve.js";
import { counted, draw, fixed, make, parted, seconds, spelledTimings, titled } from "./dom.js";
import { answer, isStopped } from "./service.js";

const WAYS = {
  context: { title: "By reading", how: "the chunks are in the prompt" },
  fine_tune: { title: "By learning", how: "the model is fine-tuned on chunks for this question" },
};

/** Write an answer into a new panel of `place`, where it also tells of a failure; return whether it is whole. */
export async function writeAnswer(place, { model, way, question, nContext, signal, say }) {
  const panel = new Panel(WAYS[way], `${model}:${way}`);
  place.append(panel.node);
  const started = performance.now();
  try {
    for await (const piece of answer(`${model}:${way}`, question, nContext, signal)) panel.take(piece);
    const took = seconds((performance.now() - started) / 1000);
    panel.end(`Complete after ${took}.${panel.remark}`);
    say(`The answer ${WAYS[way].title.toLowerCase()} is complete.`);
    return true;
  } catch (error) {
    if (isStopped(error)) panel.end("Stopped.");
    else panel.fail(error.message);
    return false;
  }
}

class Panel {
  constructor({ title, how }, model) {
    this.losses = [];
    this.remark = "";
    this.state = make("p", { class: "state" }, "Waits for its turn …");
    this.bar = make("progress", { "aria-label": "Training steps", hidden: "" });
    this.problem = make("p", { class: "problem", role: "alert" });
    this.line = draw("svg", { class: "loss", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img" });
    this.text = make("div", { class: "text" });
    this.basis = make("div", { class: "basis" });
    const id = `answer-${title.split(" ").at(-1)}`;
    this.node = make(
      "article",
      { class: "answer", "aria-labelledby": id, "aria-busy": "true" },
      make("h3", { id }, title),
      make("p", { class: "note" }, `${how}; `, make("code", {}, model)),
      this.state,
      this.problem,
      this.bar,
      this.text,
      this.basis,
    );
  }

  /** Show a piece of the stream. */
  take({ choices, usage, sift }) {
    if (sift?.event === "chosen") this.chosen(sift);
    else if (sift?.event === "learning") this.learned(sift);
    const text = choices[0]?.delta?.content;
    if (choices[0]?.finish_reason === "length") this.remark = " It was cut at its greatest length.";
    if (text) {
      if (!this.text.textContent) this.state.textContent = "Writes …";
      this.text.append(text);
    }
    if (sift && !sift.event) this.rest(sift);
    if (usage) this.used(usage);
  }

  chosen({ n_candidates: nCandidates, n_read: nRead, n_learned: nLearned }) {
    const kinds = [];
    if (nRead) kinds.push(`reads ${counted(nRead, "chunk")}`);
    if (nLearned) kinds.push(`learns ${counted(nLearned, "step")}`);
    this.state.textContent = `Chose of ${counted(nCandidates, "candidate")}; ${kinds.join(" and ") || "uses none"} …`;
  }

  learned({ step, n_steps: nSteps, loss }) {
    if (loss !== null) this.losses.push(loss);
    this.state.textContent = `Learns: step ${step} of ${nSteps}, loss ${fixed(loss)}`;
    this.bar.hidden = false;
    this.bar.max = Math.max(nSteps, step);
    this.bar.value = step;
    this.drawLosses(nSteps);
  }

  drawLosses(nSteps) {
    if (!this.losses.length) return;
    if (!this.line.isConnected) this.bar.after(this.line);
    showLosses(this.line, this.losses, nSteps);
  }

  /** Show what the answer rests on. */
  rest({ reasons, sources, timings, fine_tuning: learning, timed_out: isCut, variance }) {
    if (isCut) this.remark = " Its time was over; this is what there was.";
    const said = [...reasons];
    if (learning && learning.source !== "trained") {
      said.push(`it had been learned before and was kept (${learning.source})`);
      this.losses = learning.losses.filter((loss) => loss !== null);
      this.drawLosses(this.losses.length);
    }
    const left = variance.after === null ? "" : `; σ² ${fixed(variance.before)} → ${fixed(variance.after, 3)}`;
    this.basis.append(
      make("h4", {}, "Why"),
      make("ul", {}, ...said.map((reason) => make("li", {}, reason))),
      make("h4", {}, `${counted(sources.length, "source")}${left}`),
      folded(sources.map(source)),
      make("h4", {}, "Time"),
      make("p", {}, spelledTimings(timings)),
    );
  }

  used({ prompt_tokens: nRead, completion_tokens: nWritten }) {
    this.basis.append(make("p", {}, `${counted(nRead, "token")} read, ${counted(nWritten, "token")} written`));
  }

  end(state) {
    this.state.textContent = state;
    this.bar.hidden = true;
    this.node.setAttribute("aria-busy", "false");
    const { length } = this.losses;
    if (!length) return;
    const fall = `Loss ${fixed(this.losses[0])} → ${fixed(this.losses[length - 1])} in ${counted(length, "step")}`;
    this.line.after(make("p", { class: "note" }, fall));
  }

  fail(message) {
    this.end("");
    this.problem.textContent = message;
  }
}

/** Return a list of which the first are shown, the rest on demand. */
function folded(items, nShown = 6) {
  const list = make("ol", {}, ...items.slice(0, nShown));
  const rest = items.slice(nShown);
  if (!rest.length) return list;
  const more = make("ol", { start: nShown + 1 }, ...rest);
  return make("div", {}, list, make("details", {}, make("summary", {}, `${rest.length} more`), more));
}

function source({ title, url, is_read: isRead, n_times_learned: nLearned, similarity }) {
  const uses = [isRead && "read", nLearned && `learned ${nLearned === 1 ? "once" : `${nLearned} times`}`];
  const used = uses.filter(Boolean).join(", ");
  const note = `${used} · similarity ${fixed(similarity)}`;
  return make("li", {}, titled(parted(title)[0], url), " ", make("span", { class: "note" }, note));
}
