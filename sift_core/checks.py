"""Checks of what callers pass: the value that can be used, or an error that names it."""

from __future__ import annotations

import math
import operator
import sys
import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from sift_core.errors import InvalidInputError

FloatArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.floating[Any]]]  # as in `types`


def check_question(question: str) -> None:
    """Refuse what is no text, or asks nothing.

    Raises:
        InvalidInputError: If it is not text, or empty.
    """
    check_text("question", question)
    if not question.strip():
        raise InvalidInputError("the question is empty; ask something")


def check_queries(queries: object) -> None:
    """Refuse what is no list or tuple of texts, or holds one that asks nothing.

    Raises:
        InvalidInputError: If so.
    """
    if not isinstance(queries, list | tuple):
        raise InvalidInputError(
            f"`queries` must be a list or tuple of texts, got {short_repr(queries)}"
        )
    for text in queries:
        check_question(text)


def as_finite_array(name: str, values: object, *, n_dimensions: int) -> FloatArray:
    """Return `values` as an array of floats, without a copy where it is one already.

    Args:
        name: How the message should call it.
        values: Anything that NumPy reads as real numbers.
        n_dimensions: 1 or 2.

    Raises:
        InvalidInputError: If it is not numeric, has another number of dimensions, or
            holds NaN or infinity.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biu" or array.dtype == object:
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        is_tensor = hasattr(values, "detach")  # of torch: with a gradient, bfloat16, on a GPU
        advice = f"; pass `{name}.detach().float().cpu().numpy()`" if is_tensor else ""
        raise InvalidInputError(
            f"`{name}` must be an array of numbers with {n_dimensions} dimension(s): "
            f"{error}{advice}"
        ) from error
    if array.dtype.kind != "f":
        raise InvalidInputError(f"`{name}` must hold real numbers, got dtype {array.dtype}")
    if array.ndim != n_dimensions:
        raise InvalidInputError(
            f"`{name}` must have {n_dimensions} dimension(s), got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        raise InvalidInputError(
            f"`{name}` must be finite, got {array[tuple(bad[0])]} at {bad[0].tolist()} "
            f"({len(bad)} such value(s)); was an empty text embedded?"
        )
    return array


def as_vector(name: str, values: object) -> FloatArray:
    """Return `values` as a finite array of shape (d,), d >= 1.

    Raises:
        InvalidInputError: As `as_finite_array`, or if it is empty.
    """
    vector = as_finite_array(name, values, n_dimensions=1)
    if vector.size == 0:
        raise InvalidInputError(f"`{name}` must have at least 1 number, got an empty vector")
    return vector


def as_count(name: str, value: object, *, minimum: int, maximum: float = math.inf) -> int:
    """Return `value`, an integer of any kind, as an int.

    Args:
        name: How the message should call it.
        value: Python or NumPy integer. 3.0 is refused: it is the result of a division
            that may as well give 2.5.
        minimum: The least that is allowed.
        maximum: The most that is allowed.

    Raises:
        InvalidInputError: If it is not an integer, or out of its range.
    """
    try:
        count = operator.index(value)  # type: ignore[arg-type]  # what does not fit raises
    except TypeError as error:
        raise InvalidInputError(
            f"`{name}` must be a whole number, got {short_repr(value)}"
        ) from error
    if count < minimum:
        raise InvalidInputError(f"`{name}` must be >= {minimum}, got {short_repr(count)}")
    if count > maximum:
        raise InvalidInputError(f"`{name}` must be <= {maximum}, got {short_repr(count)}")
    return count


def as_number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    minimum: float = -math.inf,
    maximum: float = sys.float_info.max,
) -> float:
    """Return `value`, a real number of any kind, as a float.

    Args:
        name: How the message should call it.
        value: Python or NumPy number. NaN is refused.
        above: What it must exceed; 0 for "> 0".
        minimum: The least that is allowed.
        maximum: The most that is allowed; any finite number if left out.

    Raises:
        InvalidInputError: If it is no real number, or out of its range.
    """
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except OverflowError:  # an int beyond float64
        number = math.nan
    if above < number <= maximum and number >= minimum:
        return number
    is_finite = "a finite number" if maximum == sys.float_info.max else "a number"
    bounds = [f"> {above:g}"] if above > -math.inf else []
    bounds += [f">= {minimum:g}"] if minimum > -math.inf else []
    bounds += [f"<= {maximum:g}"] if maximum < sys.float_info.max else []
    asked = " ".join([is_finite, " and ".join(bounds)]).strip()
    raise InvalidInputError(f"`{name}` must be {asked}, got {short_repr(value)}")


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False.

    Raises:
        InvalidInputError: If so.
    """
    if not isinstance(value, bool | np.bool_):
        raise InvalidInputError(f"`{name}` must be True or False, got {short_repr(value)}")


