"""Workflows whose nodes work in copies of the project: their commits are merged, the checkout is not touched."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ralph.sandbox import Outcome, Sandbox
from tests.support.user_workflows import started, workflow
from tests.support.waits import eventually

pytestmark = pytest.mark.ci

AGENT = """---
name: coder
description: Writes code.
---
Write code.
"""
PARTS = """
login = subagent_node("login", agent="coder", task="Write the login page", isolate=True)
search = subagent_node("search", agent="coder", task="Write the search page", isolate=True)
pages = graph(S).parallel({"login": login, "search": search})
"""
COMMIT = "git add -A && git commit -qm Page"


def part(match: str, *steps: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"match": match, "do": [*steps, {"say": f"done: {match}"}], **facts}


class Project(Sandbox):
    """A user with a repository, a scripted agent, a sub-agent called coder, and a workflow called flow."""

    def __init__(self, folder: Path, code: str, *script: dict[str, Any], git: bool = True, isolate: str = "") -> None:
        super().__init__(folder, *script, git=git)
        agents = self.user.home / ".atomic" / "agents"
        agents.mkdir(parents=True)
        (agents / "coder.md").write_text(AGENT)
        if isolate:
            config = self.user.home / ".atomic" / "config.toml"
            config.write_text(config.read_text() + f'[workflows.flow]\nisolate = "{isolate}"\n')
        workflow(self.user, "flow", code)

    @property
    def flow(self) -> tuple[str, ...]:
        return "run", "flow", "--json", "go"

    async def run(self) -> Outcome:
        return await self.atomic(*self.flow)

    @property
    def branch(self) -> str:
        return f"atomic/{self.session.name[:8]}"

    @property
    def files(self) -> list[str]:
        return self.git("ls-tree", "-r", "--name-only", self.branch).split()

    @property
    def is_clean(self) -> bool:
        """Return whether the checkout is as it was, and no copy is left."""
        left = self.user.home / ".atomic" / "workspaces" / self.session.name
        return (
            self.git("status", "--porcelain") == "" and self.git("log", "--format=%s") == "Begin" and not left.exists()
        )

    @property
    def asked(self) -> list[str]:
        """Return which page each prompt asked for."""
        return [
            word
            for one in self.prompts
            for word in ("login", "search", "repair")
            if f"the {word} page" in one["prompt"]
        ]

    @property
    def end_state(self) -> dict[str, Any]:
        return json.loads((self.session / "state.json").read_text())


def keeping_outputs(code: str) -> str:
    """Return a workflow that writes its last outputs to `state.json` of its session."""
    return (
        "import json\n\ndef at_end(end):\n"
        "    if end.state is not None:\n        end.save('state.json', json.dumps(end.state.outputs))\n" + code
    )


@pytest.mark.parametrize("kind", ["overlay", "clone"])
async def test_parallel_sub_agents_in_copies_are_merged(tmp_path: Path, kind: str) -> None:
    code = keeping_outputs(
        PARTS + 'workflow = pages.merge("merge", results=["login", "search"], check="cat *.html").compile()\n'
    )
    project = Project(
        tmp_path, code,
        part("the login page", {"sh": f"test ! -f search.html && echo login > login.html && {COMMIT}"}),
        part("the search page", {"write": {"search.html": "search\n"}}),
        isolate=kind,
    )  # fmt: skip
    done = await project.run()
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    assert project.files == ["README.md", "login.html", "search.html"]
    assert project.is_clean
    assert f"2 results are on {project.branch}" in done.end["message"]
    outputs = project.end_state
    assert outputs["login"]["text"] == "done: the login page"
    assert [one["status"] for one in outputs["merge"]] == ["merged", "merged"]
    assert outputs["merge"][1]["commit"] == project.git("rev-parse", project.branch)
    parked = project.git("for-each-ref", "--format=%(refname)", f"refs/atomic/{project.session.name}").split()
    assert outputs["search"]["work"]["ref"] in parked
    assert project.git("log", "-1", "--format=%B", outputs["search"]["work"]["commit"]).splitlines() == [
        "Write the search page", "", "Atomic-Step: search",
    ]  # fmt: skip


CONFLICT = [
    part("the login page", {"write": {"menu.txt": "login\n"}}),
    part("the search page", {"write": {"menu.txt": "search\n"}}),
]
SOLVE = """
git rebase -q atomic-tip
printf 'login\\nsearch\\n' > menu.txt
git add menu.txt
GIT_EDITOR=: git rebase --continue
"""


async def test_a_conflict_fails_the_node_and_shows_both_sides(tmp_path: Path) -> None:
    code = PARTS + 'workflow = pages.merge("merge", results=["login", "search"]).compile()\n'
    project = Project(tmp_path, code, *CONFLICT)
    done = await project.run()
    assert (done.end["status"], done.exit_code) == ("failed", 1)
    assert all(
        word in done.end["message"] for word in ("1 result was not merged", "<<<<<<<", "+login", "+ search", "menu.txt")
    )
    assert project.git("show", f"{project.branch}:menu.txt") == "login"
    assert project.git("show", f"refs/atomic/{project.session.name}/search/1:menu.txt") == "search"
    again = await project.resume()
    assert again.end["status"] == "failed"
    assert project.git("rev-list", "--count", f"main..{project.branch}") == "1"
    assert len(project.asked) == 2


async def test_a_fixer_gets_a_conflict_with_both_sides(tmp_path: Path) -> None:
    code = PARTS + 'workflow = pages.merge("merge", results=["login", "search"], fixer="coder").compile()\n'
    project = Project(tmp_path, code, part("It could not be merged", {"sh": SOLVE}), *CONFLICT)
    done = await project.run()
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    assert project.git("show", f"{project.branch}:menu.txt") == "login\nsearch"
    assert project.is_clean
    [fix] = [one["prompt"] for one in project.prompts if "It could not be merged" in one["prompt"]]
    assert all(word in fix for word in ("Write the search page", "+login", "+ search", "git rebase atomic-tip"))


async def test_a_graph_can_route_what_was_not_merged_to_a_node(tmp_path: Path) -> None:
    code = keeping_outputs(
        PARTS
        + """
