"""About how many tokens a text has, for any BPE tokenizer and in any script, without a tokenizer.

A budget must hold whatever model reads the texts. So the estimate lies near the upper edge of what
tokenizers count: GPT-2 and SmolLM2, whose vocabularies are small and English. Models with larger
vocabularies count fewer tokens of other scripts, down to a fifth of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# What follows a letter inside a word in 93 % of English prose, by the first letter. Other pairs
# split a word into tokens: those of other languages, of names, of base64.
_USUAL_PAIRS = (
    "abcdgiklmnprstuvy baeiouy caehiklotu dadeios eacdefilmnprstvx faeiort gaehosu haeimotu "
    "iabcdefglmnorstv kes ladeilostuy mabdeimopst nacdegiklostuy ocdfilmnoprstuvw paeilorty qu "
    "racdegikmnorsty saehiostuw taehimorstuy uabcelmnrst vae waehio xpt yot"
)
# The first character of a range, and the tokens of each character there.
_BEYOND_ASCII = (
    (0x80, 1.2),  # Latin with accents, Greek, Cyrillic
    (0x530, 1.9),  # Armenian
    (0x590, 1.2),  # Hebrew, Arabic
    (0x700, 2.0),  # Syriac, Thaana
    (0x900, 1.8),  # Devanagari
    (0x980, 2.7),  # Bengali to Sinhala
    (0xE00, 2.0),  # Thai
    (0xE80, 2.6),  # Lao to Mongolian
    (0x1E00, 2.5),  # Vietnamese, Greek with accents
    (0x2000, 1.8),  # punctuation, mathematics
    (0x2E80, 2.1),  # Chinese
    (0x3040, 1.5),  # Japanese syllables
    (0x3100, 2.1),
    (0xAC00, 2.6),  # Korean
    (0x10000, 3.5),  # emoji
)
_STARTS = np.array([start for start, _ in _BEYOND_ASCII])
_PER_TOKEN = 20  # costs are counted in twentieths, in whole numbers
_COSTS = np.array([0, *(round(_PER_TOKEN * cost) for _, cost in _BEYOND_ASCII)])
_SPACE, _DIGIT, _LETTER, _SYMBOL, _OTHER = range(5)
_TESTS = (str.isspace, str.isdigit, str.isalpha)
_N = 129  # of ASCII, and one for all other characters
_KINDS = np.array(
    [next((i for i, is_it in enumerate(_TESTS) if is_it(chr(c))), _SYMBOL) for c in range(128)]
    + [_OTHER]
)
_IS_LETTER = _KINDS == _LETTER


def _pair_costs() -> npt.NDArray[np.int16]:
    """Return what a character costs behind another one, shape (129 · 129,)."""
    is_usual = np.zeros((_N, _N), dtype=np.bool_)
    for letters in _USUAL_PAIRS.split():
        is_usual[ord(letters[0]), list(map(ord, letters[1:]))] = True
    codes = np.arange(_N)
    is_capital, small = _IS_LETTER & (codes < ord("a")), np.where(_IS_LETTER, codes | 32, codes)
    kind, is_same = _KINDS[None, :], _KINDS[:, None] == _KINDS
    is_letter, is_symbol = kind == _LETTER, kind == _SYMBOL
    is_again = codes[:, None] == codes
    costs = (
        0.85 * (is_letter & ~is_same)  # words
        + 1.25 * (is_letter & is_same & ~is_usual[small[:, None], small])
        + 0.3 * (is_capital[:, None] & is_capital)
        + 1.0 * (kind == _DIGIT)
        + 1.0 * (is_symbol & ~is_same)
        + 0.4 * (is_symbol & is_same & ~is_again)
        + 0.1 * (is_symbol & is_again)  # a line of dashes
        + 0.6 * ((kind == _SPACE) & is_same)  # indented code
        + 1.2 * (codes == ord("\n"))
    )
    whole: npt.NDArray[np.int16] = np.rint(_PER_TOKEN * costs).astype(np.int16)
    return whole.ravel()


_PAIR_COSTS = _pair_costs()
_LONG_COST = 3  # 0.15 tokens for each letter of a word beyond the eighth, whatever its pairs


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has by the BPE tokenizers that count most.

    Of eight tokenizers none counted over 20 % more, in 37 languages, source code, numbers, base64
    and hexadecimal digits: GPT-2's, cl100k, o200k, SmolLM2's, DeepSeek's, Qwen's and two of
    Mistral's. 1,000 characters take 0.02 ms.
    """
    beyond = 0
    codes: npt.NDArray[Any]
    if text.isascii():
        codes = np.frombuffer(f" {text}".encode(), dtype=np.uint8)
    else:
        every = np.frombuffer(f" {text}".encode("utf-32-le", "surrogatepass"), dtype="<u4")
        beyond = int(_COSTS[np.searchsorted(_STARTS, every, side="right")].sum())
        codes = np.minimum(every, _N - 1)
    pairs = codes[:-1].astype(np.int32) * _N + codes[1:]
    run = is_letter = _IS_LETTER[codes]
    for n in (1, 2, 4):  # the ends of 2, of 4 and of 8 letters in a row
        run = run[n:] & run[:-n]
    n_long = int(np.count_nonzero(run[1:] & is_letter[:-8]))
    total = int(_PAIR_COSTS[pairs].sum(dtype=np.int64)) + _LONG_COST * n_long + beyond
    return -(-total // _PER_TOKEN)
