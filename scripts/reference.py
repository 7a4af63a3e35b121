"""Write the parts of the documentation that repeat the source.

    scripts/reference.py            write docs/reference/ and the marked code blocks
    scripts/reference.py --check    exit 1 and list the files that are not current

`docs/reference/cli.md` has the texts of `--help`, `docs/reference/api.md` the docstrings of the
public packages. A code block below `<!-- file: PATH -->` shows that file.
"""

from __future__ import annotations

import argparse
import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from atomic.cli.help import ralph_flags, top_help, verb_help
from atomic.cli.verbs import VERBS, Verb

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
GENERATED = "Written by `make reference`; do not edit."
INCLUDE = re.compile(r"(<!-- file: (\S+) -->\n```\w+\n).*?(^```$)", re.MULTILINE | re.DOTALL)

# What authors of workflows and of tests import, in reading order.
PACKAGES = ("atomic.workflows", "atomic.testing", "atomic.providers", "atomic.tasks")
WIDTH = 100  # of a signature


# -- the command line


def command_line() -> str:
    """Return the page with the help of every verb."""
    parts = ["# All commands", f"{GENERATED} The meaning of each is in [the command line](../cli.md)."]
    parts += [section("atomic", top_help())]
    for verb in VERBS.values():
        parts += [section(f"atomic {one.path}", text) for one, text in helps(verb)]
    return "\n\n".join(parts) + "\n"


def helps(verb: Verb) -> Iterator[tuple[Verb, str]]:
    """Yield a verb, and the verbs of its group, with their help."""
    flags = ralph_flags() if verb.path == "run" else ()
    yield verb, verb_help(verb, (*verb.flags, *flags))
    for one in verb.verbs.values():
        yield from helps(one)


def section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text.rstrip()}\n```"


# -- the API


def api() -> str:
    """Return the page with the public names and their docstrings."""
    parts = ["# API", f"{GENERATED} Explanations and examples are in the [guide](../guide.md)."]
    for name in PACKAGES:
        package = import_module(name)
        parts += [f"## {name}", paragraphs(package)]
        parts += [described(one, getattr(package, one)) for one in sorted(package.__all__, key=str.lower)]
    return "\n\n".join(part for part in parts if part) + "\n"


def described(name: str, value: Any) -> str:
    """Return the section of a class, a function or a value."""
    parts = [f"### {name}"]
    if inspect.isclass(value):
        parts += [code(f"class {name}{signature(value)}"), paragraphs(value), methods(value)]
        if issubclass(value, enum.Enum):
            parts[1:2] = [code(f"class {name}"), ", ".join(f"`{one.value}`" for one in value)]
    elif inspect.isroutine(value):
        parts += [code(f"{'async def' if inspect.iscoroutinefunction(value) else 'def'} {name}{signature(value)}")]
        parts += [paragraphs(value)]
    elif inspect.ismodule(value):
        functions = [
            one for one in vars(value) if not one.startswith("_") and is_from(getattr(value, one), value.__name__)
        ]
        parts += [paragraphs(value), "\n".join(f"* `{name}.{one}`: {first(getattr(value, one))}" for one in functions)]
    else:
        parts += [f"`{value!r}`" if len(repr(value)) < WIDTH else f"A `{type(value).__name__}`."]
    return "\n\n".join(part for part in parts if part)


def is_from(value: Any, module: str) -> bool:
    return inspect.isroutine(value) and value.__module__ == module


def methods(value: type) -> str:
    """Return a line for each public method and property with a docstring."""
    found: list[str] = []
    for name, member in vars(value).items():
        target = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name.startswith("_") or not (inspect.isroutine(target) or isinstance(target, property)):
            continue
        text = first(target)
        if text:
            found.append(f"* `{name}{'' if isinstance(target, property) else '()'}`: {text}")
    return "\n".join(found)


def signature(value: Callable[..., Any]) -> str:
    """Return the parameters, one a line if they do not fit into one."""
    try:
        found = inspect.signature(value)
    except ValueError:
        return ""
    kept = [one.replace(annotation=shown(one.annotation)) for one in found.parameters.values()]
    kept = [one.replace(default=Default(one.default)) if one.default is not one.empty else one for one in kept]
    kept = [one for one in kept if one.name not in ("self", "cls")]
    parameters = [str(one) for one in kept]
    named = [place for place, one in enumerate(kept) if one.kind is one.KEYWORD_ONLY]
    if named and not any(one.kind is one.VAR_POSITIONAL for one in kept):
        parameters.insert(named[0], "*")
    result = (
        ""
        if found.return_annotation is found.empty or inspect.isclass(value)
        else f" -> {shown(found.return_annotation)}"
    )
    line = f"({', '.join(parameters)}){result}"
    if len(line) < WIDTH - 20:
        return line
    return "(\n" + "".join(f"    {one},\n" for one in parameters) + f"){result}"


class Default:
    """A default value, without addresses in memory."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        text = repr(self.value)
        return "…" if " at 0x" in text or "<" in text else text


class Annotation:
    """An annotation as it is written in the source."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def shown(annotation: Any) -> Any:
    """Return an annotation whose text has no names of modules."""
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return Annotation(re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z~])|~", "", text))


def paragraphs(value: Any) -> str:
    """Return a docstring as Markdown."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and not vars(value).get("__doc__"):
        text = ""
    text = re.sub(
        r"^(Raises|Returns|Args):\n((?: +.*\n?)+)", lambda found: listed(*found.groups()), text, flags=re.MULTILINE
    )
    return re.sub(r"(?<!`)\B(_\w+|\*\w*)", r"`\1`", text) if "`" not in text else text


def listed(title: str, lines: str) -> str:
    """Return a part of a docstring, such as Raises, as a list."""
    return f"{title}:\n\n" + re.sub(r"^ {4}(?=\S)", "* ", lines, flags=re.MULTILINE)


def first(value: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())


def code(text: str) -> str:
    return f"```text\n{text}\n```"


# -- the files


def with_files(page: Path) -> str:
    """Return a page whose marked code blocks show their files."""

    def block(found: re.Match[str]) -> str:
        head, path, tail = found.groups()
        return head + (ROOT / path).read_text(encoding="utf-8").rstrip() + "\n" + tail

    return INCLUDE.sub(block, page.read_text(encoding="utf-8"))


def pages() -> dict[Path, str]:
    """Return all pages that repeat the source, as they should be."""
    found = {DOCS / "reference" / "cli.md": command_line(), DOCS / "reference" / "api.md": api()}
    for page in sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")]):
        if page not in found and "<!-- file:" in page.read_text(encoding="utf-8"):
            found[page] = with_files(page)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    options = parser.parse_args()
    stale = [page for page, text in pages().items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    for page in stale:
        print(page.relative_to(ROOT))
        if not options.check:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(pages()[page], encoding="utf-8")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