def check_instance(name: str, value: object, kind: type) -> None:
    """Check that an argument is an object of a class.

    Raises:
        InvalidInputError: If it is not.
    """
    if not isinstance(value, kind):
        advice = ""
        if isinstance(value, str) and kind.__name__ == "Query":
            advice = "; pass `Query(text=…, embedding=embedder.embed_query(…))`"
        raise InvalidInputError(
            f"`{name}` must be of the class {kind.__name__}, got {short_repr(value)}{advice}"
        )


def check_source(name: str, source: object, *methods: str) -> None:
    """Check that an object has the methods of a `CandidateSource` that are called.

    Raises:
        InvalidInputError: If one is missing.
    """
    if missing := [method for method in methods if not callable(getattr(source, method, None))]:
        raise InvalidInputError(
            f"`{name}` must have the {'method' if len(methods) == 1 else 'methods'} "
            f"{' and '.join(map('`{}`'.format, methods))}, and a {type(source).__name__} has no "
            f"{' and no '.join(map('`{}`'.format, missing))}; pass what finds the candidates, "
            f"such as `QdrantSource(client, collection)`"
        )


def check_embedder(embedder: object, *, is_needed: bool = True) -> None:
    """Check that an object is an embedder with a name, or None if none is needed.

    Raises:
        InvalidInputError: If a part is missing, or the name is no text.
    """
    if embedder is None and not is_needed:
        return
    parts = ("name", "embed_query", "embed_documents")
    if missing := [part for part in parts if not hasattr(embedder, part)]:
        raise InvalidInputError(
            f"`embedder` must have `name`, `embed_query` and `embed_documents`, and a "
            f"{type(embedder).__name__} has no {' and no '.join(map('`{}`'.format, missing))}; see "
            f"sift_core.Embedder, whose `name` is the model's"
        )
    check_text("embedder.name", embedder.name)  # type: ignore[attr-defined]


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line outside of this library that led here; in a thread of ours, at its start."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("sift_core."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def short_repr(value: object) -> str:
    """Return what arrived, short enough for the message of an error."""
    if isinstance(value, str | list | tuple):
        value = value[:81]  # nobody reads the rest, and it may be megabytes
    elif isinstance(value, dict):
        value = dict(islice(value.items(), 81))
    try:
        text = repr(value)
    except ValueError:  # an int with more digits than Python writes
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:80]}…"


def check_text(name: str, text: object) -> None:
    """Refuse what is not a string that UTF-8 can hold.

    Args:
        name: How the message should call it.
        text: Anything.

    Raises:
        InvalidInputError: If it is no string, or holds half a surrogate pair, as bytes
            that are not UTF-8 become on a command line.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"`{name}` must be a string, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"`{name}` holds the character {text[error.start]!r} at {error.start}, which UTF-8 "
            f"cannot hold; was it read with another encoding?"
        ) from error


def check_texts(name: str, texts: Sequence[str]) -> None:
    """Refuse what is no sequence of strings that UTF-8 can hold.

    Raises:
        InvalidInputError: If it is one string, or one of them is none.
    """
    if isinstance(texts, str):
        raise InvalidInputError(f"`{name}` must be a sequence of texts, got one text")
    for text in texts:
        check_text(name, text)


def as_messages(name: str, messages: object) -> Sequence[Mapping[str, str]]:
    """Return `messages`, a sequence of chat messages, as it is.

    Args:
        name: How the message of the error should call it.
        messages: Mappings with "role" and "content".

    Raises:
        InvalidInputError: If it is no sequence, or one is no such mapping.
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise InvalidInputError(
            f"`{name}` must be a sequence of messages, got {type(messages).__name__}"
        )
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            raise InvalidInputError(
                f'`{name}` must hold messages like {{"role": "user", "content": "…"}}, got '
                f"{message!r} at {i}"
            )
        if message["role"] not in ("system", "user", "assistant"):
            raise InvalidInputError(
                f"message {i} of `{name}` must have the role 'system', 'user' or 'assistant', got "
                f"{message['role']!r}"
            )
        check_text(f"{name}[{i}]['content']", message["content"])
    return messages