def left(state):
    return [one for one in state.outputs["merge"] if one["status"] != "merged"]

repair = subagent_node("repair", agent="coder", task="Repair the page", isolate=lambda state: left(state)[0]["work"])
merging = graph(S).merge("merge", results=["login", "search", "repair"], on_conflict="continue").if_(left, repair)
workflow = pages.loop(merging, until=lambda state: not left(state), max_iterations=3).compile()
"""
    )
    project = Project(tmp_path, code, part("Repair the page", {"sh": SOLVE}), *CONFLICT)
    done = await project.run()
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    assert project.git("show", f"{project.branch}:menu.txt") == "login\nsearch"
    assert [one["status"] for one in project.end_state["merge"]] == ["merged", "merged"]
    assert project.is_clean


async def test_a_check_that_fails_only_after_the_merge_leaves_the_result_out(tmp_path: Path) -> None:
    check = "test ! -f login.html || test ! -f search.html || { echo they do not fit; exit 3; }"
    code = keeping_outputs(
        PARTS
        + f'merge = merge_node("m", results=["login", "search"], check="{check}", on_conflict="continue")\n'
        + "workflow = pages.then(merge).compile()\n"
    )
    project = Project(
        tmp_path, code,
        part("the login page", {"write": {"login.html": "login\n"}}),
        part("the search page", {"write": {"search.html": "search\n"}}),
    )  # fmt: skip
    done = await project.run()
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    first, second = project.end_state["m"]
    assert (first["status"], second["status"]) == ("merged", "red")
    assert "failed (exit code 3)\nthey do not fit" in second["detail"]
    assert project.files == ["README.md", "login.html"]


async def test_a_run_that_is_killed_in_a_turn_continues_in_the_same_copy(tmp_path: Path) -> None:
    code = PARTS + 'workflow = pages.merge("merge", results=["login", "search"]).compile()\n'
    project = Project(tmp_path, code)
    home = project.user.home
    project.play(
        part("the login page", {"write": {"login.html": "login\n"}}),
        part("the search page", {"sh": f"echo half > half.html; touch {home}/began; sleep 600"}, times=1),
        part("the search page", {"sh": "test -f half.html && echo search > search.html"}),
    )
    async with started(project.user, *project.flow) as run:
        await run.until("node_ended", node="login")
        await eventually((home / "began").exists)
        run.signal(signal.SIGKILL)
        await run.over()
    done = await project.resume()
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    assert project.files == ["README.md", "half.html", "login.html", "search.html"]
    assert sorted(project.asked) == ["login", "search", "search"]
    assert project.is_clean


async def test_a_run_that_is_killed_while_it_merges_merges_each_result_once(tmp_path: Path) -> None:
    project = Project(
        tmp_path, "",
        part("the login page", {"write": {"login.html": "login\n"}}),
        part("the search page", {"write": {"search.html": "search\n"}}),
    )  # fmt: skip
    home = project.user.home
    check = f"test ! -f search.html || test -f {home}/go || {{ touch {home}/began; sleep 600; }}"
    workflow(
        project.user,
        "flow",
        PARTS + f'workflow = pages.merge("m", results=["login", "search"], check="{check}").compile()\n',
    )
    async with started(project.user, *project.flow) as run:
        await eventually((home / "began").exists)
        run.signal(signal.SIGKILL)
        await run.over()
    (home / "go").touch()
    done = await project.resume()
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    subjects = project.git("log", "--format=%s", f"main..{project.branch}").splitlines()
    assert subjects == ["Write the search page", "Write the login page"]
    assert sorted(project.asked) == ["login", "search"]
    assert project.is_clean


async def test_each_of_several_sub_agents_and_each_item_has_a_copy(tmp_path: Path) -> None:
    code = """
