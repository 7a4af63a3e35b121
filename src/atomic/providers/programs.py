"""Find an agent's program, limit its start, and describe its end."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from atomic.base.errors import AtomicError, signal_name
from atomic.config import Settings
from atomic.providers.errors import ProgramFailedError, ProgramMissingError

START_VARIABLE = "ATOMIC_START_SECONDS"
_START_SECONDS = 30.0


class NotStartedError(AtomicError):
    """A session or a run did not start, or not within the limit."""


def find_program(
    provider: str,
    program: str,
    settings: Settings,
    *,
    install: str,
    own_copy: Callable[[], Path | None] = lambda: None,
) -> Path:
    """Return the path of the program: by variable, setting, PATH, then `own_copy`.

    A path from a variable or a setting must exist: a further search could run another
    program than the user chose. Raise ProgramMissingError with the command that
    installs it (`install`).
    """
    variable = f"ATOMIC_{provider.upper()}_PATH"
    chosen = {variable: os.environ.get(variable), f"providers.{provider}.path": settings.provider(provider).path}
    for origin, path in chosen.items():
        if path:
            return _checked(provider, origin, path)
    found = shutil.which(program)
    if found is not None:
        return Path(found)
    copy = own_copy()
    if copy is not None:
        return copy
    raise ProgramMissingError(
        f"{provider}: the program '{program}' is not installed", provider=provider, remedy=install
    )


def _checked(provider: str, origin: str, path: str) -> Path:
    program = Path(path).expanduser()
    if not program.is_file() or not os.access(program, os.X_OK):
        raise ProgramMissingError(
            f"{provider}: {origin} names '{path}', which is not a program",
            provider=provider,
            remedy="correct or remove it",
        )
    return program


def find_package(package: str) -> Path | None:
    """Return the folder of a package without importing it, None if it is not installed."""
    found = importlib.util.find_spec(package)
    return None if found is None or found.origin is None else Path(found.origin).parent


def find_package_program(program: Path, path: str) -> Path | None:
    """Return a program of an npm package that the package of `program` brings.

    It is searched for as Node searches for modules.
    """
    for folder in program.resolve().parents:
        found = folder / "node_modules" / path
        if found.is_file():
            return found
    return None


def version_in_package(program: Path) -> str:
    """Return the version in the package of a program that npm has installed, else "".

    To ask the program itself takes seconds for some agents.
    """
    real = program.resolve()
    if "node_modules" not in real.parts:
        return ""
    for folder in real.parents:
        try:
            return msgspec.json.decode((folder / "package.json").read_bytes(), type=_Package).version
        except FileNotFoundError:
            continue
        except (OSError, msgspec.MsgspecError):
            return ""
    return ""


class _Package(msgspec.Struct, frozen=True):
    version: str


def start_seconds() -> float:
    """Return how long a program may take from its launch to the first prompt.

    The default applies if the variable is not a number above 0.
    """
    try:
        seconds = float(os.environ.get(START_VARIABLE, ""))
    except ValueError:
        return _START_SECONDS
    return seconds if 0 < seconds < float("inf") else _START_SECONDS


def not_started(name: str, provider: str, seconds: float) -> ProgramFailedError:
    """Return the error for a program that exceeded the limit."""
    return ProgramFailedError(
        f"{name} did not start within {seconds:g} s",
        provider=provider,
        remedy=f"run it by hand to see what it waits for, or give it more time: {START_VARIABLE}=120",
    )


def describe_exit(code: int) -> str:
    """Return how a process ended: "was ended by SIGKILL", "ended with exit code 1"."""
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal_name(-code)}"
