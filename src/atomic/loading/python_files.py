"""The Python files of a project and of its user: read once, and run from those bytes.

A file may import other files of its folder, also from the same bytes and never from the
disk. Each set of files has its own package name, so that the `helpers.py` of two
projects do not collide. Standard and installed modules always win: a `json.py` in the
folder of a workflow has no effect.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import linecache
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.base.untrusted_files import Root
from atomic.config import config_home
from atomic.loading.metadata import decode_source
from atomic.loading.trust import Snapshot
from atomic.loading.trusted_files import TOOLS, WORKFLOWS, shown_path
from atomic.workflows.definition import WorkflowSource
from atomic.workflows.errors import WorkflowProblem

# The import system calls the methods and does not check the class, whose module is slow
# to import.
if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object

_numbers = itertools.count(1)


class PythonFiles(msgspec.Struct, frozen=True, eq=False):
    """The Python files of a project or of the user, as bytes that were read once."""

    source: WorkflowSource
    root: Path
    files: Mapping[str, bytes]
    refused: Mapping[str, str]
    code: SourceFiles
    workflows: str = WORKFLOWS
    tools: str = TOOLS

    def below(self, folder: str) -> Iterator[tuple[str, bytes]]:
        """Yield the files directly in a folder, except helpers such as `_helpers.py`."""
        for name, data in sorted(self.files.items()):
            inner = name.removeprefix(f"{folder}/")
            if inner != name and "/" not in inner and not inner.startswith("_"):
                yield name, data

    def problems(self, folder: str) -> Iterator[WorkflowProblem]:
        """Yield the files of a folder that could not be read."""
        for name, reason in sorted(self.refused.items()):
            if name == folder or name.startswith(f"{folder}/"):
                yield WorkflowProblem(self.root / shown_path(name), 1, reason)


def project_files(snapshot: Snapshot) -> PythonFiles:
    """Return the files of a project from its snapshot."""
    root = Path(snapshot.project or "/")
    code = SourceFiles(root, snapshot.files, (WORKFLOWS, TOOLS))
    return PythonFiles(WorkflowSource.PROJECT, root, snapshot.files, snapshot.refused, code)


def user_files(home: Path | None = None) -> PythonFiles:
    """Return the user's own files."""
    root = home or config_home()
    reader = Root.of_user(root)
    found = [file for folder in ("workflows", "tools") for file in reader.walk(folder)]
    python = [file for file in found if file.reason or file.name.endswith(".py")]
    files = {file.name: file.data for file in python if not file.reason}
    refused = {file.name: file.reason for file in python if file.reason}
    code = SourceFiles(root, files, ("workflows", "tools"))
    return PythonFiles(WorkflowSource.USER, root, files, refused, code, "workflows", "tools")


class SourceFiles:
    """Python files as bytes, by their path below `root`. Imports search `folders`."""

    def __init__(self, root: Path, files: Mapping[str, bytes], folders: Sequence[str]) -> None:
        self._package = f"atomic_files_{next(_numbers)}"
        self._root = root
        self._modules: dict[str, _File] = {}
        self._packages = [f"{self._package}.{folder.rpartition('/')[2].replace('.', '_')}" for folder in folders]
        for path, data in sorted(files.items()):
            for folder, package in zip(folders, self._packages, strict=True):
                if not path.startswith(f"{folder}/") or not path.endswith(".py"):
                    continue
                inner = path.removeprefix(f"{folder}/").removesuffix(".py")
                dotted = inner.replace(".", "_").replace("/", ".")
                name = f"{package}.{dotted}".removesuffix(".__init__")
                while name in self._modules:  # `a.b.py` and `a_b.py`
                    name += "_"
                self._modules[name] = _File(root / path, data, is_package=path.endswith("/__init__.py"))
        self._finder = _Finder(self._package, self)

    def run(self, path: str) -> ModuleType:
        """Return the module of a file, which runs once.

        Raises whatever the file raises.
        """
        name = next(name for name, file in self._modules.items() if file.path == self._root / path)
        # The finder stays there, because functions also import when they are called.
        if self._finder not in sys.meta_path:
            sys.meta_path.append(self._finder)
        with contextlib.redirect_stdout(sys.stderr):  # standard output may be JSON for a program
            return import_module(name)

    def find(self, name: str) -> _File | None:
        """Return the file of a module.

        A folder without `__init__.py` is a package too.
        """
        if name in self._modules:
            return self._modules[name]
        is_package = name == self._package or any(known.startswith(f"{name}.") for known in self._modules)
        return _File(self._root, b"", is_package=True) if is_package or name in self._packages else None

    def find_neighbour(self, importer: str, top: str) -> str | None:
        """Return the package where a file's import of `top` is found.

        None if it is not a user's file.
        """
        own = ".".join(importer.split(".")[:2])
        packages = sorted(self._packages, key=lambda package: package != own)
        found = next((package for package in packages if self.find(f"{package}.{top}") is not None), None)
        if found is None or top in sys.stdlib_module_names or _is_installed(top):
            return None
        return found


class _File:
    """A file that can be run, or a folder as an empty package."""

    def __init__(self, path: Path, data: bytes, *, is_package: bool) -> None:
        self.path = path
        self.data = data
        self.is_package = is_package

    def code(self) -> CodeType:
        text = decode_source(self.data)
        # Tracebacks and drawings show the lines that ran, even if the file has changed.
        linecache.cache[str(self.path)] = (len(text), None, text.splitlines(keepends=True), str(self.path))
        return compile(text, str(self.path), "exec", dont_inherit=True)


class _Finder(Loader):
    """Finds the modules of one set of files under its package name."""

    def __init__(self, package: str, files: SourceFiles) -> None:
        self._package = package
        self._files = files

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
        """Import a module for a user's file: `import helpers` may mean a file of its
        folder.
        """
        top = name.partition(".")[0]
        importer = str((globals or {}).get("__name__", ""))
        package = self._files.find_neighbour(importer, top) if level == 0 else None
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
    except (ImportError, ValueError):  # a module that was only partly imported
        return True
