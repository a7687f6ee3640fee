"""What a Qdrant server, or what stands before it, does wrong, and what an error must tell of it."""

import json
import threading
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import NamedTuple

JSON = {"Content-Type": "application/json"}
TIMEOUT_S = 1  # of the clients in the tests: the least there is, as they count in whole seconds

# Faults are functions of a call. Each answers it in its own way, or not at all.


def dropped(call):
    """Close the connection before any byte."""
    call.drop()


def cut(call):
    """Die in the middle of the answer."""
    status, headers, body = call.genuine()
    call.wfile.write(call.head(status, headers, len(body)) + body[: len(body) // 2])
    call.drop(reset=True)


def truncated(call):
    """Send half of the JSON as if it were all."""
    status, headers, body = call.genuine()
    call.respond(status, headers, body[: len(body) // 2])


def late(delay_s):
    """Return the fault of a right answer whose first byte comes `delay_s` late."""

    def fault(call):
        if call.server.stopping.wait(delay_s):
            call.drop()
        else:
            with suppress(OSError):  # the client gave up waiting
                call.respond(*call.genuine())

    return fault


def trickled(part, pause_s=0.05):
    """Return the fault of an answer that comes byte by byte, from its "head" or "body" on."""

    def fault(call):
        head = call.head(200, {**JSON, "X-Fill": "x" * 4000}, 10**6)
        if part == "body":
            call.wfile.write(head)
        with suppress(OSError):  # the client gave up waiting
            for byte in head if part == "head" else b" " * 10**6:
                if call.server.stopping.wait(pause_s):
                    break
                call.wfile.write(bytes([byte]))
        call.drop()

    return fault


def answered(status, body, headers=None):
    """Return the fault of a fixed answer: bytes, or what is to become JSON."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()

    def fault(call):
        call.respond(status, {**JSON, **(headers or {})}, encoded)

    return fault


def refused(status, error, headers=None):
    """Return the fault of a refusal in Qdrant's form."""
    return answered(status, {"status": {"error": error}, "time": 0.0}, headers)


def redirected(call):
    """Send the client to the place that it came from."""
    call.respond(307, {"Location": call.path}, b"")


def altered(change):
    """Return the fault of a right answer of which `change` was made of every result's points."""

    def fault(call):
        status, headers, body = call.genuine()
        content = json.loads(body)
        results = content["result"]
        for result in results if isinstance(results, list) else [results]:
            result["points"] = change(result["points"])
        call.respond(status, headers, json.dumps(content).encode())

    return fault


def altered_vectors(change):
    """Return the fault of a right answer with other vectors."""
    return altered(lambda points: [{**p, "vector": change(p["vector"])} for p in points])


def fewer_results(call):
    """Answer a batch without its last result."""
    status, headers, body = call.genuine()
    content = json.loads(body)
    content["result"] = content["result"][:-1]
    call.respond(status, headers, json.dumps(content).encode())


SERVER_UP = "server up"
ASK_AGAIN = "ask again|later"
RAISE_TIMEOUT = "`timeout`"
KEY = "`api_key`"
ADDRESS = "address|version"
CERTIFICATE = "certificate|https"
MODEL = "model|dimension"
VECTOR = "`vector_name`"


class Fault(NamedTuple):
    """What a server does wrong, and what the error must tell of it."""

    fault: object  # for `RestServer.fail`
    cause: str  # regular expression of the cause in the message
    advice: str  # and of what to do
    retry_after_s: tuple | None = None  # range of seconds that the error must state
    has_cause: bool = True  # whether an exception of the client lies behind the error


def busy(hint, retry_after_s):
    """Return the fault of a server that refuses for now; `hint` makes a Retry-After anew."""
    return Fault(
        lambda call: refused(429, "Too many requests", {"Retry-After": hint()})(call),
        "429.*([Tt]oo [Mm]any|Retry-After)",
        ASK_AGAIN,
        retry_after_s,
    )


def in_an_hour():
    return format_datetime(datetime.now(timezone.utc) + timedelta(hours=1), usegmt=True)


def result(content):
    return answered(200, {"result": content, "status": "ok", "time": 0.0})


WRONG_DIMENSION = refused(400, "Wrong input: Vector dimension error: expected dim: 4, got 16")
FAULTS = {
    "closed before any byte": Fault(dropped, "disconnected|closed", ASK_AGAIN),
    "killed in mid-response": Fault(cut, "reset|closed|ReadError", ASK_AGAIN),
    "truncated JSON": Fault(truncated, "JSON|Expecting|Unterminated", ADDRESS),
    "first byte too late": Fault(late(60), "timed out", RAISE_TIMEOUT),
    "body byte by byte": Fault(trickled("body"), "timed out", RAISE_TIMEOUT),
    "head byte by byte": Fault(trickled("head"), "timed out", RAISE_TIMEOUT),
    "429, retry in 7 s": busy(lambda: "7", (7, 7)),
    "429, retry at a date": busy(in_an_hour, (3000, 3601)),
    "500, disk full": Fault(
        refused(500, "Service internal error: No space left on device"), "500.*No space left", "log"
    ),
    "200 with a proxy's page": Fault(
        answered(200, b"<html>Please log in</html>"), "JSON|Expecting", ADDRESS
    ),
    "200 with gzip that is none": Fault(
        answered(200, b"\x1f\x8bgarbage", {"Content-Encoding": "gzip"}),
        "[Dd]ecod|decompress",
        ADDRESS,
    ),
    "redirect to itself": Fault(redirected, "307|redirect", ADDRESS),
    "wrong dimension refused": Fault(WRONG_DIMENSION, "expected dim: 4, got 16", MODEL),
    "result is null": Fault(result(None), "None|null|no result|not Qdrant", ADDRESS),
    "result is empty": Fault(result({}), "points|not Qdrant", ADDRESS),
    "points without a score": Fault(
        altered(lambda points: [{"id": p["id"]} for p in points]), "score|not Qdrant", ADDRESS
    ),
    "points without a vector": Fault(
        altered_vectors(lambda vector: None), "point .* got none", VECTOR, has_cause=False
    ),
    "vectors of 15 numbers": Fault(
        altered_vectors(lambda vector: vector[:-1]), r"point .*\(15,\)", VECTOR, has_cause=False
    ),
    "vectors with NaN": Fault(
        altered_vectors(lambda vector: [float("nan"), *vector[1:]]), "finite|NaN", "points|vectors"
    ),
    "vectors beyond float32": Fault(
        altered_vectors(lambda vector: [1e300, *vector[1:]]), "finite|inf|range", "points|vectors"
    ),
    "payload without a text": Fault(
        altered(lambda points: [{**p, "payload": {}} for p in points]),
        "point .* no text",
        "`text_key`",
        has_cause=False,
    ),
    "one answer too few": Fault(fewer_results, "2 .* 3", ADDRESS, has_cause=False),
}


def started(function, *arguments):
    """Return the future of a call in a thread that keeps nobody waiting if it hangs."""
    future = Future()
    future.set_running_or_notify_cancel()  # from here on, it cannot be cancelled

    def run():
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # handed to whoever waits
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
