"""A window whose targets have the likeliest tokens of a teacher, and their loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sift_core.answering.model.text_model import Prompt
from sift_core.answering.model.training import TokenWindow
from sift_core.errors import AnswerError, MissingDependencyError

if TYPE_CHECKING:
    from sift_core.answering.model.language_model import LanguageModel

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("torch", extra="fine-tune") from error

N_TOP = 20  # Eyuboglu et al. (2025), section 4.2
LEAST_REST = 1e-6  # probability: below it lies rounding of the sum of the others


@dataclass(frozen=True, kw_only=True, eq=False)
class TaughtWindow(TokenWindow):
    """A window, and a teacher's likeliest tokens in place of each of its n targets.

    Args:
        places: The teacher's k likeliest tokens, shape (n, k), int32.
        probabilities: Those of `places`, shape (n, k), float32. Each row sums to at most 1.
    """

    places: torch.Tensor
    probabilities: torch.Tensor

    def losses_and_gradient(
        self, logits: torch.Tensor, rows: slice, weight: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the divergence KL(teacher, model) of some targets (n,), and its gradient.

        All tokens but the teacher's likeliest count as one token with the probability left. With
        probabilities p of the teacher and q of the model, the gradient at a logit is q - p for the
        likeliest, and q (1 - p_rest / q_rest) for all others.
        """
        places = self.places[rows].to(logits.device, torch.int64)
        taught = self.probabilities[rows].to(logits.device)
        gradient = torch.softmax(logits, dim=-1)
        own = gradient.gather(-1, places)
        rest = (1 - taught.sum(-1)).clamp(min=LEAST_REST)
        own_rest = (1 - own.sum(-1)).clamp(min=LEAST_REST)
        # xlogy: a token of no probability adds nothing
        terms = torch.xlogy(taught, taught) - torch.xlogy(taught, own.clamp(min=1e-30))
        losses = terms.sum(-1) + rest * (rest / own_rest).log()
        gradient.mul_((1 - rest / own_rest)[:, None]).scatter_(-1, places, own - taught)
        return losses, gradient.mul_(weight)


def taught_window(
    language_model: LanguageModel, *, teacher_prompt: Prompt, prompt: Prompt, reply: str
) -> TaughtWindow | None:
    """Return the window of a reply to `prompt`, taught by the model that reads `teacher_prompt`.

    Costs a forward pass. The result is None if the reply has no token, or does not fit into the
    window behind `teacher_prompt`.

    Raises:
        AnswerError: If the model fails.
    """
    targets = language_model.token_ids(reply)
    end = language_model.tokenizer.eos_token_id
    if targets and end is not None:
        targets = [*targets, end]
    lead = language_model.prompt_ids(teacher_prompt)
    if not targets or len(lead) + len(targets) > language_model.window:
        return None
    layers, device = language_model.layers, language_model.model.device
    inputs = torch.tensor([[*lead, *targets[:-1]]], device=device)
    try:
        with language_model.lock.held(), torch.inference_mode():
            hidden = layers.hidden(inputs)[0, -len(targets) :]
            found = layers.logits(hidden).softmax(-1)
            top = found.topk(min(N_TOP, found.shape[-1]), dim=-1)
    except RuntimeError as error:  # out of memory is one of them
        raise AnswerError(f"the model could not read a chunk: {error}") from error
    return TaughtWindow(
        inputs=[*language_model.prompt_ids(prompt), *targets[:-1]],
        targets=targets,
        places=top.indices.int().cpu().clone(),
        probabilities=top.values.cpu().clone(),
    )
