"""The page at "/": files of the package, sent as they are."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse

HEADERS = {
    # Nothing of another host, no inline script or style: text of a document can do nothing.
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "cache-control": "no-cache",  # asked anew: another version of the package has other files
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",  # a browser runs no module of the type that some systems guess
    ".svg": "image/svg+xml",
}


def page_router() -> APIRouter:
    """Return a route for each file; a mount would hide that other paths take other methods."""
    router = APIRouter()
    for file in sorted(Path(str(files("sift_core.service"))).glob("static/*.*")):
        if file.suffix in _TYPES:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            router.add_api_route(
                path, _sender(file), methods=["GET", "HEAD"], include_in_schema=False
            )
    return router


def _sender(file: Path) -> Any:
    async def send() -> FileResponse:
        return FileResponse(file, media_type=_TYPES[file.suffix], headers=HEADERS)

    return send
