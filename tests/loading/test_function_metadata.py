"""The metadata of a file whose workflow is a function, read without running the file."""

from __future__ import annotations

import pytest

from atomic.loading.metadata import WrittenParameter, read_metadata

SHIP = '''
from typing import Annotated, Literal
from atomic.workflows import Flow, step, workflow

LIMIT = 3

@step
async def charge(n: int) -> int:
    return n

@workflow
async def ship(
    flow: Flow, version: str, depth: int = 2, *, dry: bool = False, rate: float | None = None,
    how: Literal["a", "b"] = "a", tags: list[str] = [], limit: int = LIMIT, more: dict[str, int] = {}, plain=0.5,
):
    """Ship a version.

    In several steps.
    """
'''


def test_a_function_says_what_it_does_and_takes() -> None:
    said = read_metadata(SHIP.encode(), "ship-it")
    assert (said.name, said.description, said.remarks) == ("ship-it", "Ship a version.", ())
    assert said.parameters == (
        WrittenParameter("version", "text", is_prompt=True),
        WrittenParameter("depth", "int", True, 2),
        WrittenParameter("dry", "flag", True, False),
        WrittenParameter("rate", "number", True, None),
        WrittenParameter("how", "text", True, "a", ("a", "b")),
        WrittenParameter("tags", "texts", True, []),
        WrittenParameter("limit", "int", True, None),
        WrittenParameter("more", "json", True, {}),
        WrittenParameter("plain", "number", True, 0.5),
    )


def test_the_decorator_names_it_and_the_file_wins() -> None:
    code = SHIP.replace("@workflow\n", '@workflow(name="release", description="Release it")\n')
    said = read_metadata(code.encode(), "stem")
    assert (said.name, said.description) == ("release", "Release it")
    said = read_metadata(f'name = "own"\ndescription = "Mine"\n{code}'.encode(), "stem")
    assert (said.name, said.description) == ("own", "Mine")


@pytest.mark.parametrize(
    "decorator",
    [
        "from atomic.workflows import *\n@workflow",
        "from atomic.workflows import workflow as flows\n@flows",
        "import atomic.workflows as aw\n@aw.workflow(model='m')",
    ],
)
def test_the_decorator_is_found_under_every_name(decorator: str) -> None:
    said = read_metadata(f"{decorator}\nasync def go(flow, prompt): pass\n".encode(), "stem")
    assert said.parameters == (WrittenParameter("prompt", "text", is_prompt=True),)


@pytest.mark.parametrize(
    "code",
    [
        "from other import workflow\n@workflow\nasync def go(flow, prompt): pass\n",
        "from atomic.workflows import workflow\nworkflow = graph(S).compile()\n",
        f"{SHIP}\nworkflow = graph(S).compile()\n",
        f"{SHIP}\n@workflow\nasync def other(flow, n): pass\n",
    ],
)
def test_a_file_without_one_certain_function_has_no_parameters(code: str) -> None:
    assert read_metadata(code.encode(), "stem").parameters is None


def test_of_several_functions_the_named_one_counts() -> None:
    code = f"{SHIP}\n@workflow\nasync def other(flow, n: int): pass\nworkflow = other\n"
    assert read_metadata(code.encode(), "stem").parameters == (WrittenParameter("n", "int", is_prompt=True),)


def test_two_needed_parameters_take_no_prompt() -> None:
    code = "from atomic.workflows import workflow\n@workflow\nasync def pay(flow, amount: int, to: str): pass\n"
    parameters = read_metadata(code.encode(), "stem").parameters
    assert parameters is not None
    assert [one.is_prompt for one in parameters] == [False, False]


def test_a_wrong_name_of_the_decorator_is_reported_with_its_line() -> None:
    code = "from atomic.workflows import workflow\n@workflow(name='two words')\nasync def go(flow): pass\n"
    said = read_metadata(code.encode(), "stem")
    assert said.name == "stem"
    assert [(one.line, one.reason) for one in said.remarks] == [(2, 'name must be one word such as "my-flow"')]