from atomic.workflows import SubagentRequest

both = [SubagentRequest("coder", f"Write the {page} page") for page in ("login", "search")]
one = subagent_node("one", agent="coder", task=lambda state: "Write the other page", isolate=True)
workflow = (
    graph(S)
    .parallel_subagent("both", agents=both, isolate=True)
    .map("items", lambda state: ["a", "b"], one)
    .merge("merge", results=["both", "items"])
    .compile()
)
"""
    project = Project(
        tmp_path, code,
        part("the login page", {"write": {"login.html": "login\n"}}),
        part("the search page", {"write": {"search.html": "search\n"}}),
        part("the other page", {"sh": "test ! -f login.html && mktemp page-XXXX.html"}),
    )  # fmt: skip
    done = await project.run()
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    assert len(project.files) == 5
    assert "4 results are on" in done.end["message"]
    assert project.is_clean


async def test_a_function_can_work_in_a_workspace_itself(tmp_path: Path) -> None:
    code = """
async def write(ctx):
    async with ctx.deps.workspace() as place:
        said = await ctx.deps.turn("Write the login page", workspace=place)
        done = await place.run("sh", "-c", "wc -l < login.html > lines.txt")
    return {"outputs": {"write": {"text": said, "work": place.work}}}

async def fail(ctx):
    async with ctx.deps.workspace() as place:
        await place.run("touch", "lost.txt")
        raise ValueError("it went wrong")

