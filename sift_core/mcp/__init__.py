"""`sift mcp`: a store as tools of an agent, over the Model Context Protocol."""

from sift_core.errors import MissingDependencyError

try:
    import fastapi as _fastapi  # noqa: F401
    import mcp as _mcp  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(error.name or "mcp", extra="mcp") from error
