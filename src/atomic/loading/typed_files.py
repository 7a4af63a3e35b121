"""Read a workflow's file that the user names by its path: `atomic run ./flow.py`.

Typing the path is consent, as with `python flow.py`. It holds for the file and for the
files of its folder that it imports, as they are read here, once.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from atomic.base.untrusted_files import MAX_BYTES, FoundFile, Root, read_bounded, reason_of
from atomic.loading.metadata import SourceError, parse_source
from atomic.loading.python_files import PythonFiles, SourceFiles
from atomic.workflows.definition import WorkflowSource
from atomic.workflows.errors import WorkflowFileError

_FOLDER = "."  # where imports are found: next to the file
_SUFFIX = ".py"


def is_path(word: str) -> bool:
    """Return whether a word names a workflow's file, not a workflow."""
    return word.endswith(_SUFFIX)


def read_typed_file(path: Path) -> PythonFiles:
    """Return a file and the files of its folder that it imports, directly or not.

    Raises WorkflowFileError if the file cannot be read.
    """
    path = Path(os.path.abspath(path.expanduser()))
    try:
        data = read_bounded(path, MAX_BYTES)
    except OSError as error:
        raise WorkflowFileError(f"{path}: {reason_of(error)}") from error
    files = {f"{_FOLDER}/{path.name}": data}
    refused: dict[str, str] = {}
    root = Root.of_project(path.parent)
    left = [data]
    seen = {path.stem}
    while left:
        for name in _imported(left.pop()):
            if name in seen:
                continue
            seen.add(name)
            for file in _files_of(root, name):
                if file.reason:
                    refused[f"{_FOLDER}/{file.name}"] = file.reason
                else:
                    files[f"{_FOLDER}/{file.name}"] = file.data
                    left.append(file.data)
    code = SourceFiles(path.parent, files, (_FOLDER,))
    return PythonFiles(WorkflowSource.FILE, path.parent, files, refused, code, _FOLDER, _FOLDER)


def digest_of(files: PythonFiles) -> str:
    """Return a hash over a file and everything that it imports from its folder."""
    digest = sha256()
    for name, data in sorted(files.files.items()):
        digest.update(f"{name}\0{sha256(data).hexdigest()}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _imported(source: bytes) -> Iterator[str]:
    """Yield the top-level names that a file imports."""
    try:
        tree = parse_source(source)
    except SourceError:  # it is reported when the file is loaded
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _files_of(root: Root, name: str) -> Iterator[FoundFile]:
    """Yield the module or the package of that name in the folder."""
    file = root.read(f"{name}{_SUFFIX}")
    if file is not None:
        yield file
    if os.path.isdir(os.path.join(root.folder, name)):
        yield from (inner for inner in root.walk(name) if inner.reason or inner.name.endswith(_SUFFIX))
