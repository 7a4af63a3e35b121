"""Check that the documentation names only files, modules, commands and flags that exist.

Read are the Markdown files at the root and below `docs/`: their links, code spans and shell
blocks. A code span counts as a path if it begins with a folder of the repository (`src/…`,
`tests/…`) or with a room of the package (`runs/budget.py`, `git/refs`), and as a file name if it
ends in `.py`. Files of a user's project are not checked; EXAMPLES has those that look like ours.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "atomic"
HELP = ROOT / "tests" / "golden" / "help"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FOLDERS = ("src", "tests", "docs", "examples", "bench", "scripts", ".ci")
ROOMS = tuple(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
MADE_BY_BUILDING = ("__pycache__", "node_modules")

# Names of files in projects that the documentation makes up.
EXAMPLES = frozenset({"json.py"})

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def every_document() -> pytest.MarkDecorator:
    """Return the mark that runs a test once for each Markdown file."""
    names = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
    return pytest.mark.parametrize("document", DOCUMENTS, ids=names)


def code_spans(document: Path) -> Iterator[str]:
    """Yield the code spans of a file, each on one line and without the escapes of tables."""
    prose = FENCE.sub("", document.read_text(encoding="utf-8"))
    for span in SPAN.findall(prose):
        yield " ".join(span.replace(r"\|", "|").split())


def commands(document: Path, program: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of a program, in code spans and in shell blocks."""
    lines = list(code_spans(document))
    for language, code in FENCE.findall(document.read_text(encoding="utf-8")):
        if language == "sh":
            lines.extend(code.splitlines())
    for line in lines:
        for command in re.split(r"[|;&]+ ", line):
            try:
                words = shlex.split(command, comments=True)
            except ValueError:  # an apostrophe: prose, not a command
                continue
            if words[:1] == [program]:
                yield [word.rstrip(",") for word in words[1:]]


def is_plain(word: str) -> bool:
    """Return whether a word has no white space, placeholder or pattern in it."""
    return not re.search(r"[\s<>*{}$…,()\[\]]", word)


# -- files and modules ------------------------------------------------------------------------------------------------


@every_document()
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    broken: list[str] = []
    prose = FENCE.sub("", document.read_text(encoding="utf-8"))
    for target in LINK.findall(SPAN.sub("", prose)):
        name, _, anchor = target.partition("#")
        if "://" in name:
            continue
        path = document.parent / name if name else document
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert not broken


def anchors(document: Path) -> set[str]:
    """Return the anchors of a file's headings, as GitHub makes them."""
    headings = HEADING.findall(FENCE.sub("", document.read_text(encoding="utf-8")))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@every_document()
def test_paths_in_code_spans_exist(document: Path) -> None:
    missing = [span for span in code_spans(document) if is_plain(span) and not path_exists(span)]
    assert not missing


def path_exists(span: str) -> bool:
    """Return False if a code span is a path of this repository and there is no such file."""
    if span in EXAMPLES:
        return True
    first, slash, _ = span.partition("/")
    if slash and first in FOLDERS:
        return (ROOT / span.partition("::")[0]).exists()
    if slash and first in ROOMS:
        return (PACKAGE / span).exists() or (PACKAGE / f"{span}.py").exists()
    if span.endswith(".py") and not slash:
        return span in file_names()
    return True


def file_names() -> set[str]:
    """Return the names of all Python files of the repository."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {path.name for path in found if not set(path.parts) & set(MADE_BY_BUILDING)}


@every_document()
def test_modules_and_their_names_exist(document: Path) -> None:
    missing = [span for span in code_spans(document) if re.fullmatch(r"atomic(\.\w+)+", span) and not name_exists(span)]
    assert not missing


def name_exists(dotted: str) -> bool:
    """Return whether a dotted name is a module, or an attribute below one."""
    module = dotted
    while find_module(module) is None:
        module = module.rpartition(".")[0]
    value: object = import_module(module)
    for attribute in dotted[len(module) + 1 :].split(".") if dotted != module else ():
        if not hasattr(value, attribute):
            return False
        value = getattr(value, attribute)
    return True


def find_module(name: str) -> object:
    """Return the spec of a module, or None; a name below a module that is no package has none."""
    try:
        return find_spec(name)
    except ModuleNotFoundError:
        return None


def test_every_example_of_a_path_is_used() -> None:
    used = {span for document in DOCUMENTS for span in code_spans(document)}
    assert not EXAMPLES - used


# -- commands ---------------------------------------------------------------------------------------------------------


@every_document()
def test_make_targets_exist(document: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {words[0] for words in commands(document, "make") if words and re.fullmatch("[a-z-]+", words[0])}
    assert not named - set(targets)


@every_document()
def test_verbs_and_flags_of_atomic_exist(document: Path) -> None:
    own = parameters_of_functions(document.read_text(encoding="utf-8"))
    unknown = [f"atomic {' '.join(words)}" for words in commands(document, "atomic") if not is_known(words, own)]
    assert not unknown


def parameters_of_functions(text: str) -> dict[str, str]:
    """Return the flags of the workflow functions that a page shows, by the name of the function."""
    found = re.findall(r"^@workflow.*\nasync def (\w+)\(flow: Flow,?([^)]*)\)", text, re.MULTILINE)
    return {name: " ".join(f"--{word}" for word in re.findall(r"(\w+):", rest)) for name, rest in found}


def is_known(words: list[str], own: Mapping[str, str]) -> bool:
    """Return whether `--help`, or a function of the same page, has the verb and the flags of a command."""
    names = ["atomic"]
    if words and re.fullmatch("[a-z]+", words[0]):
        group = words[0]
        below = sorted(path.stem for path in HELP.glob(f"{group}-*.txt"))
        names += [group, *below]
        if not (HELP / f"{group}.txt").exists():
            return False
        has_verbs = group != "run" and below and re.fullmatch("[a-z]+", words[1] if words[1:] else "")
        if has_verbs and f"{group}-{words[1]}" not in below:
            return False
        if group in ("resume", "answer"):
            names.append("run-ralph")  # flags of a workflow are flags of its resume
    known = " ".join((HELP / f"{name}.txt").read_text(encoding="utf-8") for name in names)
    if words[:1] == ["run"]:
        known += " ".join(f"{flags_of_example(word)} {own.get(word, '')}" for word in words[1:])
    flags = [re.split("[=|]", word)[0].strip("[]") for word in words if word.lstrip("[").startswith("--")]
    return all(re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", known) for flag in flags)


def flags_of_example(name: str) -> str:
    """Return the flags of a workflow in `examples/workflows`, or nothing if there is none of that name."""
    path = ROOT / "examples" / "workflows" / f"{name.replace('-', '_')}.py"
    if not re.fullmatch(r"[\w-]+", name) or not path.exists():
        return ""
    config = re.search(r"^default_config = \{(.*)\}", path.read_text(encoding="utf-8"), re.MULTILINE)
    return " ".join(f"--{key}" for key in re.findall(r'"(\w+)":', config[1] if config else ""))
