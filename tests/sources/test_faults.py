"""Every way in which a server fails, met by the real remote clients over real sockets.

Each case ends in a `CandidateSourceError` with cause and advice within the client's timeout,
and the same source works again once the fault is over.
"""

import asyncio
import re
import ssl
from concurrent.futures import wait
from contextlib import closing, contextmanager, nullcontext

import httpx
import pytest

from sift_core.errors import CandidateSourceError, SiftError
from sift_core.sources import QdrantSource
from tests.sources import qdrant_faults as faults
from tests.sources.qdrant_faults import FAULTS, TIMEOUT_S
from tests.sources.stores import running_loop

qdrant_client = pytest.importorskip("qdrant_client")
trustme = pytest.importorskip("trustme")
models = qdrant_client.models

PATIENT_S = 300  # for clients whose timeout no fault is to meet
HANG_S = 600  # an answer that takes longer is a hang, and the test gives up
KEPT_ALIVE = httpx.Limits(max_connections=10, max_keepalive_connections=5)


class Asker:
    """A source over a real remote client: it works, fails while a fault lasts, and works again."""

    def __init__(self, client, loop):
        self.client, self.loop = client, loop
        self.source = QdrantSource(client, "docs")

    def pools(self, call, corpus):
        """Return what a call of the source brings; fail if it hangs."""
        queries = [corpus.query(seed) for seed in range(3)]
        single = call == "fetch"
        arguments = (queries[0] if single else queries, 5)
        if self.loop is None:
            future = faults.started(getattr(self.source, call), *arguments)
        else:
            awaited = getattr(self.source, f"a{call}")(*arguments)
            future = asyncio.run_coroutine_threadsafe(awaited, self.loop)
        if not wait([future], timeout=HANG_S).done:
            future.cancel()  # no thread can be: it ends with the connection
            pytest.fail(f"{call} hangs: no end within {HANG_S} s")
        return [future.result()] if single else future.result()


@contextmanager
def asking(kind, url, **options):
    """Give an asker over a client that is called or awaited."""
    settings = {"url": url, "timeout": PATIENT_S, "check_compatibility": False, **options}
    if kind == "sync":
        with closing(qdrant_client.QdrantClient(**settings)) as client:
            yield Asker(client, None)
        return
    with running_loop() as loop:
        client = qdrant_client.AsyncQdrantClient(**settings)
        try:
            yield Asker(client, loop)
        finally:
            asyncio.run_coroutine_threadsafe(client.close(), loop).result(HANG_S)


@pytest.fixture(params=["sync", "async"], scope="module")
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def asker(kind, shared_rest_server):
    """A source whose server's faults are switched on and off; the collection stays as it is."""
    with asking(kind, shared_rest_server.url, timeout=TIMEOUT_S) as asker:
        yield asker


def patience(name):
    """Return the timeout of a client that is to meet with a fault."""
    return TIMEOUT_S if FAULTS[name].cause == "timed out" else PATIENT_S


class Experiment:
    """What a source finds, and the error that it ends in while a fault lasts."""

    def __init__(self, asker, call, corpus):
        self.asker, self.call, self.corpus = asker, call, corpus

    @contextmanager
    def in_a_hurry(self):
        """Have the client wait no longer than one that is to meet with a fault."""
        options = self.asker.client.init_options
        before = options["timeout"]
        options["timeout"] = TIMEOUT_S
        yield
        options["timeout"] = before

    def works(self):
        """Return what is found; a busy machine may take longer than the client waits."""
        for n_left in reversed(range(60)):
            try:
                pools = self.asker.pools(self.call, self.corpus)
                break
            except CandidateSourceError as error:
                if "timed out" not in str(error) or not n_left:
                    raise
        assert [len(pool) for pool in pools] == [5] * len(pools)
        return [pool.document_ids for pool in pools]

    def fails(self, cause, advice, retry_after_s=None, has_cause=True):
        """Assert that the call ends in the right error in time; return the message.

        A busy machine may take longer than the client waits: then it is called again.
        """
        for n_left in reversed(range(60)):
            with pytest.raises(CandidateSourceError) as caught:
                self.asker.pools(self.call, self.corpus)
            if cause == "timed out" or "timed out" not in str(caught.value) or not n_left:
                break
        assert_told(caught.value, cause, advice, retry_after_s)
        assert (caught.value.__cause__ is not None) == has_cause
        return str(caught.value)


