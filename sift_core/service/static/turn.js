// One question and its answer, with the passages beside it.

import { button, counted, make } from "./dom.js";
import { offerLearning } from "./learning.js";
import { Linker } from "./links.js";
import { listPassages } from "./passages.js";
import { answer, isStopped, search } from "./service.js";

let nTurns = 0; // makes ids

export class Turn {
  /** Make a turn; `model` is null where the service only searches. */
  constructor({ question, history, model, nContext }) {
    Object.assign(this, { question, model, nContext, passages: [], isRefused: false });
    this.closing = new AbortController(); // ends its learning
    this.messages = [...history, { role: "user", content: question }];
    this.id = `turn-${(nTurns += 1)}`;
    this.state = make("p", { class: "state" }, "Searching …");
    this.text = make("div", { class: "text", "aria-live": "polite" });
    this.problem = make("p", { class: "problem", role: "alert" });
    this.after = make("div", { class: "after" });
    this.beside = make("aside", { "aria-label": "Passages" });
    this.body = make("div", { class: "answer", "aria-busy": "true" }, this.text, this.state, this.problem, this.after);
    this.node = make(
      "article",
      { class: "turn", "aria-labelledby": this.id },
      make("h2", { id: this.id }, question),
      make("div", { class: "columns" }, this.body, this.beside),
    );
  }

  /** Return the turn as messages of a conversation. */
  get said() {
    if (!this.linker?.text) return [];
    const [question] = this.messages.slice(-1);
    return [question, { role: "assistant", content: this.linker.text }];
  }

  /** Answer the question. A failure is shown and thrown. */
  async run(signal, model = this.model?.name) {
    this.body.setAttribute("aria-busy", "true");
    this.problem.textContent = "";
    try {
      if (!model) await this.searchOnly(signal);
      else await this.write(model, signal);
    } catch (error) {
      this.end(isStopped(error) ? "Stopped." : "");
      if (isStopped(error)) return;
      this.problem.textContent = error.message;
      throw Object.assign(error, { isShown: true });
    } finally {
      this.body.setAttribute("aria-busy", "false");
    }
  }

  async searchOnly(signal) {
    const { columns } = await search(this.question, this.nContext, { signal });
    signal.throwIfAborted();
    this.show(columns.sift.chunks);
    this.end("This service has no language model: it finds passages and writes no answer.");
  }

  async write(model, signal) {
    let last = null;
    this.state.textContent = "Searching …";
    for await (const piece of answer(model, this.messages, { nContext: this.nContext, signal })) {
      last = piece.sift && !piece.sift.event ? piece : last;
      this.take(piece);
    }
    this.complete(last);
    if (this.model.learns && this.passages.length && !this.isRefused) {
      this.after.append(offerLearning(this));
    }
  }

  take({ choices, sift }) {
    if (sift?.event === "chosen") this.chosen(sift);
    else if (sift?.event === "learning") this.state.textContent = `Learning: step ${sift.step} of ${sift.n_steps} …`;
    const text = choices[0]?.delta?.content;
    if (!text) return;
    if (!this.linker) this.begin();
    if (!this.linker.text) this.state.textContent = "";
    this.linker.take(text);
  }

  chosen({ passages, n_read: nRead, n_learned: nLearned }) {
    this.show(passages);
    const kinds = [nRead && `Reading ${counted(nRead, "passage")}`, nLearned && `Learning ${counted(nLearned, "step")}`];
    this.state.textContent = kinds.filter(Boolean).length ? `${kinds.filter(Boolean).join(", ")} …` : "Writing …";
  }

  show(passages, title = passages.length ? counted(passages.length, "passage") : "No passage") {
    this.passages = passages;
    this.list = passages.length ? listPassages(passages, this.id) : null;
    this.beside.replaceChildren(make("h3", {}, title), ...(this.list ? [this.list] : []));
  }

  begin() {
    this.linker = new Linker(this.text, this.passages, this.list);
  }

  /** Show what the last piece says: the reasons, a refusal, what was cut. */
  complete(last) {
    const { sift, choices } = last ?? { sift: {}, choices: [] };
    this.isRefused = sift.is_refusal === true;
    if (this.isRefused) this.refused(sift);
    const notes = [];
    if (sift.timed_out) notes.push("Its time was over: this is what there was.");
    else if (choices[0]?.finish_reason === "length") notes.push("It was cut at its greatest length.");
    if (sift.missing_names?.length) notes.push(`No passage names ${sift.missing_names.join(", ")}.`);
    this.end(notes.join(" "));
  }

  refused({ nearest }) {
    this.show(nearest.map((one) => ({ ...one, is_near: true })), "The nearest passages");
    this.list = null; // a refusal comes from no passage
    if (this.linker) this.linker.list = null;
    const anyway = button("Answer anyway", async () => {
      anyway.remove();
      this.text.replaceChildren();
      this.linker = null;
      this.body.dispatchEvent(new CustomEvent("again", { bubbles: true, detail: this }));
    });
    this.after.append(anyway);
  }

  end(note) {
    this.linker?.end();
    this.state.textContent = [this.linker?.summary, note].filter(Boolean).join(" ");
  }
}
