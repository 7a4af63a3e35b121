"""A thousand commands, skills and agents of four providers, always the same ones."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

from bodies import expect
from measure import Metrics

from atomic.entities import Entity, EntityRegistry

ROUNDS = 5
COUNT = 1000
TEXTS = ("c", "co", "code", "rev", "task-7", "zzz", "ommit", "skl9")
BODY = "\n".join(f"Line {i} of a prompt of the usual length, with `code` and $ARGUMENTS in it." for i in range(60))

# Like real files: mostly plain lines, some YAML over several lines, some invalid YAML.
HEADS = (
    "name: {name}\ndescription: Reviews code that has changed, and says what to do about it\nmodel: sonnet",
    "name: {name}\ndescription: Finds files\ntools: Read, Grep, Glob, Bash(git log:*)\nargument-hint: [file] [depth]",
    'name: {name}\ndescription: "Writes the tests"\ntools:\n  - Read\n  - Edit\n  - Bash\nmodel: opus',
    "name: {name}\ndescription: Plans\nmode: subagent\ntools:\n  bash: true\n  write: false\ntemperature: 0.1",
    "name: {name}\ndescription: >\n  Explains what a part does\n  and why it is there.\ntools: ['search', 'read']",
    "name: {name}\ndescription: Use this when asked: for example to fix a bug\nargument-hint: <issue> [--all]",
)
PLACES = (
    (".claude/commands/{name}.md", 150),
    (".claude/skills/{name}/SKILL.md", 150),
    (".claude/agents/{name}.md", 100),
    (".opencode/command/team/{name}.md", 100),
    (".opencode/agent/{name}.md", 100),
    (".github/prompts/{name}.prompt.md", 100),
    (".github/agents/{name}.agent.md", 100),
    (".atomic/commands/{name}.md", 50),
    (".atomic/skills/{name}/SKILL.md", 100),
    (".agents/skills/{name}/SKILL.md", 50),
)


def files() -> Iterator[tuple[str, str]]:
    number = 0
    for pattern, count in PLACES:
        for _ in range(count):
            name = f"review-task-{number}"
            yield pattern.format(name=name), f"---\n{HEADS[number % len(HEADS)].format(name=name)}\n---\n\n{BODY}\n"
            number += 1
    expect(number, COUNT)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = process_time()
    result = call()
    return (process_time() - start) * 1e3, result


def load(project: Path, home: Path) -> tuple[float, EntityRegistry]:
    spent, registry = timed(lambda: EntityRegistry.load(project=project, user=home))
    expect(sum(entity.source.location == "project" for entity in registry.all()), COUNT)
    expect(registry.diagnostics, [])
    return spent, registry


def change(file: Path, round_: int) -> None:
    file.write_text(f"---\nname: changed\ndescription: For the {round_}. time\n---\nNew\n", encoding="utf-8")
    os.utime(file, ns=(round_, round_))


def entities(folder: Path, _: dict[str, Any]) -> Metrics:
    project = folder / "project"
    home = folder / "home"
    for relative, text in files():
        file = project / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    home.mkdir()
    first, registry = load(project, home)  # includes the imports
    loads = [load(project, home)[0] for _ in range(ROUNDS)]
    unchanged = [timed(registry.refresh) for _ in range(ROUNDS)]
    expect([changed for _, changed in unchanged], [False] * ROUNDS)
    one: list[float] = []
    for round_ in range(1, ROUNDS + 1):
        change(project / ".claude/agents/review-task-300.md", round_)
        spent, changed = timed(registry.refresh)
        expect(changed, True)
        one.append(spent)
    many = EntityRegistry(as_skills(registry))
    many.search("skill", "x")
    searches = [min(timed(lambda text=text: many.search("skill", text))[0] for _ in range(ROUNDS)) for text in TEXTS]
    return {
        "entities_first": {"first": first},
        "entities_load": {"again": min(loads)},
        "entities_unchanged": {"refresh": min(one for one, _ in unchanged)},
        "entities_changed": {"refresh": min(one)},
        "entities_search": {"slowest": max(searches)},
    }


def as_skills(registry: EntityRegistry) -> Iterator[Entity]:
    """Yield all entities as skills, so that a search covers all of them."""
    return (Entity("skill", entity.name, aliases=entity.aliases, source=entity.source) for entity in registry.all())


JOBS: dict[str, Callable[[Path, dict[str, Any]], Metrics]] = {"entities": entities}
