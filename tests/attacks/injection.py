"""What others wrote stays data: it steers no terminal, runs no code, opens no turn."""

import json
from contextlib import closing

import faiss as library
from qdrant_client import QdrantClient
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from sift_core.answering.model.prompt_tokens import chat_chunk, prompt_ids, text_ids
from sift_core.sources import FaissSource
from sift_core.testing import HashingEmbedder
from sift_core.types import Document
from tests.answering.shapes import byte_tokenizer
from tests.answering.test_prompt_tokens import ATTACKS as CHUNKS
from tests.answering.test_prompt_tokens import KINDS
from tests.attacks.commands import sift
from tests.attacks.frame import Failed
from tests.documents.kill_indexing import documents_of
from tests.sources.qdrant_faults import refused
from tests.sources.qdrant_rest import serving

ESCAPES = ("\x1b[2J", "\x1b]0;t\x07", "\x9b31m", "\r", "\b\b", "\u202e", "\x1bP1$r\x1b\\", "\x7f")
MINILM = "all-MiniLM-L6-v2"
READING = (("search", "cats"), ("doctor",), ("doctor", "--json"), ("diagnose",), ("index", "a.md"))


def written(rng):
    """Return words with escapes among them."""
    parts = [rng.choice([*ESCAPES, "cats", "[bold]", ":smile:", "\t"]) for _ in range(5)]
    return "cats " + "".join([*parts, rng.choice(ESCAPES)])


def terminal(rng, folder):
    """Escapes in names, texts, settings, arguments and stores."""
    name, way = written(rng).replace("/", ""), rng.choice(("names", "settings", "store", "columns"))
    if way == "names":
        (folder / name).mkdir()
        (folder / name / f"{name}.md").write_text(f"# {name}\n\nCats {written(rng)}.\n")
        (folder / name / f"{name}.pdf").write_text("no PDF")
        for command in (("index", name), ("search", name), ("index", f"{name}/{name}.pdf")):
            sift(folder, *command).checked()
        command = rng.choice(("search", "index", "doctor", "ask", "diagnose"))
        option = rng.choice(("--store", "--embedder", "--model", "-n", name))
        sift(folder, command, name, option, name).checked()
        sift(folder, "--config", name, command, name).checked()
    elif way == "settings":
        key, value = rng.choice(("store", "embedder", "model", name)), json.dumps(name)
        for text in (f"{json.dumps(key)} = {value}\n", f"[{value}]\n", name):
            (folder / "mine.toml").write_text(text)
            settings = {"SIFT_CONFIG": "mine.toml", "SIFT_MODEL": name}
            sift(folder, *rng.choice(READING), settings=settings).checked()
    elif way == "store":
        one = Document(document_id=written(rng), text=written(rng), metadata={"source": name})
        stored(folder / ".sift", [one], rng.choice([name, MINILM]))
        (folder / "a.md").write_text("Cats purr.\n")
        for command in READING:
            sift(folder, *command).checked()
    else:
        settings = {"COLUMNS": rng.choice(["0", "1", "-3", "x", "9" * 30, ""])}
        sift(folder, "search", "cats", settings=settings).checked(2)


def stored(folder, documents, embedder_name):
    """Save documents in a Faiss folder, as embedded by a model of this name."""
    index = library.IndexFlatIP(384)
    texts = [f"cats {document.text}" for document in documents]
    index.add(HashingEmbedder(384).embed_documents(texts))
    FaissSource(index, documents, embedder_name=embedder_name).save(folder)


