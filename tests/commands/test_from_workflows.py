"""Commands made from workflows: one path for all of them."""

from __future__ import annotations

from pathlib import Path

from atomic.commands import Category, CommandCall, CommandRegistry, builtin_commands, workflow_commands
from atomic.wiring import Project
from atomic.workflows import WorkflowDefinition
from atomic.workflows.definition import WorkflowSource
from tests.commands.fakes import FakeHost, command
from tests.support.entity_files import write

DEFINITION = WorkflowDefinition(
    name="review",
    description="Review\nit.",
    aliases=("rv", "a b"),
    argument_hint="PROMPT",
    source=WorkflowSource.PROJECT,
    path=Path("/p/.atomic/workflows/review.py"),
)


async def test_a_workflow_is_a_command_that_asks_its_host_to_run_it() -> None:
    (made,) = workflow_commands([DEFINITION])
    assert (made.name, made.description, made.category) == ("review", "Review it.", Category.WORKFLOW)
    assert (made.aliases, made.argument_hint, made.hidden) == (("rv",), "PROMPT", False)
    assert made.origin == "/p/.atomic/workflows/review.py (project)"
    host = FakeHost()
    await made.run(CommandCall("review", "the diff", "piped"), host)
    assert host.done == [("workflow", "review", "the diff", "piped")]


def test_a_workflow_beats_a_skill_and_loses_to_a_built_in() -> None:
    clear = WorkflowDefinition(name="clear")
    registry = CommandRegistry.of(
        [*builtin_commands(), command("review", "skill"), *workflow_commands([DEFINITION, clear])]
    )
    assert registry.require("RV").category is Category.WORKFLOW
    assert registry.require("clear").category is Category.BUILTIN
    assert {shadowed.word for shadowed in registry.shadowed()} == {"review", "clear"}


def test_the_prompt_knows_the_files_that_are_there_now(tmp_path: Path) -> None:
    project = tmp_path / "project"
    home = tmp_path / "home"
    file = write(project / ".atomic" / "workflows" / "one.py", "description = 'One.'\nraise SystemExit\n")
    here = Project(project, home)
    assert here.commands.require("one").description == "One."
    assert not here.refresh()
    file.write_text("description = 'Two.'\n")
    write(home / ".atomic" / "workflows" / "mine.py", "")
    assert here.refresh()
    assert here.commands.require("one").description == "Two."
    assert here.commands.get("mine") is not None
