"""Bodies of OpenAI's clients, and the parts of a question to the engine in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field

from sift_core.errors import InvalidInputError
from sift_core.option_fields import LIVE, with_option_fields
from sift_core.service.errors import RefusedError
from sift_core.service.http import MAX_QUERIES, Body, ChoiceBody, FewKeys, Many
from sift_core.service.metadata import Filter
from sift_core.types import AnswerMode

MAX_MESSAGES = 2000  # each takes 20 µs to be checked, while nothing else is served
MAX_STOPS = 16
MAX_STOP = 1000  # characters; all that was written is compared with them at each token
MAX_TOOLS = 1000  # nothing of them is read
MAX_TEXTS = 16  # of one completion, which are written one after another
ModeName = Literal["auto", "base", "context", "fine_tune", "both", "learned", "learned_context"]


@with_option_fields(
    leave_out=("n_candidates", *LIVE),
    names={"n_select": "n_context", "max_tokens": "max_context_tokens"},
    nullable=True,
    changes={"n_select": {"le": 1000, "validation_alias": AliasChoices("n_context", "n_select")}},
)
class Sift(ChoiceBody):
    """Our fields beside OpenAI's: `extra_body={"sift": {…}}`.

    The engine's options are in force where these say nothing.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    mode: ModeName | None = None
    """How to answer, if the model's name does not say it."""
    effort: Literal["quick", "balanced", "thorough"] | None = None
    """How much to learn at most."""
    queries: Many[str] = Field(default=[], max_length=MAX_QUERIES)
    """Texts to search for in place of the question: its parts, or rewrites of it."""
    filter: Filter | None = None
    cite: bool | None = None
    """Number the chunks, and ask the model for marks such as [1]."""
    max_tokens: int | None = None
    """Length of the answer, for clients that cannot send OpenAI's own field."""
    latency_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds after which no training step begins."""
    passages: bool = False
    """Send with the event `chosen` of a stream the texts that are used, and why each was chosen."""
    session: str | None = Field(default=None, min_length=1, max_length=128)
    """Name of a conversation that learns once. Later questions find the model as it is then."""


def _check_texts(value: Any) -> Any:
    """Refuse tokens, which mean something to OpenAI's models alone, before any is looked at."""
    if isinstance(value, list) and value and not isinstance(value[0], str):
        raise ValueError(
            "must be text, got tokens, which are another model's; send the text itself (LangChain "
            "does with OpenAIEmbeddings(check_embedding_ctx_length=False))"
        )
    return value


_Texts = Annotated[str | Many[str], BeforeValidator(_check_texts)]


class StreamOptions(Body):
    """OpenAI's."""

    include_usage: bool = False


def _first_length(*lengths: int | None) -> int | None:
    return next((length for length in lengths if length is not None), None)


class Generation(Body):
    """What chats and completions share."""

    model: str
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: str | Many[str] | None = None
    max_tokens: int | None = None
    frequency_penalty: float | None = Field(default=None, ge=0, le=0)  # not served, as the next
    presence_penalty: float | None = Field(default=None, ge=0, le=0)
    logit_bias: Annotated[dict[str, float], FewKeys] | None = Field(default=None, max_length=0)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    chat_template_kwargs: Annotated[dict[str, Any], FewKeys] | None = None
    sift: Sift = Field(default_factory=Sift)

    def stops(self) -> list[str]:
        """Return the texts that end an answer."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > MAX_STOPS:
            raise RefusedError(f"`stop` must have at most {MAX_STOPS} texts", param="stop")
        if any(len(stop) > MAX_STOP for stop in stops):
            raise RefusedError(
                f"a text of `stop` must have at most {MAX_STOP:,} characters", param="stop"
            )
        return [stop for stop in stops if stop]

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def is_sampled(self) -> bool:
        """Whether the text is drawn at random; without a word it is the likeliest."""
        if self.temperature is None:
            return self.top_p is not None and self.top_p < 1
        return self.temperature > 0

    @property
    def length(self) -> int | None:
        """Return how many tokens the answer may have at most; 0 and -1 stand for any length."""
        return _first_length(self.sift.max_tokens, self.max_tokens)

    def mode(self, named: str | None) -> AnswerMode:
        """Return how to answer, by the model's name or `sift.mode`, which must not differ."""
        if named is not None and self.sift.mode not in (None, named):
            raise RefusedError(
                f"the model's name asks for {named!r} and `sift.mode` for {self.sift.mode!r}; "
                f"leave one out",
                param="sift.mode",
            )
        return AnswerMode(named or self.sift.mode or "auto")


