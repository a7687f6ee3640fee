"""Every exception and warning that this library raises on purpose.

SiftError
├── InvalidInputError          also ValueError
├── MissingDependencyError     also ImportError; names what to install
├── NumericalError             also ArithmeticError
├── CandidateSourceError       wraps the store's exception
├── AnswerError                generation or fine-tuning failed
│   ├── GeneratorError         a server that writes the answers failed or refused
│   │   └── AdapterServerError a vLLM that writes with adapters failed or refused
│   └── BusyError              too many answers wait for the model already
└── ExperimentError            a run of an experiment cannot go on; what it measured is kept

and nine warnings, LossyVectorsWarning, MissingWordsWarning, AdapterCacheWarning,
SameVectorWarning, UndatedWarning, MissingKeyWarning, EmptyEntryWarning, NothingFitsWarning and
ReadAloneWarning: UserWarnings.
"""

from __future__ import annotations

from textwrap import shorten

from sift_core.installing import install_command


class SiftError(Exception):
    """Ancestor of all errors of this library; catch it to catch them all.

    Example:
        >>> try:
        ...     ChoiceOptions(n_select=0)
        ... except SiftError as error:
        ...     print(error)
        `n_select` must be >= 1, got 0
    """


class InvalidInputError(SiftError, ValueError):
    """An argument cannot be used; the message says what arrived and what is needed."""


class MissingDependencyError(SiftError, ImportError):
    """An optional dependency is not installed; the message says how to install it.

    Args:
        package: The distribution that could not be imported, for instance "faiss-cpu".
        extra: The extra of sift-rerank that installs it.
        install: The command that installs it, where no extra does.
    """

    def __init__(self, package: str, extra: str = "", *, install: str = "") -> None:
        command = install or install_command(extra)
        super().__init__(f"`{package}` could not be imported; install it with `{command}`")


class NumericalError(SiftError, ArithmeticError):
    """A computation left the range in which its result can be trusted."""


class CandidateSourceError(SiftError):
    """A vector store failed or answered with something that cannot be used.

    Args:
        message: What was wrong, where, and what to do.
        retry_after_s: Seconds after which the store said that it can be asked again; None
            where it said nothing.
        is_lasting: Whether it fails again if it is asked again, since the entries do not suit the
            arguments. Default: False.
    """

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, is_lasting: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after_s: float | None = retry_after_s
        self.is_lasting: bool = is_lasting


class ExperimentError(SiftError):
    """A run cannot go on: the file, a worker or the cluster failed. What was measured is kept."""


class AnswerError(SiftError):
    """Generating or fine-tuning failed; the base model is as it was before."""


class GeneratorError(AnswerError):
    """A server that writes the answers is gone, late, refused, or broke off.

    Args:
        message: What was wrong, where, and what to do.
        status: HTTP status. Default: no answer came, or it was not the server's fault.
        retry_after_s: Seconds after which the server said that it can be asked again. Default: it
            said nothing.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status: int | None = status
        self.retry_after_s: float | None = retry_after_s


class AdapterServerError(GeneratorError):
    """A vLLM that writes with adapters is gone, late or refused; what was learned is kept."""


class BusyError(AnswerError):
    """Too many answers wait for a model already; a server says "try again later" then."""


class LossyVectorsWarning(UserWarning):
    """A store gives back approximations of the vectors that it was given."""


class MissingWordsWarning(UserWarning):
    """A store was asked for words and keeps none; documents are found by vectors alone."""


class SameVectorWarning(UserWarning):
    """Most texts have one and the same vector: their embedder does not know their script."""


class UndatedWarning(UserWarning):
    """Some candidates have no date that can be read, and count as the oldest."""


class MissingKeyWarning(UserWarning):
    """No candidate has a metadata key: its rule does nothing, or no point passes its filter."""


class NothingFitsWarning(UserWarning):
    """No candidate is as short as `max_tokens` demands, so that nothing is chosen."""


class EmptyEntryWarning(UserWarning):
    """Some candidates have a vector of zeros, or no text, and are left out of the choice."""


class ReadAloneWarning(UserWarning):
    """What follows the chosen chunks could not be fetched, and they are read without it."""


class AdapterCacheWarning(UserWarning):
    """A cached adapter could not be read or written; the answer is as right, and took longer."""


class SeenFacts:
    """Facts that were warned of, so that each is warned of once. Threads may share it.

    Example:
        >>> seen = SeenFacts()
        >>> seen.add("no stored vectors"), seen.add("no stored vectors")
        (True, False)
    """

    def __init__(self) -> None:
        self._seen: dict[str, object] = {}

    def add(self, fact: str) -> bool:
        """Add a fact, for instance a message, and return whether it is new."""
        mark = object()
        return self._seen.setdefault(fact, mark) is mark  # of several threads, one is first


def reason_of(error: BaseException) -> str:
    """Return what a library's error says, in one line and at most 1,000 characters.

    Its first line is often a heading, and the reason follows it.
    """
    return shorten(str(error) or type(error).__name__, 1000, placeholder=" …")