def checked_arrays(query: FloatArray, candidates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the targets (t, d) and `candidates` (n, d) as finite arrays that fit together.

    Raises:
        InvalidInputError: If they do not.
    """
    targets = as_finite_array("query", query, n_dimensions=2 if is_matrix(query) else 1)
    if targets.size == 0:
        raise InvalidInputError(
            f"`query` must have at least 1 number, got an empty array of shape {targets.shape}"
        )
    targets = np.atleast_2d(targets)
    return targets, checked_rows("candidates", candidates, targets.shape[1])


def is_matrix(values: object) -> bool:
    """Tell whether `values` has two dimensions; what is no array at all has not."""
    try:
        return isinstance(values, np.ndarray | list | tuple) and np.ndim(values) == 2
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, torch's tensors
        return False


def checked_weights(weights: FloatArray | None, n_targets: int) -> FloatArray:
    """Return what each target counts, shape (t,), float64; ones for None.

    Raises:
        InvalidInputError: If there are not `n_targets`, one is negative, or their sum is not
            positive and finite.
    """
    if weights is None:
        return np.ones(n_targets)
    weights = as_finite_array("weights", weights, n_dimensions=1)
    with np.errstate(over="ignore"):  # looked for below
        weights = weights.astype(np.float64)
        total = weights.sum()
    if len(weights) != n_targets:
        raise InvalidInputError(
            f"`weights` must have one number a target: {n_targets} target(s), "
            f"{len(weights)} weight(s)"
        )
    if not ((weights >= 0).all() and 0 < total < np.inf):
        raise InvalidInputError(
            f"`weights` must be >= 0, not all zero and with a finite sum, got {weights.min():g} to "
            f"{weights.max():g}"
        )
    return weights


def checked_rows(name: str, rows: FloatArray, dimension: int) -> FloatArray:
    """Return `rows` (n, `dimension`) as a finite array; n may be 0.

    Raises:
        InvalidInputError: If it is no such array.
    """
    is_empty_list = isinstance(rows, list | tuple) and not rows
    if is_empty_list or getattr(rows, "shape", ())[:1] == (0,):
        return np.empty((0, dimension))  # nothing has no dimension of its own
    rows = as_finite_array(name, rows, n_dimensions=2)
    if rows.shape[1] != dimension:
        raise InvalidInputError(
            f"`{name}` must have {dimension} columns like the query, got "
            f"{rows.shape[1]}; were both made by one model?"
        )
    return rows


def checked_positions(positions: object, n: int) -> np.ndarray[tuple[Any, ...], np.dtype[np.intp]]:
    """Return `positions` as an array of integers in [0, n), shape (k,).

    Raises:
        InvalidInputError: If they are not.
    """
    try:
        rows = np.asarray(positions)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"`positions` must be a row of integers: {error}") from error
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise InvalidInputError(
            f"`positions` must be a row of integers, got {rows.dtype} of shape {rows.shape}; "
            f"np.flatnonzero turns a mask into positions"
        )
    if rows.size and not (0 <= rows.min() and rows.max() < n):
        raise InvalidInputError(
            f"`positions` must be in [0, {n}), got {int(rows.min())} to {int(rows.max())}; "
            f"were they chosen from another pool?"
        )
    return rows.astype(np.intp)


def one_each(
    name: str, values: object, n: int, *, above: float = -math.inf, advice: str = ""
) -> FloatArray:
    """Return one finite number a candidate, shape (n,), as a new float64 array.

    Args:
        name: How the message should call it.
        values: The numbers.
        n: How many candidates there are.
        above: What each must exceed. Default: any number.
        advice: The end of the message about a number that does not.

    Raises:
        InvalidInputError: If there are not n numbers, or one is not finite or not `above`.
    """
    numbers: FloatArray = as_finite_array(name, values, n_dimensions=1).astype(np.float64)
    if len(numbers) != n:
        raise InvalidInputError(
            f"`{name}` must have one number a candidate: {n} candidate(s), {len(numbers)} number(s)"
        )
    if not (numbers > above).all():
        first = int(np.argmin(numbers > above))
        raise InvalidInputError(
            f"`{name}` must be > {above:g}, got {numbers[first]:g} at {first}{advice}"
        )
    return numbers
