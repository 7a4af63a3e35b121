"""How Atomic itself was installed, and the commands that fit.

A message must not say `pip install` to a user of uv or pipx: the package would land in
another environment, or nowhere. This module is the only one that knows the installers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

NAME = "atomic-workflows"
_CONDITION = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")


class Kind(StrEnum):
    """The ways to install Atomic, in words for users."""

    UV_TOOL = "uv tool"
    UVX = "uvx"
    PIPX = "pipx"
    CHECKOUT = "a checkout"
    VENV = "a virtual environment"
    SYSTEM = "the system's Python"


class Installation:
    """An installed Atomic. `prefix` is the environment that it is in."""

    def __init__(self, prefix: Path | None = None, *, package: Distribution | None = None) -> None:
        self.prefix = Path(sys.prefix) if prefix is None else prefix
        self._package = package

    @cached_property
    def kind(self) -> Kind:
        """How Atomic was installed."""
        if (self.prefix / "uv-receipt.toml").exists():
            return Kind.UV_TOOL
        if (self.prefix / "pipx_metadata.json").exists():
            return Kind.PIPX
        if self._has_no_metadata or self._dir_info.get("editable"):
            return Kind.CHECKOUT
        if not (self.prefix / "pyvenv.cfg").exists():
            return Kind.SYSTEM
        # uv runs a tool without installing it from an environment in its cache.
        if {"archive-v0", "environments-v2"} & set(self.prefix.parts):
            return Kind.UVX
        return Kind.VENV

    @cached_property
    def source(self) -> str:
        """What to give an installer to get this Atomic: the name of the package if it
        came from an index, else its file, folder or address.
        """
        if self._has_no_metadata:
            return str(Path(__file__).parents[3])
        url = self._direct_url.get("url")
        if not isinstance(url, str):
            return NAME
        if url.startswith("file:"):
            return unquote(urlsplit(url).path)
        vcs = cast("dict[str, Any]", self._direct_url.get("vcs_info") or {})
        if not vcs:
            return url
        revision = vcs.get("requested_revision")
        return f"{vcs['vcs']}+{url}{f'@{revision}' if revision else ''}"

    def packages_of(self, extra: str) -> list[str]:
        """Return the packages that an extra brings, with their versions."""
        if self._has_no_metadata:
            project = tomllib.loads((Path(self.source) / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            return list(project["optional-dependencies"][extra])
        found: list[str] = []
        for line in self._found.requires or ():
            package, _, condition = line.partition(";")
            if _CONDITION.findall(condition) == [extra]:
                found.append(package.strip())
        return found

    def add(self, *packages: str) -> str:
        """Return the command that installs packages beside Atomic."""
        match self.kind:
            case Kind.UV_TOOL:
                # Packages that were added before would be lost.
                kept = [*self._packages_with_uv(), *packages]
                options = [word for package in dict.fromkeys(kept) for word in ("--with", package)]
                return shlex.join(["uv", "tool", "install", *options, self.source])
            case Kind.UVX:
                options = [word for package in packages for word in ("--with", package)]
                return shlex.join(["uvx", *options, "--from", self.source, "atomic"])
            case Kind.PIPX:
                return shlex.join(["pipx", "inject", self.prefix.name, *packages])
            case _ if self._is_managed:
                options = [word for package in packages for word in ("--with", package)]
                return shlex.join(["uv", "tool", "install", *options, self.source])
            case _ if find_spec("pip") is None:
                return shlex.join(["uv", "pip", "install", "--python", sys.executable, *packages])
            case _:
                return shlex.join([sys.executable, "-m", "pip", "install", *packages])

    def add_extra(self, extra: str) -> str:
        """Return the command that installs the packages of an extra."""
        return self.add(*self.packages_of(extra))

    @property
    def upgrade(self) -> str:
        """Return the command that installs a newer Atomic."""
        match self.kind:
            case Kind.UV_TOOL if self.source == NAME:
                return f"uv tool upgrade {NAME}"
            case Kind.UV_TOOL:
                return shlex.join(["uv", "tool", "install", "--reinstall", self.source])
            case Kind.UVX:
                return shlex.join(["uvx", "--refresh", "--from", self.source, "atomic"])
            case Kind.PIPX if self.source == NAME:
                return shlex.join(["pipx", "upgrade", self.prefix.name])
            case Kind.PIPX:
                return shlex.join(["pipx", "install", "--force", self.source])
            case Kind.CHECKOUT:
                return shlex.join(["git", "-C", self.source, "pull"])
            case _:
                return self.add("--upgrade", self.source)

    @property
    def run(self) -> str:
        """Return the command that starts Atomic if its folder is on the PATH."""
        if self.kind is not Kind.UVX:
            return "atomic"
        return f"uvx {NAME}" if self.source == NAME else shlex.join(["uvx", "--from", self.source, "atomic"])

    @property
    def on_path(self) -> str:
        """Return the command after which `atomic` alone starts Atomic."""
        match self.kind:
            case Kind.UV_TOOL:
                return "uv tool update-shell"
            case Kind.UVX:
                return shlex.join(["uv", "tool", "install", self.source])
            case Kind.PIPX:
                return "pipx ensurepath"
            case _:
                return f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"'

    @cached_property
    def _found(self) -> Distribution:
        return self._package or distribution(NAME)

    @cached_property
    def _has_no_metadata(self) -> bool:
        """Return whether the code runs from its source, on PYTHONPATH."""
        if self._package is not None:
            return False
        try:
            distribution(NAME)
        except PackageNotFoundError:
            return True
        return False

    @cached_property
    def _direct_url(self) -> Mapping[str, Any]:
        """Return what pip, uv and pipx note of a package that is not from an index."""
        text = None if self._has_no_metadata else self._found.read_text("direct_url.json")
        return json.loads(text) if text else {}

    @property
    def _dir_info(self) -> Mapping[str, Any]:
        return self._direct_url.get("dir_info") or {}

    @property
    def _is_managed(self) -> bool:
        """Return whether pip refuses to install here, as with Debian's Python."""
        import sysconfig

        is_system = self.kind in (Kind.SYSTEM, Kind.CHECKOUT) and not (self.prefix / "pyvenv.cfg").exists()
        return is_system and os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))

    def _packages_with_uv(self) -> list[str]:
        """Return the packages that `uv tool install --with` has added."""
        receipt = tomllib.loads((self.prefix / "uv-receipt.toml").read_text(encoding="utf-8"))
        found: list[str] = []
        for requirement in receipt.get("tool", {}).get("requirements", ()):
            if requirement.get("name") != NAME:
                found.append(f"{requirement['name']}{requirement.get('specifier', '')}")
        return found