def assert_told(error, cause, advice, retry_after_s=None):
    """Assert that an error has the place, the cause and, after it, the advice."""
    message = str(error)
    assert "'docs'" in message
    told = re.search(cause, message)
    assert told, message
    assert re.search(advice, message[told.end() :]), message
    if retry_after_s is None:
        assert error.retry_after_s is None
    else:
        low, high = retry_after_s
        assert low <= error.retry_after_s <= high


@pytest.fixture(params=["fetch", "fetch_batch"])
def call(request):
    return request.param


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_in_an_error_in_time_and_is_forgotten(shared_rest_server, kind, corpus, name):
    fault, *told = FAULTS[name]
    # A batch is asked, and fails, in the same lines.
    call = "fetch_batch" if name == "one answer too few" else "fetch"
    with asking(kind, shared_rest_server.url, timeout=patience(name)) as asker:
        experiment = Experiment(asker, call, corpus)
        found = experiment.works()
        shared_rest_server.fail(fault)
        try:
            experiment.fails(*told)
        finally:
            shared_rest_server.fail(None)
        assert experiment.works() == found


@pytest.mark.parametrize(
    "name",
    ["closed before any byte", "killed in mid-response", "truncated JSON", "first byte too late"],
)
def test_a_fault_on_a_connection_that_is_kept_alive(rest_server, kind, corpus, name):
    fault, *told = FAULTS[name]
    with asking(kind, rest_server.url, limits=KEPT_ALIVE) as asker:
        experiment = Experiment(asker, "fetch", corpus)
        found = [experiment.works() for _ in range(3)]
        assert rest_server.n_connections == 1
        rest_server.fail(fault, first=2, times=1)
        assert experiment.works() == found[0]
        with experiment.in_a_hurry() if FAULTS[name].cause == "timed out" else nullcontext():
            experiment.fails(*told)
        assert experiment.works() == found[0]


def test_a_slow_answer_within_the_timeout_is_an_answer(shared_rest_server, asker, corpus, call):
    experiment = Experiment(asker, call, corpus)
    found = experiment.works()
    shared_rest_server.fail(faults.late(0.3), times=1)
    assert experiment.works() == found


def test_an_answer_without_points_is_no_empty_pool(shared_rest_server, asker, corpus, call):
    shared_rest_server.fail(faults.altered(lambda points: []), times=1)
    with pytest.raises(SiftError, match="'docs'"):
        asker.pools(call, corpus)


def test_asking_what_the_collection_has_costs_no_second_timeout(shared_rest_server, asker, corpus):
    def refused_late_and_then_silent(call):
        if call.command == "POST":
            call.server.stopping.wait(0.7 * TIMEOUT_S)
            faults.WRONG_DIMENSION(call)
        else:
            faults.late(60)(call)

    experiment = Experiment(asker, "fetch", corpus)
    experiment.works()
    shared_rest_server.fail(refused_late_and_then_silent)
    try:
        experiment.fails(cause="expected dim: 4", advice=faults.MODEL)
    finally:
        shared_rest_server.fail(None)


@pytest.fixture
def experiment(rest_server, kind, call, corpus):
    """A source with a server of its own."""
    with asking(kind, rest_server.url) as asker:
        yield Experiment(asker, call, corpus)


def test_a_collection_deleted_between_two_calls(experiment, qdrant, refill):
    found = experiment.works()
    qdrant.delete_collection("docs")
    cause = "404.*Not found: Collection `docs` doesn't exist!"
    experiment.fails(cause=cause, advice="create the collection|name")
    refill(qdrant)
    assert experiment.works() == found


def test_a_collection_recreated_with_another_dimension_between_two_calls(
    experiment, qdrant, refill
):
    found = experiment.works()
    qdrant.delete_collection("docs")
    four = models.VectorParams(size=4, distance=models.Distance.COSINE)
    qdrant.create_collection("docs", vectors_config=four)
    message = experiment.fails(cause="400.*expected dim: 4, got 16", advice=faults.MODEL)
    assert "'' of 4" in message
    qdrant.delete_collection("docs")
    refill(qdrant)
    assert experiment.works() == found


