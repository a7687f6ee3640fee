"""What attention by whole products gains over PyTorch's fused one, what share of a step is matrix
products, and what share of the machine's peak a step reaches.

The bundled model in bfloat16 on a CPU, ours and the fused attention in turn on one model. Whatever
of a step is no product of matrices (norms, softmax, Adam, Python) is what could still be saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.fine_tuning_timing import Visit, alternate
from benchmarks.report import Report
from sift_core.answering import FineTuningSettings, LanguageModel, fine_tune
from sift_core.answering.model.cpu_attention import FUSED, NAME

SETTINGS = FineTuningSettings()
LENGTHS_LEARNED = (128, 256, 384)
LENGTHS_READ = (250, 1000, 2000, 4000)
PEAK_SIDE = 2048
OURS, THEIRS = "whole products", "PyTorch's fused attention"


def measure(report: Report, *, threads: int, quick: bool) -> None:
    """Measure learning and reading at several lengths, and the products of one step alone."""
    lm = LanguageModel.from_pretrained(dtype="bfloat16", device="cpu")
    if lm.model.config._attn_implementation != NAME:
        report.skip("attention", "the model does not attend by PyTorch's fused attention")
        return
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, lm.parts.n_vocabulary, (max(LENGTHS_READ),), generator=generator)
    rounds = 1 if quick else 5
    report.heading(f"A step of learning, bundled model, {threads} thread(s)")
    for n in LENGTHS_LEARNED[: 1 if quick else None]:
        step = _Step(lm, _text(lm, ids.tolist(), n))
        _compare(report, lm, f"{n} tokens", step.seconds, case=f"learn, {threads}", rounds=rounds)
    report.heading(f"Reading, bundled model, {threads} thread(s)")
    for n in LENGTHS_READ[: 1 if quick else None]:
        _compare(
            report,
            lm,
            f"{n} tokens",
            lambda n=n: _seconds(lambda: _read(lm, ids[:n])),
            case=f"read, {threads}",
            rounds=rounds,
        )
    report.heading(f"What of a step of 256 tokens is matrix products, {threads} thread(s)")
    step = _Step(lm, _text(lm, ids.tolist(), 256))
    times = alternate(
        "products alone",
        {
            "products alone": lambda _: _products(lm, 256),
            "whole step": lambda _: step.seconds(),
        },
        rounds=rounds,
    )
    report.times(
        f"products, {threads}",
        "256",
        "products alone",
        {name: seconds * 1000 for name, seconds in times.seconds.items()},
    )
    report.judge(
        f"products' share of a step, {threads} thread(s)",
        1 / times.over_ours["whole step"],
        "products_share_of_a_step",
    )
    _peaks(report, _gflop(lm, 256), times.seconds, case=f"peak, {threads}")


@dataclass(frozen=True)
class _Step:
    """One step of learning on a chunk; what a fine-tuning sets up is left out."""

    lm: LanguageModel
    text: str

    def seconds(self) -> float:
        marks: list[float] = []
        chunks = [self.text] * 3
        fine_tune(self.lm, chunks, SETTINGS, on_step=lambda _: marks.append(time.perf_counter()))
        return marks[2] - marks[1]


def _text(lm: LanguageModel, ids: list[int], n: int) -> str:
    """Return a text of n tokens at most, and hardly fewer: read again, random ones may be more."""
    kept = n
    while lm.n_tokens(text := lm.tokenizer.decode(ids[:kept])) > n:
        kept -= 1
    return str(text)


def _compare(
    report: Report,
    lm: LanguageModel,
    data: str,
    seconds: Callable[[], float],
    *,
    case: str,
    rounds: int,
) -> None:
    def visit(attention: str) -> Visit:
        def visited(_: int) -> float:
            lm.model.config._attn_implementation = attention
            try:
                return seconds()
            finally:
                lm.model.config._attn_implementation = NAME

        return visited

    found = alternate(OURS, {OURS: visit(NAME), THEIRS: visit(FUSED)}, rounds=rounds)
    times = {name: found.seconds[OURS] * 1000 * over for name, over in found.over_ours.items()}
    report.times(case, data, OURS, times)


def _read(lm: LanguageModel, ids: torch.Tensor) -> None:
    with torch.inference_mode():
        lm.model(input_ids=ids[None], use_cache=True, logits_to_keep=1)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _peaks(report: Report, gflop: float, seconds: Mapping[str, float], *, case: str) -> None:
    """Add what the machine's products reach at best, and what share of that a step does."""
    peaks = {dtype: _peak(dtype) for dtype in (torch.bfloat16, torch.float32)}
    reached = {f"peak, {str(dtype)[6:]}": peak for dtype, peak in peaks.items()}
    reached |= {name: gflop / each for name, each in seconds.items()}
    for name, rate in reached.items():
        share = rate / peaks[torch.bfloat16]
        report.rows.append(
            {
                "case": case,
                "method": name,
                "gflop_per_s": round(rate),
                "share_of_peak": round(share, 3),
            }
        )
        print(f"  {rate:>8.0f} GFLOP/s {share:>8.3f} of the peak in bfloat16  {name}", flush=True)


