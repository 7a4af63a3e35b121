"""Write the tables of docs/ports.md from the tests in `tests/ports/`.

    scripts/ports.py            write the page
    scripts/ports.py --check    exit 1 if it is not current

The lines of a port are counted in its test; the lines of the original are stated there.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PORTS = ROOT / "tests" / "ports"
PAGE = ROOT / "docs" / "ports.md"
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
SAMPLES = {
    "LangGraph": "tests of LangGraph",
    "Temporal": "samples of Temporal",
    "DBOS": "tests of DBOS",
    "Anthropic": "patterns of Anthropic",
    "conductor": "examples of conductor",
}


class Port(NamedTuple):
    """A test that repeats a workflow of another project."""

    project: str
    name: str
    theirs: int
    ours: int
    test: str


def ports() -> list[Port]:
    """Return all ports, by project and in the order of their files."""
    found = [port for path in sorted(PORTS.glob("test_*.py")) for port in ports_of(path)]
    order = list(SAMPLES)
    return sorted(found, key=lambda port: order.index(port.project))


def ports_of(path: Path) -> Iterator[Port]:
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for function in ast.parse(source).body:
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "port":
                project, name = (ast.literal_eval(argument) for argument in decorator.args)
                theirs = ast.literal_eval(decorator.keywords[0].value)
                body = lines[function.lineno - 1 : function.end_lineno]
                yield Port(project, name, theirs, counted(body), function.name)


def counted(lines: list[str]) -> int:
    """Return the number of lines that are neither blank nor a comment."""
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))


def tables() -> Mapping[str, str]:
    """Return the Markdown tables by name."""
    found = ports()
    rows = ["| | ports | lines theirs | lines ours |", "| --- | --- | --- | --- |"]
    for project, title in SAMPLES.items():
        own = [port for port in found if port.project == project]
        rows.append(f"| {title} | {len(own)} | {sum(p.theirs for p in own)} | {sum(p.ours for p in own)} |")
    rows.append(f"| **together** | {len(found)} | {sum(p.theirs for p in found)} | {sum(p.ours for p in found)} |")
    each = ["| original | shows | theirs | ours |", "| --- | --- | --- | --- |"]
    for port in found:
        shown = port.test.removeprefix("test_").replace("_", " ")
        each.append(f"| {port.project}: `{port.name}` | {shown} | {port.theirs} | {port.ours} |")
    return {"ports-by-project": "\n".join(rows), "ports": "\n".join(each)}


def page() -> str:
    """Return the page with its tables, as it should be."""
    made = tables()
    return TABLE.sub(lambda found: f"{found[1]}{made[found[2]]}\n", PAGE.read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the tables of docs/ports.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not current")
    options = parser.parse_args()
    current = page()
    if current == PAGE.read_text(encoding="utf-8"):
        return 0
    print(PAGE.relative_to(ROOT))
    if not options.check:
        PAGE.write_text(current, encoding="utf-8")
    return 1 if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
