"""Requests made up from the OpenAPI page: right ones, and ones with something wrong; no 500.

SIFT_CASES=2000 makes up more, other ones each time.
"""

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.service.servers import PATIENCE_S, SETTINGS, TEXTS

schemathesis = pytest.importorskip("schemathesis")

CASES = int(os.environ.get("SIFT_CASES", "400"))
WAYS = [f"{SETTINGS.model_name}{way}" for way in ("", ":context", ":fine_tune", ":both", ":base")]
LENGTHS = {"max_tokens", "max_completion_tokens"}
RIGHT, WRONG = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE


def _fill_in(case, embedder):
    """Change what nearly all would be refused for; half keep it as it is."""
    body = case.body
    if not isinstance(body, dict):
        return
    if isinstance(body.get("model"), str):
        ways = [embedder.name] if case.path == "/v1/embeddings" else WAYS
        body["model"] = ways[len(body["model"]) % len(ways)]
    if len(str(body)) % 2:
        short = {"messages": [{"role": "user", "content": TEXTS[0]}], "prompt": TEXTS[0]}
        short |= {"query": TEXTS[0], "documents": TEXTS, "texts": TEXTS, "input": TEXTS}
        body |= {name: right for name, right in short.items() if name in body}
        body.pop("embeddings", None)  # hardly ever as many as the documents
        body.pop("query_embedding", None)
        body.pop("response_format", None)
    sift = body.get("sift") if isinstance(body.get("sift"), dict) else {}
    sift.pop("mode", None)  # the model's name says it
    for part in (body, sift):
        for name in LENGTHS & part.keys():
            if type(part[name]) is int:
                part[name] %= 10  # 0 is refused, else a short answer


@pytest.mark.slow
# Our texts have no dates, and no keys of any other name.
@pytest.mark.filterwarnings("ignore::sift_core.errors.NothingFitsWarning")
@pytest.mark.filterwarnings("ignore::sift_core.errors.UndatedWarning")
@pytest.mark.filterwarnings("ignore::sift_core.errors.MissingKeyWarning")
def test_no_request_makes_the_service_fail(url, embedder):
    page = schemathesis.openapi.from_url(f"{url}/openapi.json")
    routes = [found.ok() for found in page.get_all_operations()]
    n_posts = sum(route.method == "post" for route in routes)
    statuses = Counter()
    for route in routes:
        for kind in (RIGHT, WRONG) if route.method == "post" else (RIGHT,):

            @settings(
                max_examples=CASES // (2 * n_posts),
                deadline=None,
                database=None,
                derandomize="SIFT_CASES" not in os.environ,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate, Phase.shrink],
            )
            @given(case=route.as_strategy(generation_mode=kind))
            def is_answered(case):
                _fill_in(case, embedder)
                answer = case.call(timeout=PATIENCE_S)
                statuses[case.path, answer.status_code] += 1
                assert answer.status_code < 500, answer.text
                if answer.status_code >= 400 and case.method != "HEAD":
                    assert set(answer.json()) & {"error", "message", "detail"}
                    assert "Traceback" not in answer.text

            is_answered()
    # The check means something where requests got through.
    assert {path for path, status in statuses if status == 200} >= {
        route.path for route in routes if "{" not in route.path
    }
