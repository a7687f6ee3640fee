"""`sift complete`: code or text that goes on at a line of a file, in the style of the index."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sift_core.answering.completing import (
    N_CHUNKS,
    PROMPT_TOKENS,
    CompletionPrompt,
    Until,
    stream_completion,
)
from sift_core.cli import options as flags
from sift_core.cli.ask import INTERRUPTED, stopped_by_interrupts
from sift_core.cli.engine import load_engine
from sift_core.cli.learn import LearningProgress
from sift_core.cli.output import Terminal, Working, print_json, write
from sift_core.cli.stores import open_with_embedder
from sift_core.errors import InvalidInputError
from sift_core.options import ChoiceOptions

if TYPE_CHECKING:
    from sift_core.answering import AnswerEngine, Choice
    from sift_core.answering.answer import Answer

ModeName = Literal["base", "context", "fine_tune", "both", "learned", "learned_context"]
STDIN = "-"
_WITHOUT_INDEX = ("base", "learned")
_AT_LINE = re.compile(r"(.+):(\d+)", re.DOTALL)


@flags.with_flags(n_select="n_context", defaults={"n_select": N_CHUNKS})
def complete(
    place: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:LINE]",
            help='The text before the end of LINE goes on; "-" reads the text from stdin. '
            "If LINE is left out, the end of the file.",
        ),
    ],
    mode: Annotated[
        ModeName | None,
        typer.Option(
            help="How the index reaches the model. If left out, learned_context where sift learn "
            "has learned the index, else context.",
            show_default=False,
        ),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The file that the text on stdin is from. No chunk behind the cursor in it is "
            "read.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        Until,
        typer.Option(
            help="Where to end: block at a blank line or where code is indented less than at the "
            "cursor, line at the line's end, length at --max-new-tokens."
        ),
    ] = "block",
    stop: Annotated[
        list[str] | None,
        typer.Option(help="A text that ends the continuation; may come several times."),
    ] = None,
    model: flags.ModelOption = flags.DEFAULT_MODEL,
    store: flags.StoreOption = flags.DEFAULT_STORE,
    embedder: flags.EmbedderOption = None,
    *,
    layout: flags.StoreLayout,
    options: ChoiceOptions,
    effort: flags.EffortOption = "balanced",
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Length of the continuation at most, in tokens.")
    ] = 64,
    max_prompt_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens before the cursor that the model reads at most.")
    ] = PROMPT_TOKENS,
    adapters: flags.AdaptersOption = flags.DEFAULT_ADAPTERS,
    device: flags.DeviceOption = None,
    dtype: flags.DtypeOption = "auto",
    json: flags.JsonOption = False,
) -> None:
    """Go on with the text of FILE at LINE, in the style of the index; stdout gets the new text.

    Examples:
    sift complete src/app.py:120
    sift complete notes.md --mode context --max-new-tokens 200
    sift complete - --path src/app.py < part.py
    """
    prompt = _prompt(place, path)
    if mode is None:
        has_learned = Path(adapters, "collection.json").is_file()
        mode = "learned_context" if has_learned else "context"
    about: dict[str, Any] = {"path": prompt.path, "store": None, "embedder": None, "model": model}
    with ExitStack() as stack:
        opened = None
        if mode not in _WITHOUT_INDEX:
            opened = stack.enter_context(open_with_embedder(store, embedder, layout))
            about |= {"store": str(opened.address), "embedder": opened.embedder.name}
        engine = load_engine(
            model,
            opened,
            options=options,
            answers=flags.AnswerOptions(effort=effort, device=device, dtype=dtype),
            max_new_tokens=max_new_tokens,
            is_calibrated=False,
            adapters=adapters if mode.startswith("learned") else None,
        )
        fields = {
            "mode": mode,
            "until": until,
            "stop": stop or [],
            "n_prompt_tokens": max_prompt_tokens,
        }
        answer, pace = _written(engine, prompt, fields, as_json=json)
    if json:
        print_json({**about, **answer.as_dict(), **pace})
    elif not answer.text.strip():
        Terminal(stderr=True).say("The model wrote nothing.", style="dim")
    elif sys.stdout.isatty():
        write("\n")


def _prompt(place: str, path: str | None) -> CompletionPrompt:
    """Return the text before the cursor, read from a file or from stdin.

    Raises:
        InvalidInputError: If there is no such file or line, or it is no text.
    """
    if place == STDIN:
        named = None if path is None else str(Path(path).absolute())
        return CompletionPrompt(before=sys.stdin.read(), path=named)
    if path is not None:
        raise InvalidInputError("--path names the file of a text on stdin; leave it out, or FILE")
    line = None
    if not Path(place).is_file() and (found := _AT_LINE.fullmatch(place)):
        place, line = found[1], int(found[2])
    try:
        text = Path(place).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidInputError(f"there is no file {place!r}") from error
    except (OSError, UnicodeError) as error:
        raise InvalidInputError(f"the file {place!r} cannot be read as UTF-8: {error}") from error
    return CompletionPrompt.at_line(text, line, path=str(Path(place).absolute()))


def _written(
    engine: AnswerEngine, prompt: CompletionPrompt, fields: Mapping[str, Any], *, as_json: bool
) -> tuple[Answer, dict[str, float]]:
    """Return the continuation, written to stdout as it comes, and how fast that was.

    Raises:
        typer.Exit: If Ctrl-C stopped it.
    """
    started = time.perf_counter()
    try:
        with Working("Looking for chunks …") as status:
            progress: list[LearningProgress] = []

            def on_choice(choice: Choice) -> None:
                status.update("Reading …" if choice.learned is None else "Fine-tuning …")
                n_steps = len(choice.learned or ())
                progress.append(LearningProgress(status=status, n_steps=n_steps))

            stream = stream_completion(
                engine,
                prompt,
                on_choice=on_choice,
                on_step=lambda loss: progress[0].step(loss),
                **fields,
            )
            with stopped_by_interrupts(stream):
                piece = next(stream, None)
                first = time.perf_counter()
        with stream, stopped_by_interrupts(stream):
            while piece is not None:
                if not as_json:
                    write(piece)
                piece = next(stream, None)
            answer = stream.answer()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    return answer, {"first_token_s": first - started, "seconds": time.perf_counter() - started}