class ChatMessage(Body):
    """One turn; `answering.chats` reads its role and its content."""

    role: str
    content: str | list[Any] | None = None


class ChatRequest(Generation):
    """POST /v1/chat/completions."""

    messages: Annotated[Many[ChatMessage], Field(max_length=MAX_MESSAGES)]
    n: Literal[1] | None = None
    max_completion_tokens: int | None = None
    # Open WebUI sends tools with each chat. None is called here, which "auto" allows.
    tools: list[Any] | None = Field(default=None, max_length=MAX_TOOLS)
    functions: list[Any] | None = Field(default=None, max_length=MAX_TOOLS)  # their former name
    tool_choice: Any = None
    function_call: Any = None
    logprobs: Literal[False] | None = None
    response_format: dict[str, Any] | None = None

    @property
    def length(self) -> int | None:
        """Return how many tokens the answer may have at most, as a completion's."""
        return _first_length(self.sift.max_tokens, self.max_completion_tokens, self.max_tokens)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of fields that have something which is not used."""
        return tuple(name for name in ("tools", "functions") if getattr(self, name))

    def turns(self) -> list[dict[str, Any]]:
        """Return the messages as they are.

        Raises:
            RefusedError: If something else than a text is asked for.
        """
        for name in ("tool_choice", "function_call"):
            if getattr(self, name) not in (None, "auto", "none"):
                raise RefusedError(
                    f"`{name}` must be 'auto' or 'none', or left out, since this service calls no "
                    f"tools; agents call it as a tool through `sift mcp`",
                    param=name,
                )
        if self.response_format and self.response_format.get("type") != "text":
            raise RefusedError(
                "`response_format` must be of type 'text'; no other is served",
                param="response_format",
            )
        return [{"role": one.role, "content": one.content} for one in self.messages]


class CompletionSift(Sift):
    """Our fields beside OpenAI's in a completion."""

    path: str | None = Field(default=None, min_length=1, max_length=4096)
    """The file that the prompt is from: no chunk of it from behind the prompt is read."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Tokens of the prompt's end that the model reads at most; half of its window if left out."""


class CompletionRequest(Generation):
    """POST /v1/completions: the prompt goes on as it stands, without a chat template.

    The model does not read `suffix`: a text ends where it comes to the first line of it, and no
    chunk is read that holds some of it.
    """

    prompt: _Texts
    suffix: str | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_TEXTS)
    echo: bool | None = None
    logprobs: Literal[0] | None = None  # not served
    best_of: Literal[1] | None = None
    sift: CompletionSift = Field(default_factory=CompletionSift)

    def prompts(self) -> list[str]:
        """Return the prompts, each as often as a text for it is asked for.

        Raises:
            RefusedError: If there is none, or there are too many.
        """
        prompts = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        prompts = [one for one in prompts for _ in range(self.n or 1)]
        if not 1 <= len(prompts) <= MAX_TEXTS:
            raise RefusedError(
                f"`prompt` must be 1 to {MAX_TEXTS} texts, times `n`, got {len(prompts):,}",
                param="prompt",
            )
        return prompts


class EmbeddingRequest(Body):
    """POST /v1/embeddings."""

    model: str
    input: _Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None

    def texts(self) -> Sequence[str]:
        """Return what to embed.

        Raises:
            InvalidInputError: If one is empty.
        """
        texts = [self.input] if isinstance(self.input, str) else self.input
        if not all(text.strip() for text in texts):
            raise InvalidInputError("`input` must not hold an empty text")
        return texts
