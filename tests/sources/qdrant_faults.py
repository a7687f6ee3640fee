"""What a Qdrant server, or what stands before it, does wrong, and what an error must tell of it."""

import json
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

JSON = {"Content-Type": "application/json"}
NO_TIME = "past or negative"  # a Retry-After that is as good as none
TIMEOUT_S = 1  # of the clients in the tests: the least there is, as they count in whole seconds

# Faults are functions of a call. Each answers it in its own way, or not at all.


def dropped(call):
    """Close the connection before any byte."""
    call.drop()


def reset(call):
    """Reset the connection before any byte."""
    call.drop(reset=True)


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


def in_seconds(seconds):
    """Return the hint to ask again at an HTTP date some seconds from now."""
    then = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    return {"Retry-After": format_datetime(then, usegmt=True)}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a server does wrong, and what the error must tell of it.

    Args:
        fault: For `RestServer.fail`.
        cause: Regular expression of the cause in the message.
        advice: Regular expression of what to do.
        retry_after_s: Range of seconds that the error must state, None, or NO_TIME.
        calls: The calls that can meet with it.
        has_cause: Whether an exception of the client lies behind the error.
    """

    fault: object
    cause: str
    advice: str
    retry_after_s: tuple | str | None = None
    calls: tuple = ("fetch", "fetch_batch")
    has_cause: bool = True


def busy(status, headers, retry_after_s=None):
    """Return the fault of a server that refuses for now; `headers` makes the hint anew."""
    return Fault(
        fault=lambda call: refused(status, "Too many requests", headers and headers())(call),
        cause=f"{status}.*([Tt]oo [Mm]any|Retry-After)",
        advice=ASK_AGAIN,
        retry_after_s=retry_after_s,
    )


FAULTS = {
    "closed before any byte": Fault(fault=dropped, cause="disconnected|closed", advice=ASK_AGAIN),
    "killed in mid-response": Fault(fault=cut, cause="reset|closed|ReadError", advice=ASK_AGAIN),
    "truncated JSON": Fault(fault=truncated, cause="JSON|Expecting|Unterminated", advice=ADDRESS),
    "first byte too late": Fault(
        fault=late(TIMEOUT_S + 1.5), cause="timed out", advice=RAISE_TIMEOUT
    ),
    "body byte by byte": Fault(fault=trickled("body"), cause="timed out", advice=RAISE_TIMEOUT),
    "head byte by byte": Fault(
        fault=trickled("head"), cause="timed out", advice=RAISE_TIMEOUT, calls=("fetch",)
    ),
    "429, retry in 7 s": busy(429, lambda: {"Retry-After": "7"}, (7, 7)),
    "429, retry at a date": busy(429, lambda: in_seconds(40), (30, 41)),
    "500, disk full": Fault(
        fault=refused(500, "Service internal error: No space left on device"),
        cause="500.*No space left",
        advice="log",
    ),
    "200 with a proxy's page": Fault(
        fault=answered(200, b"<html>Please log in</html>"),
        cause="JSON|Expecting",
        advice=ADDRESS,
    ),
    "200 with gzip that is none": Fault(
        fault=answered(200, b"\x1f\x8bgarbage", {"Content-Encoding": "gzip"}),
        cause="[Dd]ecod|decompress",
        advice=ADDRESS,
    ),
    "redirect to itself": Fault(fault=redirected, cause="307|redirect", advice=ADDRESS),
    "wrong dimension refused": Fault(
        fault=refused(400, "Wrong input: Vector dimension error: expected dim: 4, got 16"),
        cause="expected dim: 4, got 16",
        advice=MODEL,
    ),
    "result is null": Fault(
        fault=answered(200, {"result": None, "status": "ok", "time": 0.0}),
        cause="None|null|no result|not Qdrant",
        advice=ADDRESS,
    ),
    "result is empty": Fault(
        fault=answered(200, {"result": {}, "status": "ok", "time": 0.0}),
        cause="points|not Qdrant",
        advice=ADDRESS,
    ),
    "points without a score": Fault(
        fault=altered(lambda points: [{"id": p["id"]} for p in points]),
        cause="score|not Qdrant",
        advice=ADDRESS,
    ),
    "points without a vector": Fault(
        fault=altered_vectors(lambda vector: None),
        cause="point .* got none",
        advice=VECTOR,
        has_cause=False,
    ),
    "vectors of 15 numbers": Fault(
        fault=altered_vectors(lambda vector: vector[:-1]),
        cause=r"point .*\(15,\)",
        advice=VECTOR,
        has_cause=False,
    ),
    "vectors with NaN": Fault(
        fault=altered_vectors(lambda vector: [float("nan"), *vector[1:]]),
        cause="finite|NaN",
        advice="points|vectors",
    ),
    "vectors beyond float32": Fault(
        fault=altered_vectors(lambda vector: [1e300, *vector[1:]]),
        cause="finite|inf|range",
        advice="points|vectors",
    ),
    "payload without a text": Fault(
        fault=altered(lambda points: [{**p, "payload": {}} for p in points]),
        cause="point .* no text",
        advice="`text_key`",
        has_cause=False,
    ),
    "one answer too few": Fault(
        fault=fewer_results,
        cause="2 .* 3",
        advice=ADDRESS,
        calls=("fetch_batch",),
        has_cause=False,
    ),
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
