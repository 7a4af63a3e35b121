"""What a test author can do wrong with a model server."""

from __future__ import annotations

from atomic.base.errors import AtomicError


class ModelServerError(AtomicError):
    """A model server cannot do what was asked of it."""


class ScriptNameError(ModelServerError):
    """A script has a name that no marker can have."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f'No marker can name this script: "{name}" (use letters, digits and _ . - only)')


class ScriptFileError(ModelServerError):
    """A script file cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f'Script file cannot be read: "{path}": {reason}')


class NotRunningError(ModelServerError):
    """A server was asked for its address before it was started."""

    def __init__(self) -> None:
        super().__init__("The model server is not running (use it as `async with ModelServer(...) as server`)")


class NoSuchCallError(ModelServerError):
    """A call that a test waited for did not come; what came is in the message."""

    def __init__(self, timeout: float, seen: list[str]) -> None:
        self.timeout, self.seen = timeout, seen
        super().__init__(f"No such model call within {timeout:g} s; there were: {', '.join(seen) or 'none'}")