def test_a_server_that_stops_and_comes_back_on_its_port(experiment, rest_server):
    found = experiment.works()
    rest_server.stop()
    experiment.fails(cause="refused|ConnectError", advice=faults.SERVER_UP)
    rest_server.start()
    assert experiment.works() == found


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(authority):
    """What a client that trusts the authority is made with."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return {"verify": context}


def certified(authority, name="127.0.0.1"):
    """Return a server's context with a certificate for a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@contextmanager
def an_experiment_with_tls(kind, url, corpus, options):
    with asking(kind, url.replace("http:", "https:"), **options) as asker:
        yield Experiment(asker, "fetch", corpus)


@pytest.mark.parametrize("fault", ["no TLS", "untrusted certificate", "another host's certificate"])
def test_a_server_whose_tls_is_wrong(rest_server, kind, corpus, authority, trusting, fault):
    right = certified(authority)
    wrong, cause = {
        "no TLS": (None, "SSL"),
        "untrusted certificate": (certified(trustme.CA()), "CERTIFICATE_VERIFY_FAILED"),
        "another host's certificate": (
            certified(authority, "elsewhere.example"),
            "CERTIFICATE_VERIFY_FAILED.*127.0.0.1",
        ),
    }[fault]
    arguments = (kind, rest_server.url, corpus, trusting)
    with an_experiment_with_tls(*arguments) as experiment:
        rest_server.tls = right
        found = experiment.works()
        rest_server.tls = wrong
        experiment.fails(cause=cause, advice=faults.CERTIFICATE)
        rest_server.tls = right
        assert experiment.works() == found


@pytest.mark.parametrize(
    ("key", "cause"),
    [(None, "401.*Must provide an API key"), ("wrong", "401.*Invalid API key")],
)
def test_an_api_key_that_is_refused(rest_server, kind, corpus, authority, trusting, key, cause):
    options = {**trusting, **({"api_key": key} if key else {})}
    arguments = (kind, rest_server.url, corpus, options)
    rest_server.tls = certified(authority)
    with an_experiment_with_tls(*arguments) as experiment:
        found = experiment.works()
        rest_server.api_key = "right"
        experiment.fails(cause=cause, advice=faults.KEY)
        rest_server.api_key = key
        assert experiment.works() == found


WRITES = {
    "prepare": lambda source, corpus: source.prepare(embedder_name="model-a", dimension=16),
    "content_ids": lambda source, corpus: source.content_ids(),
    "add": lambda source, corpus: source.add(
        ["5b0b0000-0000-4000-8000-00000000000a"], corpus.documents[:1], corpus.embeddings[:1]
    ),
    "remove": lambda source, corpus: source.remove(["5b0b0000-0000-4000-8000-00000000000a"]),
}


WRITE_FAULTS = [
    "closed before any byte",
    "killed in mid-response",
    "truncated JSON",
    "429, retry in 7 s",
    "429, retry at a date",
    "500, disk full",
    "200 with a proxy's page",
    "result is null",
]
SLOW_WRITES = [("first byte too late", "add"), ("body byte by byte", "add")]


@pytest.mark.parametrize(
    ("name", "action"),
    [*((name, action) for name in WRITE_FAULTS for action in WRITES), *SLOW_WRITES],
)
def test_a_fault_while_writing_ends_in_an_error(rest_server, corpus, name, action):
    case = FAULTS[name]
    with asking("sync", rest_server.url, timeout=patience(name)) as asker:
        rest_server.fail(case.fault)
        future = faults.started(WRITES[action], asker.source, corpus)
        assert wait([future], timeout=HANG_S).done, "hangs"
        with pytest.raises(CandidateSourceError) as caught:
            future.result()
        assert_told(caught.value, case.cause, case.advice, case.retry_after_s)
        assert caught.value.__cause__ is not None
        rest_server.fail(None)
        WRITES[action](asker.source, corpus)