def received(rng, folder):
    """A folder from elsewhere whose index names a model in it: no code of that model runs."""
    mark, model = folder.parent / "ran", folder / "model"
    pickled = f"cos\nmkdir\n(V{mark}\ntR.".encode()  # makes a folder when it is read
    model.mkdir()
    modules = [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}
    (model / "evil.py").write_text(f"import os\nos.mkdir({str(mark)!r})\nclass Evil: pass\n")
    (model / "modules.json").write_text(json.dumps(modules))
    (model / "config.json").write_text(json.dumps(config))
    if rng.random() < 0.5:  # else the loader gets as far as the code
        (model / "pytorch_model.bin").write_bytes(pickled)
    (folder / "a.md").write_text("Cats purr.\n")
    name = rng.choice(["./model", "model", str(model)])
    stored(folder / ".sift", documents_of(0)[:2], name)
    index = ("index", "a.md", "--prune")
    command = rng.choice((index, ("search", "cats"), ("ask", "cats?", "--model", name)))
    named = rng.choice(((), ("--embedder", name)))  # also if the user believes the index
    ended = sift(folder, *command, *named)
    if mark.exists():
        raise Failed(f"ran code: sift {' '.join((*command, *named))}; {ended.err[-200:]}")
    ended.checked()


def control_tokens(rng, folder):
    """A chunk that spells control tokens is read as letters, whatever role the tokens have."""
    template, special, added = KINDS[rng.choice(sorted(KINDS))]
    end = rng.choice(["</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<unk>", *special])
    roles = {name: end for name in ("bos", "eos", "unk", "pad") if rng.random() < 0.6}
    roles = {f"{name}_token": token for name, token in {"eos": "</s>", **roles}.items()}
    backend = Tokenizer.from_str(byte_tokenizer().backend_tokenizer.to_str())
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **roles)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.add_tokens(list(added))
    tokenizer.chat_template = template.replace("bos_token", "bos_token|default('')")
    words = [*special, *added, end, "</s>", "<s>", " ", "\n", "of tea", "\U0001f375", "<|", "|>"]

    def controls(ids):
        return [token for token in tokenizer.convert_ids_to_tokens(ids) if len(token) > 1]

    for _ in range(10):
        text = "".join(rng.choice([*words, *CHUNKS.values()]) for _ in range(rng.randint(1, 6)))
        ids, place = text_ids(tokenizer, text), f"{roles}, {template[:20]}, {text!r}"
        if controls(ids) or tokenizer.decode(ids) != text:
            raise Failed(f"{controls(ids)}, or other letters, in the tokens of {place}")
        for make in (
            lambda content: prompt_ids(tokenizer, content, 0),
            lambda content: chat_chunk(tokenizer, content, "Tell me.")[1],
            lambda content: chat_chunk(tokenizer, "of tea", content)[0],
        ):
            if controls(make("of tea")) != controls(make(text)):
                raise Failed(f"{controls(make(text))} in the chat of {place}")


def secrets(rng, folder):
    """No secret is printed: of an address, of the environment, of what a server echoes."""
    secret, command = f"s3cret{rng.getrandbits(40)}", rng.choice(READING)
    forms = "qdrant://user:{}@host qdrant:http://user:{}@127.0.0.1:9 faiss://user:{}@host"
    forms += " qdrant:https://127.0.0.1:9/?api_key={} qdrant:http://127.0.0.1:9?{} user:{}@host"
    forms += " qdrant:user:{}@host:6333 qdrant:http:/user:{}@host"
    (folder / "a.md").write_text("Cats purr.\n")
    settings = {"QDRANT_API_KEY": secret, "HF_TOKEN": secret}
    with closing(QdrantClient(":memory:")) as client, serving(client) as server:
        says = f"the key {secret} is wrong{written(rng)}"
        server.fail(refused(rng.choice([400, 401, 403, 404, 500, 503]), says))
        forms = [*forms.split(" "), *[f"qdrant:{server.url}"] * 3]
        place = rng.choice(forms).format(secret)
        (folder / "mine.toml").write_text(f"store = {json.dumps(place)}\n")
        given = rng.choice([("--store", place), ("--config", "mine.toml"), ()])
        command = [*given, *command] if "--config" in given else [*command, *given]
        settings |= {} if given else {"SIFT_STORE": place}
        told = sift(folder, *command, settings=settings)
    if secret in told.out + told.err or any(secret in path.name for path in folder.rglob("*")):
        raise Failed(f"{' '.join(command)} shows it: {told.err}".replace(secret, "SECRET"))
    told.checked()


ATTACKS = (terminal, received, control_tokens, secrets)
