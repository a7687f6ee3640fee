"""A small gRPC server that answers Qdrant's queries over the client's local mode."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.grpc import (
    collections_pb2,
    collections_service_pb2_grpc,
    points_pb2,
    points_service_pb2_grpc,
)


class Points(points_service_pb2_grpc.PointsServicer):
    """The calls that a source makes to fetch."""

    def __init__(self, client):
        self.client = client
        self.lock = threading.Lock()  # the local mode is not made for threads

    def Query(self, request, context):
        (result,) = self.answers(request.collection_name, [request], context)
        return points_pb2.QueryResponse(result=result)

    def QueryBatch(self, request, context):
        results = self.answers(request.collection_name, request.query_points, context)
        return points_pb2.QueryBatchResponse(
            result=[points_pb2.BatchResult(result=result) for result in results]
        )

    def answers(self, collection, requests, context):
        asked = [GrpcToRest.convert_query_points(one) for one in requests]
        asked = [one.model_copy(update={"params": None}) for one in asked]  # local mode warns
        try:
            with self.lock:
                found = self.client.query_batch_points(collection, requests=asked)
        except ValueError as error:  # as the server says it of what it refuses
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"Wrong input: {error}")
        return [[RestToGrpc.convert_scored_point(hit) for hit in answer.points] for answer in found]


class Collections(collections_service_pb2_grpc.CollectionsServicer):
    """What a collection is like."""

    def __init__(self, client):
        self.client = client

    def Get(self, request, context):
        found = self.client.get_collection(request.collection_name)
        return collections_pb2.GetCollectionInfoResponse(
            result=RestToGrpc.convert_collection_info(found)
        )


@contextmanager
def serving_grpc(client):
    """Serve a local client on this machine; gives the port."""
    with ThreadPoolExecutor(8) as executor:
        server = grpc.server(executor)
        points_service_pb2_grpc.add_PointsServicer_to_server(Points(client), server)
        collections_service_pb2_grpc.add_CollectionsServicer_to_server(Collections(client), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


class Handler(grpc.GenericRpcHandler):
    """Answers every call by one function of request and context, in bytes."""

    def __init__(self, answer):
        self.answer = answer

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.answer)


@contextmanager
def serving_calls(answer):
    """Answer every call on a port of this machine by a function; gives a client's options."""
    with ThreadPoolExecutor(1) as executor:
        server = grpc.server(executor, handlers=[Handler(answer)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        options = {"url": "http://127.0.0.1", "prefer_grpc": True, "check_compatibility": False}
        try:
            yield {**options, "grpc_port": port, "timeout": 300}
        finally:
            server.stop(None).wait()
