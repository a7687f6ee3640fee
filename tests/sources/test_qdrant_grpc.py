"""What a source makes of answers by gRPC is what it makes of the client's own."""

from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from sift_core.errors import CandidateSourceError
from sift_core.sources import QdrantSource
from sift_core.types import Query

qdrant_client = pytest.importorskip("qdrant_client")
models = qdrant_client.models
grpc = qdrant_client.grpc  # Qdrant's messages

from sift_core.sources.qdrant.points import dense_vectors  # noqa: E402
from sift_core.sources.qdrant.requests import points_of, send_by_grpc  # noqa: E402
from tests.sources.qdrant_grpc import serving_grpc  # noqa: E402
from tests.sources.stores import beside_others  # noqa: E402

QUERIES = [Query(text="?", embedding=[2.0, 0.1]), Query(text="!", embedding=[0.1, 2.0])]


@pytest.fixture
def clients():
    """A local client, and one that reaches it by gRPC."""
    with closing(qdrant_client.QdrantClient(":memory:")) as local, serving_grpc(local) as port:
        beside_others(local)
        remote = qdrant_client.QdrantClient(
            url="http://127.0.0.1", grpc_port=port, prefer_grpc=True, check_compatibility=False
        )
        with closing(remote):
            yield local, remote


@pytest.mark.parametrize("n_queries", [1, 2])
def test_bytes_are_read_as_the_client_reads_them(clients, n_queries):
    expected, found = (
        QdrantSource(client, "small", vector_name="dense").fetch_batch(QUERIES[:n_queries], 5)
        for client in clients
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.document_ids == theirs.document_ids
        assert ours.texts == theirs.texts
        assert ours.metadata == theirs.metadata
        assert ours.embeddings.dtype == np.float32
        np.testing.assert_array_equal(ours.embeddings, theirs.embeddings)
        np.testing.assert_array_equal(ours.similarities, theirs.similarities)


def test_texts_of_a_prefetch_are_left_to_the_client(clients, monkeypatch):
    _, remote = clients
    asked = []
    search = remote.query_points
    monkeypatch.setattr(remote, "query_points", lambda *a, **k: asked.append(k) or search(*a, **k))
    prefetch = {"vector_name": "dense", "prefetch": lambda query, n: models.Prefetch(limit=n)}
    source = QdrantSource(remote, "small", **prefetch)
    assert len(source.fetch(QUERIES[0], 2)) == 2
    assert len(asked) == 1


def only_hit(**vectors):
    """Return what is read of a point with these vectors."""
    point = grpc.ScoredPoint(id=grpc.PointId(num=7), vectors=grpc.VectorsOutput(**vectors))
    ((hit,),) = points_of(grpc.QueryResponse(result=[point]))
    return hit


def test_a_vector_in_the_older_form_is_read():
    assert only_hit(vector=grpc.VectorOutput(data=[1.0, 0.5])).vector == [1.0, 0.5]


@pytest.mark.parametrize(
    ("vectors", "got"),
    [
        ({}, "got none"),
        ({"vector": grpc.VectorOutput(dense=grpc.DenseVector(data=[1, 2, 3]))}, r"shape \(3,\)"),
        (
            {"vector": grpc.VectorOutput(sparse=grpc.SparseVector(values=[1.0], indices=[3]))},
            r"shape \(\)",
        ),
    ],
)
def test_a_point_without_the_vector_is_named(vectors, got):
    hits = [only_hit(vector=grpc.VectorOutput(dense=grpc.DenseVector(data=[1, 2])))]
    hits.append(only_hit(**vectors))
    with pytest.raises(CandidateSourceError, match=f"point 7 .* dense vector of 2 .*{got}"):
        dense_vectors(hits, dimension=2)


@pytest.mark.parametrize(("timeout", "seconds"), [(3, 3.0), (None, 60.0)])
def test_a_search_ends_after_the_clients_timeout_or_a_minute(timeout, seconds):
    class Points:
        """Qdrant's service as a stub has it; notes how long each call may take."""

        def __init__(self):
            self.timeouts = []

        def Query(self, request, timeout):
            self.timeouts.append(timeout)

        QueryBatch = Query

    client = SimpleNamespace(init_options={"timeout": timeout}, grpc_points=Points())
    request = models.QueryRequest(query=[1.0, 0.0], limit=2)
    for requests in ([request], [request, request]):
        send_by_grpc(client, "small", requests)
    assert client.grpc_points.timeouts == [seconds, seconds]
