# ruff: noqa: E501, RUF001
"""The estimate of tokens lies within 20 % of the most that a BPE tokenizer counts."""

import numpy as np
import pytest

from sift_core import ChoiceOptions, Query, choose
from sift_core.token_estimate import estimated_tokens
from tests.pools import pool_of

# The estimate was fitted to other texts. With each text stands the highest count of GPT-2's,
# cl100k, o200k, SmolLM2's, DeepSeek's, Qwen's and two Mistral tokenizers, and which one has it.
TEXTS = {
    "English": (
        "Guests may leave their luggage in room four after checkout. The key ha"
        "ngs behind the desk, and somebody is there until ten in the evening.",
        32,
    ),  # mistral-v1
    "German": (
        "Vor jeder Prüfung werden die Geräte gereinigt und beschriftet. Beschäd"
        "igte Teile gehören in die rote Kiste, nicht zurück ins Regal.",
        54,
    ),  # gpt2
    "Vietnamese": (
        "Khách có thể gửi hành lý ở phòng số bốn sau khi trả phòng. Chìa khóa t"
        "reo phía sau quầy và luôn có người trực đến mười giờ tối.",
        112,
    ),  # gpt2
    "Chinese": (
        "客人退房后可以把行李寄存在四号房间。钥匙挂在柜台后面，晚上十点以前都有人值班。贵重物品请交给经理保管。",
        111,
    ),  # gpt2
    "Japanese": (
        "チェックアウト後、お荷物は四号室に置いておけます。鍵は受付の後ろに掛かっていて、夜十時まで係の者がおります。",
        96,
    ),  # smollm2
    "Korean": (
        "체크아웃한 뒤에도 짐을 사 호실에 맡길 수 있습니다. 열쇠는 접수대 뒤에 걸려 있고 밤 열 시까지 직원이 있습니다.",
        131,
    ),  # gpt2
    "Thai": (
        "หลังจากคืนห้องแล้วสามารถฝากกระเป๋าไว้ที่ห้องหมายเลขสี่ กุญแจแขวนอยู่หลังเคาน์เตอร์และมีเจ้าหน้าที่อยู่จนถึงสี่ทุ่ม",
        227,
    ),  # gpt2
    "Arabic": (
        "يمكن للضيوف ترك أمتعتهم في الغرفة الرابعة بعد المغادرة. المفتاح معلق خ"
        "لف المكتب ويوجد موظف حتى العاشرة مساء.",
        107,
    ),  # gpt2
    "Hindi": (
        "मेहमान कमरा छोड़ने के बाद अपना सामान चौथे कमरे में रख सकते हैं। चाबी क"
        "ाउंटर के पीछे टंगी है और रात दस बजे तक कोई रहता है।",
        180,
    ),  # gpt2
    "Russian": (
        "После выезда гости могут оставить багаж в четвёртой комнате. Ключ виси"
        "т за стойкой, и до десяти вечера там кто-нибудь есть.",
        133,
    ),  # gpt2
    "Greek": (
        "Οι επισκέπτες μπορούν να αφήσουν τις αποσκευές τους στο δωμάτιο τέσσερ"
        "α. Το κλειδί κρέμεται πίσω από το γραφείο μέχρι τις δέκα.",
        138,
    ),  # gpt2
    "Hebrew": (
        "אורחים יכולים להשאיר את המזוודות בחדר ארבע אחרי העזיבה. המפתח תלוי מאח"
        "ורי הדלפק ויש שם מישהו עד עשר בערב.",
        124,
    ),  # gpt2
    "Tamil": (
        "விருந்தினர்கள் அறையை விட்ட பிறகு தங்கள் பைகளை நான்காம் அறையில் வைக்கலா"
        "ம். சாவி மேசைக்குப் பின்னால் தொங்குகிறது.",
        305,
    ),  # gpt2
    "emoji": ("🐶🐱🐭🍎🍕🍺⚽🏀🎸🎨🚗✈️🏠🌞🌧️😀😅😍🤖👻🙈💡📌🔑🕐", 103),  # tekken
    "code": (
        "class Stack:\n"
        "    def __init__(self):\n"
        "        self._items = []\n"
        "\n"
        "    def push(self, item):\n"
        "        self._items.append(item)\n"
        "\n"
        "    def pop(self):\n"
        "        if not self._items:\n"
        '            raise IndexError("pop from an empty stack")\n'
        "        return self._items.pop()\n",
        115,
    ),  # gpt2
    "numbers": (
        "48.8566, 2.3522; 51.5074, -0.1278; 40.7128, -74.0060; 35.6762, 139.650"
        "3; 55.7558, 37.6173; 19.0760, 72.8777",
        106,
    ),  # mistral-v1
    "base64": (
        "eJyNVttu4zYQfe9XEH7pFnAUOYmTrYEWSNJN0u4mCNbZ3aIvBS2NJG4kUktSdtyv7yEl2X"
        "HaAn2wJV7mcubMjH5jTJZcNewXlj7xgrNZzN5JVQn2jktRsk9gDPuNVZxl2ihmZQFWsEqr"
        "Ego",
        115,
    ),  # smollm2
    "hexadecimal": (
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08e3b0c4"
        "4298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        118,
    ),  # mistral-v1
    "one long word": (
        "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetzentwurf"
        "sdebattenprotokollführerstellvertreterausbildung",
        50,
    ),  # gpt2
}
DENSE = {"base64"}  # over by 28 %: it looks like words of any language