def _peak(dtype: torch.dtype) -> float:
    """Return the GFLOP/s of a product of two large square matrices."""
    one, other = (torch.randn(PEAK_SIDE, PEAK_SIDE).to(dtype) for _ in range(2))
    torch.mm(one, other)
    return 2e-9 * PEAK_SIDE**3 / min(_seconds(lambda: torch.mm(one, other)) for _ in range(7))


def _gflop(lm: LanguageModel, n: int) -> float:
    """Return how much a step of n tokens computes in its matrix products."""
    return 2e-9 * sum(
        times * batch * rows * inner * columns
        for (batch, rows, inner, columns), times in _shapes(lm, n).items()
    )


def _products(lm: LanguageModel, n: int) -> float:
    """Return the seconds of a step's matrix products, each shape measured alone."""
    return sum(times * _product(*shape) for shape, times in _shapes(lm, n).items())


def _shapes(lm: LanguageModel, n: int) -> dict[tuple[int, int, int, int], int]:
    """Return batch, rows, inner and columns of a step's products, and how often each is.

    A frozen weight takes part in two of them, forward and for the gradient at its input; each half
    of a LoRA in three; attention in two forward and four backward.
    """
    config = lm.model.config
    width, heads = config.hidden_size, config.num_attention_heads
    rank = SETTINGS.rank
    head_width = width // heads
    linears = [
        module
        for name, module in lm.model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    ]
    shapes: dict[tuple[int, int, int, int], int] = {}

    def add(rows: int, inner: int, columns: int, *, batch: int = 1, times: int = 1) -> None:
        shape = (batch, rows, inner, columns)
        shapes[shape] = shapes.get(shape, 0) + times

    for linear in linears:
        n_in, n_out = linear.in_features, linear.out_features
        add(n, n_in, n_out)
        add(n, n_out, n_in)
        for a, b in ((n_in, rank), (rank, n_out)):
            add(n, a, b)
            add(n, b, a)
            add(b, n, a)
    add(n, width, config.vocab_size)
    add(n, config.vocab_size, width)
    layers = config.num_hidden_layers
    add(n, head_width, n, batch=heads, times=2 * layers)
    add(n, n, head_width, batch=heads, times=4 * layers)
    return shapes


def _product(batch: int, rows: int, inner: int, columns: int, *, visits: int = 7) -> float:
    left = torch.randn(batch, rows, inner).bfloat16()
    right = torch.randn(batch, columns, inner).bfloat16().transpose(1, 2)
    torch.bmm(left, right)
    return median(_seconds(lambda: torch.bmm(left, right)) for _ in range(visits))
