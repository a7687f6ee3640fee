import httpx
import pytest

from sift_core import InvalidInputError
from sift_core.addresses import http_client, is_loopback

HERE = ["localhost", "LOCALHOST.", "app.localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"]
ELSEWHERE = ["example.org", "localhost.example.org", "10.0.0.1", "::2", "0.0.0.0", ""]
PROXIES = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@pytest.fixture
def proxy(monkeypatch):
    """Set the environment's proxy for all addresses."""

    def set_proxy(address):
        for name in (*PROXIES, *map(str.lower, PROXIES)):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("ALL_PROXY", address)

    return set_proxy


@pytest.mark.parametrize("host", HERE + ELSEWHERE)
def test_names_of_this_machine(host):
    assert is_loopback(host) == (host in HERE)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_this_machine_is_reached_without_a_proxy(proxy, host):
    proxy("http://127.0.0.1:9")
    with http_client(httpx.Client, f"http://{host}:6333") as client:
        assert not client.trust_env
    with http_client(httpx.Client, "http://example.org") as client:
        assert client.trust_env


def test_a_socks_proxy_that_cannot_be_used_is_named(proxy):
    try:
        import socksio  # noqa: F401
    except ImportError:
        proxy("socks5://127.0.0.1:9")
        http_client(httpx.Client, "http://127.0.0.1:6333").close()
        with pytest.raises(InvalidInputError, match=r"ALL_PROXY.*httpx\[socks\].*NO_PROXY"):
            http_client(httpx.Client, "http://example.org")
    else:
        pytest.skip("httpx can use SOCKS proxies here")