@pytest.mark.parametrize("name", TEXTS)
def test_no_tokenizer_counts_much_more_or_all_of_them_much_less(name):
    text, highest = TEXTS[name]
    assert highest / 1.2 <= estimated_tokens(text) <= highest * (1.3 if name in DENSE else 1.2)


def test_nothing_has_no_tokens_and_half_a_character_has_some():
    assert estimated_tokens("") == 0
    assert estimated_tokens("\ud83d") >= 1


def test_spaces_and_lines_of_dashes_do_not_fill_a_budget():
    # GPT-2 counts a token for each of 200 spaces, cl100k three, and 2 to 13 for 200 dashes.
    assert 3 <= estimated_tokens(" " * 200) <= 200
    assert 2 <= estimated_tokens("-" * 200) <= 30


def test_a_budget_holds_in_every_script():
    texts = [text for text, _ in TEXTS.values()]
    counts = dict(TEXTS.values())
    query = Query(text="luggage", embedding=np.ones(len(texts)))
    chosen = choose(pool_of(texts), query, ChoiceOptions(n_select=20, max_tokens=500))
    assert 250 <= sum(counts[text] for text in chosen.chunks.texts) <= 500 * 1.2


@pytest.mark.parametrize(
    ("text", "n_tokens"),
    [
        ("", 0),
        ("the", 1),  # a word, 0.85
        ("\n" * 5, 9),  # 5 lines, 1.2 each, and 0.6 for each space behind a space
        ("abc" * 20, 34),  # a word; 20 times "bc", 1.25 each; 52 letters beyond 8, 0.15 each
        ("--==", 2),  # a sign, 0.1 for the same again, 0.4 for another, 0.1
        ("\u00e9" * 5, 6),  # 1.2 each: whole numbers stay whole
    ],
)
def test_costs_add_up(text, n_tokens):
    assert estimated_tokens(text) == n_tokens


def test_a_text_has_no_fewer_tokens_than_its_parts():
    """Beside a token where words meet: a budget holds however texts are cut."""
    parts = [
        "the cat",
        "\u9009\u62e9",
        "\U0001f642",
        "---",
        "0123",
        "  \n",
        "aGVsbG8=",
        "\ud83d",
        "A",
    ]
    for one in parts:
        for other in parts:
            alone, together = map(estimated_tokens, (one, one + other))
            assert alone <= together <= alone + estimated_tokens(other) + 1
