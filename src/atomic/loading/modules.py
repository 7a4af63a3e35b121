"""Run Python files from bytes, and let them import the files beside them: from the same bytes, never from the disk.

Each set of files has a package name of its own, so that two projects with a `helpers.py` do not meet. Python's own
and installed modules always win: a `json.py` beside a workflow has no effect.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import linecache
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from atomic.loading.metadata import decode_source

if TYPE_CHECKING:  # the import system asks for the methods, not for the class, whose module takes its time
    from importlib.abc import Loader
else:
    Loader = object

_numbers = itertools.count(1)


class SourceFiles:
    """Python files as bytes, by their path from a folder; `folders` are those that imports are looked for in."""

    def __init__(self, root: Path, files: Mapping[str, bytes], folders: Sequence[str]) -> None:
        self._package = f"atomic_files_{next(_numbers)}"
        self._root = root
        self._modules: dict[str, _File] = {}
        self._folders = {folder: f"{self._package}.{_word(folder)}" for folder in folders}
        for path, data in sorted(files.items()):
            for folder, package in self._folders.items():
                if path.startswith(f"{folder}/") and path.endswith(".py"):
                    name = f"{package}.{_dotted(path.removeprefix(f'{folder}/'))}"
                    self._add(name.removesuffix(".__init__"), _File(root / path, data, path.endswith("__init__.py")))
        self._finder = _Finder(self._package, self)

    def _add(self, name: str, file: _File) -> None:
        while name in self._modules:  # `a.b.py` and `a_b.py`
            name += "_"
        self._modules[name] = file

    def run(self, path: str) -> ModuleType:
        """The module of a file; it runs once. Whatever it raises comes out."""
        name = next(name for name, file in self._modules.items() if file.path == self._root / path)
        if self._finder not in sys.meta_path:  # it stays: functions import when they are called
            sys.meta_path.append(self._finder)
        with contextlib.redirect_stdout(sys.stderr):  # stdout may be somebody's JSON
            return import_module(name)

    def find(self, name: str) -> _File | None:
        """The file of a module; a folder without `__init__.py` is a package all the same."""
        if name in self._modules:
            return self._modules[name]
        is_package = name == self._package or any(known.startswith(f"{name}.") for known in self._modules)
        return _File(self._root, b"", True) if is_package or name in self._folders.values() else None

    def neighbour(self, importer: str, top: str) -> str | None:
        """The module that an import of that name means in a file of ours; None: not one of ours."""
        if top in sys.stdlib_module_names or not self._has(top) or _is_installed(top):
            return None
        own = ".".join(importer.split(".")[:2])
        packages = sorted(self._folders.values(), key=lambda package: package != own)
        return next(package for package in packages if self.find(f"{package}.{top}") is not None)

    def _has(self, top: str) -> bool:
        return any(self.find(f"{package}.{top}") is not None for package in self._folders.values())


class _File:
    """A file that can be run."""

    def __init__(self, path: Path, data: bytes, is_package: bool) -> None:
        self.path, self.data, self.is_package = path, data, is_package

    def code(self) -> CodeType:
        text = decode_source(self.data)
        # Tracebacks and pictures show the lines that ran, whatever stands in the file by now.
        linecache.cache[str(self.path)] = (len(text), None, text.splitlines(keepends=True), str(self.path))
        return compile(text, str(self.path), "exec", dont_inherit=True)


class _Finder(Loader):
    """Finds the modules of one set of files under its own package name."""

    def __init__(self, package: str, files: SourceFiles) -> None:
        self._package, self._files = package, files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != self._package:
            return None
        file = self._files.find(fullname)
        if file is None:
            return None
        return ModuleSpec(fullname, self, origin=str(file.path), is_package=file.is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        file = self._files.find(module.__name__)
        assert file is not None
        module.__file__ = str(file.path)
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        exec(file.code(), module.__dict__)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """`import helpers` in one of our files."""
        top = name.partition(".")[0]
        importer = str((globals or {}).get("__name__", ""))
        package = self._files.neighbour(importer, top) if level == 0 else None
        if package is None:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = import_module(f"{package}.{name}")
        if not fromlist:
            return sys.modules[f"{package}.{top}"]
        for wanted in fromlist:
            if not hasattr(module, wanted) and self._files.find(f"{module.__name__}.{wanted}") is not None:
                import_module(f"{module.__name__}.{wanted}")
        return module


def _is_installed(top: str) -> bool:
    try:
        return top in sys.modules or find_spec(top) is not None
    except (ImportError, ValueError):  # a module that was half loaded
        return True


def _word(text: str) -> str:
    return text.rpartition("/")[2].replace(".", "_")


def _dotted(path: str) -> str:
    *folders, file = path.removesuffix(".py").split("/")
    return ".".join((*(folder.replace(".", "_") for folder in folders), file.replace(".", "_")))