write_and_merge = graph(S).node("write", write).merge("merge", results=["write"])
workflow = write_and_merge.node("fail", fail, on_error=lambda *_: Skip()).compile()
"""
    project = Project(tmp_path, code, part("the login page", {"write": {"login.html": "a\nb\n"}}))
    done = await project.run()
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    assert project.git("show", f"{project.branch}:lines.txt") == "2"
    assert "lost.txt" in project.git("ls-tree", "--name-only", f"refs/atomic/{project.session.name}/fail/1")
    assert project.is_clean


DOCS = Path(__file__).resolve().parents[2] / "docs" / "workflows.md"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "workflows" / "parallel_parts.py"


async def test_the_example_of_the_docs_runs_as_it_stands(tmp_path: Path) -> None:
    section = DOCS.read_text(encoding="utf-8").partition("## Work in copies, and merge\n")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    project = Project(
        tmp_path, "",
        part("Write login.html", {"write": {"login.html": "login\n"}}),
        part("Write search.html", {"write": {"search.html": "search\n"}}),
    )  # fmt: skip
    (project.user.home / ".atomic" / "workflows" / "flow.py").write_text(code)
    done = await project.atomic("run", "flow", "--isolate", "clone", "--json", "go")
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    assert project.files == ["README.md", "login.html", "search.html"]
    assert "(clone)" in "\n".join(event.get("text", "") for event in done.events)


async def test_the_example_with_parts_merges_what_passes_its_check(tmp_path: Path) -> None:
    project = Project(
        tmp_path, "",
        part("It could not be merged", {"sh": "git mv b.txt part-b.txt && git commit -qm Rename"}),
        part("Write a", {"write": {"a.txt": "a\n"}}),
        part("Write b", {"sh": f"echo b > b.txt; {COMMIT}"}),
    )  # fmt: skip
    (project.user.home / ".atomic" / "workflows" / "flow.py").write_text(EXAMPLE.read_text())
    done = await project.atomic("run", "parallel-parts", "--json", "--check", "test ! -f b.txt", "a; b")
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    assert project.files == ["README.md", "a.txt", "part-b.txt"]
    assert project.is_clean


async def test_without_a_repository_the_run_does_not_start(tmp_path: Path) -> None:
    code = PARTS + 'workflow = pages.merge("merge", results=["login", "search"]).compile()\n'
    project = Project(tmp_path, code, git=False)
    done = await project.user.atomic("run", "flow", "go")
    assert (done.exit_code, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert "is in no git repository: run it in a git repository that has a commit" in line
    project.git("init", "-q")
    done = await project.run()
    assert (done.end["status"], done.exit_code) == ("failed", 1)
    assert "the repository has no commit" in done.end["message"]
    assert project.prompts == []


@pytest.mark.parametrize(
    ("kind", "said"), [("none", 'isolate is "none": give auto'), ("vm", 'isolate is "vm": give auto')]
)
async def test_a_kind_that_does_not_isolate_is_refused(tmp_path: Path, kind: str, said: str) -> None:
    code = PARTS + 'workflow = pages.merge("merge", results=["login", "search"]).compile()\n'
    project = Project(tmp_path, code, isolate=kind)
    done = await project.user.atomic("run", "flow", "go")
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr


async def test_another_program_that_moves_the_branch_pauses_the_run(tmp_path: Path) -> None:
    code = PARTS + 'workflow = graph(S).then(login).merge("merge", results=["login"]).compile()\n'
    project = Project(tmp_path, code)
    home = project.user.home
    project.play(
        part("the login page", {"sh": f"echo a > a; touch {home}/began; while test ! -f {home}/go; do sleep 0.1; done"})
    )
    async with started(project.user, *project.flow) as run:
        await eventually((home / "began").exists)
        subprocess.run(["git", "branch", "-D", project.branch], cwd=project.project, check=True, capture_output=True)
        (home / "go").touch()
        assert await run.over() == 5
    assert "was deleted" in run.events[-1]["message"]
    project.git("branch", project.branch, "main")
    done = await project.resume()
    assert done.status == ("completed", "done", 0), done.end
    assert project.asked == ["login"]


async def test_a_function_merges_the_work_of_its_isolated_sub_agents(tmp_path: Path) -> None:
    project = Project(
        tmp_path,
        """
@step
async def merge(work: Work) -> bool:
    landed = await current_step().deps.merge(work)
    return hasattr(landed, "commit")

@workflow
async def flow(flow: Flow, prompt: str) -> list[bool]:
    pages = await asyncio.gather(*(flow.isolated("coder", f"Write the {name} page") for name in ("login", "search")))
    return [await merge(page.work) for page in pages]
""",
        *(part(f"the {name} page", {"write": {f"{name}.html": name}}) for name in ("login", "search")),
    )
    done = await project.run()
    assert (done.exit_code, done.end["result"]) == (0, [True, True]), done.end
    assert {"login.html", "search.html"} <= set(project.files)
    assert project.is_clean
