"""How the old runs were made. Each function plays one run up to a certain moment and returns what is expected then.

* `id`, `status`: the run, and how `atomic sessions list` shows it.
* `before`: files of the root folder to write before the resume (None: to delete).
* `words`: the command that continues it; `exit_code` and `end` (status, reason) of that command.
* `calls`: exactly the agent turns that this command makes; `ledger`: exactly what the nodes note meanwhile.
* `files`: files of the project afterwards.
* Where it matters: `verified` of `run_ended`, the number of completed `tasks`, the names of the `evidence`, the `cost`.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.old_formats.place import HANG, Json, Place, end_of
from tests.support.waits import wait_until

GOAL = "write the parts"
TASKS = [{"id": "1", "title": "Write part one"}, {"id": "2", "title": "Write part two", "blocked_by": ["1"]}]
PLAN = {"role": "planner", "do": [{"say": json.dumps({"tasks": TASKS})}]}
HOLD = {"hold": True}
APPROVE = {"role": "reviewer", "do": [{"say": json.dumps({"verdict": "approve", "findings": [], "summary": "fine"})}]}
FINDING = {"title": "There is no index", "body": "Write one", "priority": 1, "location": "part1.txt:1"}
COMPLAIN = {
    "role": "reviewer",
    "unless": "index.txt",
    "do": [{"say": json.dumps({"verdict": "request_changes", "findings": [FINDING], "summary": "not yet"})}],
}
PARTS = {"part1.txt": "part 1\n", "part2.txt": "part 2\n"}
ALL_PARTS = {**PARTS, "index.txt": "an index\n"}


def committing(role: str, name: str, text: str, **facts: str) -> Json:
    """Return an agent that writes a file and commits it."""
    commit = f"git add -- {name}; git diff --cached --quiet || git commit -q -m 'Write {name}'"
    return {"role": role, **facts, "do": [{"write": {name: text}}, {"sh": commit}, {"say": f"{name} is written."}]}


def worker(task: str) -> Json:
    return committing("worker", f"part{task}.txt", f"part {task}\n", task=task)


FIXER = committing("fixer", "index.txt", "an index\n")
SCRIPT = (PLAN, worker("1"), worker("2"), COMPLAIN, FIXER, APPROVE)


def repository(place: Place) -> None:
    """Make the project a git repository with one commit; only what git needs is in it."""
    (place.project / "README.md").write_text("a project\n")
    place.git("init", "-q", "-b", "main", "--template=")
    for key, value in {"user.name": "A User", "user.email": "user@example.invalid", "gc.auto": "0"}.items():
        place.git("config", key, value)
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "Begin")


def the_session(place: Place) -> str:
    """Return the id of the only session."""
    [folder] = (place.atomic_home / "sessions").iterdir()
    return folder.name


def settle(place: Place) -> None:
    """Wait until no process of this place is left."""
    deadline = time.monotonic() + HANG
    mark = f"HOME={place.home}\0".encode()
    while any(mark in environment(folder) for folder in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.05)
    (place.root / "held").unlink(missing_ok=True)


def environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:  # it has ended
        return b""


def finished(place: Place, *words: str, exit_code: int) -> str:
    """Run `atomic` to its end; return the id of its session."""
    done = place.atomic(*words)
    assert done.returncode == exit_code, (done.returncode, done.stdout[-2000:], done.stderr)
    settle(place)
    return the_session(place)


def struck(place: Place, *words: str, number: int = signal.SIGKILL, steps: tuple[str, ...] = ()) -> str:
    """Start `atomic`, wait until something holds and these steps are recorded, and send it a signal."""
    process = place.start(*words)
    place.until("held")
    id = the_session(place)
    deadline = time.monotonic() + HANG
    while not set(steps) <= recorded(place, id):
        assert time.monotonic() < deadline, (steps, recorded(place, id))
        time.sleep(0.1)
    end_of(process, number)
    settle(place)
    return id


def recorded(place: Place, id: str) -> set[str]:
    shown = json.loads(place.atomic("sessions", "show", id, "--json").stdout)
    return {step["node"] for step in shown["steps"] if step["status"] == "completed"}


def expected(id: str, status: str, *words: str, **more: Any) -> Json:
    """Return the expected result of a resume; by default the run completes without a call of an agent."""
    words = words or ("resume",)
    usual: Json = {"before": {}, "exit_code": 0, "end": ["completed", "done"], "calls": [], "ledger": [], "files": {}}
    return {"id": id, "status": status, "words": [words[0], id, *words[1:]], **usual, **more}


def ralph(*flags: str) -> tuple[str, ...]:
    return ("run", "ralph", *flags, GOAL)


def held(at: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the usual script, but the agents of one role (and task) hold."""
    return ({**{key: at[key] for key in ("role", "task", "unless") if key in at}, "do": [HOLD]}, *SCRIPT)


def completed(place: Place) -> Json:
    """Make a run of Ralph with a plan, two tasks, a review that asks for a fix, and a second review that approves."""
    repository(place)
    place.play(*SCRIPT)
    id = finished(place, *ralph("--verify", "! grep -q BROKEN *.txt"), exit_code=0)
    return expected(id, "completed", files=ALL_PARTS, tasks=3, evidence=["1", "2", "fix-1-1"])


def failed_no_plan(place: Place) -> Json:
    """Make a run of Ralph whose planner could not be understood twice; a resume asks the planner once more."""
    repository(place)
    place.play({"role": "planner", "do": [{"say": "I have no plan."}]})
    id = finished(place, *ralph(), exit_code=1)
    place.play(*SCRIPT)
    calls = ["planner 2", "worker 1 1", "worker 2 1", "reviewer 1", "fixer fix-1-1 1", "reviewer 1"]
    return expected(id, "failed", calls=calls, files=ALL_PARTS)


def blocked_check_red(place: Place) -> Json:
    """Make a run of Ralph with a check that was red before the run; a resume runs it again."""
    repository(place)
    place.play(*SCRIPT)
    (place.root / "check.sh").write_text("exit 1\n")
    id = finished(place, *ralph("--verify", "sh ../check.sh"), exit_code=5)
    calls = ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1", "fixer fix-1-1 1", "reviewer 1"]
    return expected(id, "blocked", before={"check.sh": "exit 0\n"}, calls=calls, files=ALL_PARTS, verified=True)


def blocked_stuck(place: Place) -> Json:
    """Make a run of Ralph whose second worker changed nothing three times; a resume gives the task more attempts."""
    repository(place)
    place.play({"role": "worker", "task": "2", "do": [{"say": "All is done."}]}, *SCRIPT)
    id = finished(place, *ralph(), exit_code=5)
    place.play(*SCRIPT)
    calls = ["worker 2 4", "reviewer 1", "fixer fix-1-1 1", "reviewer 1"]
    return expected(id, "blocked", calls=calls, files=ALL_PARTS)


def stopped_by_ctrl_c(place: Place) -> Json:
    """Make a run of Ralph, stopped by Ctrl+C in the turn of the second worker."""
    repository(place)
    place.play(*held({"role": "worker", "task": "2"}))
    id = struck(place, *ralph(), number=signal.SIGINT)
    place.play(*SCRIPT)
    calls = ["worker 2 1", "reviewer 1", "fixer fix-1-1 1", "reviewer 1"]
    return expected(id, "paused", calls=calls, files=ALL_PARTS)


def capped_iterations(place: Place) -> Json:
    """Make a run of Ralph with one turn of a worker allowed; a resume allows more."""
    repository(place)
    place.play(*SCRIPT)
    id = finished(place, *ralph("--max-iterations", "1"), exit_code=6)
    calls = ["worker 2 1", "reviewer 1", "fixer fix-1-1 1", "reviewer 1"]
    return expected(id, "paused", "resume", "--max-iterations", "9", calls=calls, files=ALL_PARTS)


def cancelled(place: Place) -> Json:
    """Make a run of Ralph, cancelled while a worker was working: it cannot be resumed."""
    repository(place)
    place.play(*held({"role": "worker", "task": "1"}))
    process = place.start(*ralph())
    place.until("held")
    id = the_session(place)
    done = place.atomic("stop", id, "--cancel")
    assert done.returncode == 0, done.stderr
    assert end_of(process) == 130
    settle(place)
    return expected(id, "cancelled", exit_code=2, end=None)


def yolo(place: Place) -> Json:
    """Make a run of Ralph with --yolo, killed in its first turn; the next one keeps the promise."""
    repository(place)
    place.play({"role": "worker", "do": [HOLD]})
    id = struck(place, *ralph("--yolo"))
    done = committing("worker", "part1.txt", "part 1\n")
    place.play({**done, "do": [*done["do"], {"say": "\n<promise>COMPLETE</promise>"}]})
    return expected(id, "interrupted", calls=["worker 1"], files={"part1.txt": "part 1\n"})


def salvage_left(place: Place) -> Json:
    """Make a run of Ralph whose worker wrecked files of the user; `atomic salvage` puts them back."""
    repository(place)
    (place.project / "draft.md").write_text("my draft\n")
    (place.project / "link").symlink_to("draft.md")
    wreck = {"role": "worker", "task": "1", "do": [{"sh": "echo theirs > draft.md; rm link"}, {"say": "Done."}]}
    place.play(wreck, *SCRIPT)
    id = finished(place, *ralph("--max-iterations", "1"), exit_code=6)
    files = {"draft.md": "my draft\n", "link": "my draft\n", "draft.md.replaced-1": "theirs\n"}
    return expected(id, "paused", "salvage", "--force", end=None, files=files)


def tasks_from_a_file(place: Place) -> Json:
    """Make a run of Ralph with a list of tasks of the user, two workers, killed while both were working."""
    repository(place)
    tasks = [{"id": "1", "title": "Write part one"}, {"id": "2", "title": "Write part two"}]
    (place.root / "tasks.json").write_text(json.dumps(tasks))
    place.play(*({"role": "worker", "task": task, "do": [{"sh": f"touch ../at-{task}"}, HOLD]} for task in ("1", "2")))
    process = place.start(*ralph("--workers", "2", "--tasks", "../tasks.json", "--review-rounds", "0"))
    for name in ("held", "at-1", "at-2"):
        place.until(name)
    end_of(process, signal.SIGKILL)
    settle(place)
    place.play(*SCRIPT)
    return expected(the_session(place), "interrupted", calls=["worker 1 1", "worker 2 1"], files=PARTS)


def killed_plan(place: Place) -> Json:
    """Make a run of Ralph, killed while the planner was working."""
    repository(place)
    place.play(*held({"role": "planner"}))
    id = struck(place, *ralph())
    place.play(*SCRIPT)
    calls = ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1", "fixer fix-1-1 1", "reviewer 1"]
    return expected(id, "interrupted", calls=calls, files=ALL_PARTS)


def killed_work(place: Place) -> Json:
    """Make a run of Ralph, killed while the second worker was working."""
    repository(place)
    place.play(*held({"role": "worker", "task": "2"}))
    id = struck(place, *ralph())
    place.play(*SCRIPT)
    calls = ["worker 2 1", "reviewer 1", "fixer fix-1-1 1", "reviewer 1"]
    return expected(id, "interrupted", calls=calls, files=ALL_PARTS, verified=False)


def killed_check(place: Place) -> Json:
    """Make a run of Ralph, killed while the check of the first task ran."""
    repository(place)
    place.play(*SCRIPT)
    (place.root / "check.sh").write_text("test -f part1.txt || exit 0\ntouch ../held\nexec sleep 600\n")
    id = struck(place, *ralph("--verify", "sh ../check.sh"))
    calls = ["worker 2 1", "reviewer 1", "fixer fix-1-1 1", "reviewer 1"]
    return expected(id, "interrupted", before={"check.sh": "exit 0\n"}, calls=calls, files=ALL_PARTS, verified=True)


def killed_review(place: Place) -> Json:
    """Make a run of Ralph, killed while the reviewer was working."""
    repository(place)
    place.play(*held({"role": "reviewer"}))
    id = struck(place, *ralph())
    place.play(*SCRIPT)
    return expected(id, "interrupted", calls=["reviewer 1", "fixer fix-1-1 1", "reviewer 1"], files=ALL_PARTS)


def killed_fix(place: Place) -> Json:
    """Make a run of Ralph, killed while the fixer was working."""
    repository(place)
    place.play(*held({"role": "fixer"}))
    id = struck(place, *ralph())
    place.play(*SCRIPT)
    return expected(id, "interrupted", calls=["fixer fix-1-1 1", "reviewer 1"], files=ALL_PARTS)


def killed_after_work(place: Place) -> Json:
    """Make a run of Ralph, killed after the second worker had answered and before its step was recorded."""
    return killed_after(place, {"role": "worker", "task": "2"}, ["reviewer 1", "fixer fix-1-1 1", "reviewer 1"])


def killed_after_review(place: Place) -> Json:
    """Make a run of Ralph, killed after the reviewer had answered and before its step was recorded."""
    return killed_after(place, {"role": "reviewer"}, ["fixer fix-1-1 1", "reviewer 1"])


def killed_after(place: Place, who: Mapping[str, str], calls: list[str]) -> Json:
    """Let the first git that Atomic starts after a turn hold, and kill it there."""
    repository(place)
    parts = list(SCRIPT)
    at = next(at for at, part in enumerate(parts) if who.items() <= part.items())
    parts[at] = {**parts[at], "do": [*parts[at]["do"], {"sh": "touch ../turned"}]}
    place.play(*parts)
    git = place.root / "bin" / "git"
    git.parent.mkdir()
    hold = f"if test -e {place.root}/turned; then touch {place.root}/held; exec sleep 600; fi"
    git.write_text(f'#!/bin/sh\n{hold}\nexec "{shutil.which("git")}" "$@"\n')
    git.chmod(0o755)
    path = place.env["PATH"]
    place.env["PATH"] = f"{git.parent}:{path}"
    id = struck(place, *ralph())
    place.env["PATH"] = path
    shutil.rmtree(git.parent)
    place.play(*SCRIPT)
    return expected(id, "interrupted", calls=calls, files=ALL_PARTS)


HEAD = '''"""A workflow."""
import asyncio, os
from typing import Annotated
from atomic.workflows import *

class S(State):
    prompt: str = ""
    said: Annotated[list[str], reducers.concat] = []

def note(*words):
    with open("../ledger.txt", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

async def hold(name):
    note("begin", name)
    if not os.path.exists("../go"):
        open("../held", "w").close()
        await asyncio.sleep(600)

async def told(ctx):
    note("said", *sorted(ctx.state.said))

async def turn(ctx):
    name = ctx.item or ctx.node_id
    return {"said": [await ctx.deps.turn(f"[atomic role=worker task={name} attempt=1]\\nDo it.")]}

'''
GO: Json = {"go": ""}


def workflow(place: Place, name: str, code: str, *, folder: Path | None = None) -> None:
    path = (folder or place.atomic_home) / "workflows" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + code)


def saying(*tasks: str) -> list[Json]:
    return [{"role": "worker", "task": task, "do": [{"say": f"did {task}"}]} for task in tasks]


def recording(place: Place, *calls: Mapping[str, Any], name: str = "agents") -> str:
    """Write a recording; return the name of its agent."""
    path = place.root / f"{name}.jsonl"
    lines: list[Mapping[str, Any]] = [{"atomic_recording": 1, "command": []}, *calls]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"replay:{path}"


def failed(place: Place) -> Json:
    """Make a workflow whose second node failed, with a retry; a resume tries it again."""
    workflow(
        place,
        "fragile",
        """
async def first(ctx):
    note("first"); return {"said": ["one"]}

async def second(ctx):
    note("second", ctx.attempt)
    if not os.path.exists("../go"):
        raise ValueError("the bridge is closed")

workflow = (graph(S).node("first", first).node("second", second, retry=Retry(0.01, attempts=2))
    .node("told", told).compile())
""",
    )
    id = finished(place, "run", "fragile", "x", exit_code=1)
    return expected(id, "failed", before=GO, ledger=["second 3", "said one"])


def question(place: Place) -> Json:
    """Make a workflow that waits for an answer."""
    workflow(
        place,
        "ask",
        """
async def last(ctx):
    note("last", ctx.state.outputs["colour"], *ctx.state.said)

workflow = (graph(S).node("first", turn)
    .ask_user("colour", "Which colour?", options=["red", "blue"]).node("last", last).compile())
""",
    )
    place.play(*saying("first"))
    id = finished(place, "run", "ask", "x", exit_code=5)
    return expected(id, "paused", "answer", "2", ledger=["last blue did first"])


def two_questions(place: Place) -> Json:
    """Make a workflow with two open questions, of which one is answered; the other one is answered by its id."""
    workflow(
        place,
        "ask",
        """
async def both(ctx):
    name, age = await asyncio.gather(
        ctx.ask(Question("Name?", id="name")),
        ctx.ask(Question("Which?", id="which", options=[Option("a", "the first"), Option("b")], multi_select=True)),
    )
    note(name, age)

workflow = graph(S).node("both", both).compile()
""",
    )
    id = finished(place, "run", "ask", "x", exit_code=5)
    assert place.atomic("answer", id, "--no-resume", "name", "Bob").returncode == 0
    return expected(id, "paused", "answer", "which", "1,2", ledger=["Bob ['a', 'b']"])


def capped_cost(place: Place) -> Json:
    """Make a workflow that reached --max-cost after one turn; a resume with a higher cap continues it."""
    workflow(
        place,
        "costly",
        """
workflow = (graph(S).agent("one", "[atomic role=worker task=1 attempt=1]\\nDo one.")
    .agent("two", "[atomic role=worker task=2 attempt=1]\\nDo two.").node("told", told).compile())
""",
    )
    agent = recording(place, *(costly_call(task) for task in ("1", "2")))
    id = finished(place, "run", "costly", "-a", agent, "--max-cost", "0.5", "x", exit_code=6)
    return expected(id, "paused", "resume", "--max-cost", "5", ledger=["said"], cost=1.2)


def costly_call(task: str) -> Json:
    usage = {"input": 100, "output": 10, "cached": 0, "cost": 0.6}
    end = {"type": "turn_ended", "reason": "done", "text": f"did {task}", "usage": usage}
    return {"role": "worker", "task": task, "prompt": "Do it.", "events": [[0, end]]}


def usage_limit(place: Place) -> Json:
    """Make a workflow whose agent had reached its usage limit, with --on-limit stop; a resume takes another agent."""
    workflow(
        place,
        "limited",
        'workflow = graph(S).node("first", turn).node("second", turn).node("told", told).compile()\n',
    )
    done = {"type": "turn_ended", "reason": "done", "text": "did first"}
    limit = {"type": "limit_reached", "reset_at": "2027-01-01T00:00:00Z", "message": "You have used it all."}
    over = {"type": "turn_ended", "reason": "limit", "text": "", "error": "You have used it all."}
    agent = recording(
        place,
        {"role": "worker", "task": "first", "events": [[0, done]]},
        {"role": "worker", "task": "second", "events": [[0, limit], [0, over]]},
    )
    id = finished(place, "run", "limited", "-a", agent, "--on-limit", "stop", "x", exit_code=7)
    place.play(*saying("second"))
    words = ("resume", "--agent", "acp:player")
    return expected(id, "paused", *words, calls=["worker second 1"], ledger=["said did first did second"])


def parked(place: Place) -> Json:
    """Make a workflow that waits for the reset of a usage limit, killed meanwhile; the reset has passed."""
    workflow(
        place,
        "limited",
        'workflow = graph(S).node("first", turn).node("second", turn).node("told", told).compile()\n',
    )
    done = {"type": "turn_ended", "reason": "done", "text": "did it"}
    reset = datetime.fromtimestamp(int(time.time()) + 60, UTC).isoformat()
    limit = {"type": "limit_reached", "reset_at": reset, "message": "You have used it all."}
    over = {"type": "turn_ended", "reason": "limit", "text": "", "error": "You have used it all."}
    first = {"role": "worker", "task": "first", "events": [[0, done]]}
    second = {"role": "worker", "task": "second", "events": [[0, limit], [0, over]]}
    agent = recording(place, first, second)
    process = place.start("run", "limited", "-a", agent, "x")
    deadline = time.monotonic() + HANG
    while not any(place.record(folder.name)["parked_until"] for folder in place.atomic_home.glob("sessions/*-*")):
        assert time.monotonic() < deadline, "it is not parked"
        time.sleep(0.1)
    end_of(process, signal.SIGKILL)
    settle(place)
    recording(place, {**second, "events": [[0, done]]})  # the first node would find nothing to play
    return expected(the_session(place), "interrupted", ledger=["said did it did it"])


def named_session(place: Place) -> Json:
    """Make a workflow whose two nodes share a session of the agent by name, killed in the second one."""
    workflow(
        place,
        "shared",
        """
async def ask(ctx):
    prompt = f"[atomic role=worker task={ctx.node_id} attempt=1]\\nDo it."
    return {"said": [await ctx.deps.turn(prompt, session="both")]}

workflow = graph(S).node("first", ask).node("second", ask).node("told", told).compile()
""",
    )
    place.play({"role": "worker", "task": "second", "do": [HOLD]}, *saying("first"))
    id = struck(place, "run", "shared", "x")
    assert place.record(id)["named"] == {"both": ["acp:player", "player-1"]}, place.record(id)["named"]
    place.play(*saying("first", "second"))
    return expected(id, "interrupted", calls=["worker second 1"], ledger=["said did first did second"])


def killed_map(place: Place) -> Json:
    """Make a workflow, killed in the third of four items of a map; the first two are recorded."""
    workflow(
        place,
        "spread",
        """
workflow = (graph(S).map("all", over=lambda s: ["a", "b", "c", "d"], node=node("each", turn), max_concurrency=1)
    .node("told", told).compile())
""",
    )
    place.play({"role": "worker", "task": "c", "do": [HOLD]}, *saying("a", "b", "d"))
    id = struck(place, "run", "spread", "x")
    place.play(*saying("a", "b", "c", "d"))
    return expected(id, "interrupted", calls=["worker c 1", "worker d 1"], ledger=["said did a did b did c did d"])


def killed_parallel(place: Place) -> Json:
    """Make a workflow, killed inside a branch of a parallel; the other branch has ended."""
    workflow(
        place,
        "wide",
        """
async def slow(ctx):
    await hold("slow"); return {"said": ["slow"]}

branches = {"one": node("quick", turn), "two": graph(S).node("before", turn).node("slow", slow)}
workflow = graph(S).parallel(branches).node("told", told).compile()
""",
    )
    place.play(*saying("quick", "before"))
    id = struck(place, "run", "wide", "x", steps=("quick", "before"))
    return expected(id, "interrupted", before=GO, ledger=["begin slow", "said did before did quick slow"])


def killed_subgraph(place: Place) -> Json:
    """Make a workflow, killed in the second node of a sub-graph inside a loop, in the second round."""
    workflow(
        place,
        "nested",
        """
class Inner(State):
    prompt: str = ""
    rounds: int = 0

async def count(ctx):
    note("count", ctx.state.rounds); return {"rounds": ctx.state.rounds + 1}

async def slow(ctx):
    if ctx.state.rounds == 2:
        await hold("slow")

inner = graph(Inner).node("count", count).node("slow", slow).compile("inner")

class Outer(S):
    rounds: int = 0

body = graph(Outer).subgraph("inner", inner, input_mapper=lambda s: {"rounds": s.rounds},
    output_mapper=lambda inner, s: {"rounds": inner.rounds})
workflow = graph(Outer).loop(body, until=lambda s: s.rounds >= 3).node("told", told).compile()
""",
    )
    id = struck(place, "run", "nested", "x")
    return expected(id, "interrupted", before=GO, ledger=["begin slow", "count 2", "said"])


def sub_agents(place: Place) -> Json:
    """Make a workflow with three sub-agents at once, killed when two of them were through."""
    workflow(
        place,
        "three",
        """
def said(results, state):
    return {"said": [result.text for result in results]}

workflow = graph(S).parallel_subagent(
    "all", agents=[SubagentRequest("debugger", f"task {name}") for name in ("one", "two", "three")], merge=said
).node("told", told).compile()
""",
    )
    quick = [{"match": f"task {name}", "do": [{"say": f"did {name}"}]} for name in ("one", "two")]
    slow = "while ! test -f ../through; do sleep 0.1; done"
    place.play(*quick, {"match": "task three", "do": [{"sh": slow}, HOLD]})
    process = place.start("run", "three", "x")
    until_calls(place, 3)
    until_through(place, 2)
    (place.root / "through").touch()
    place.until("held")
    end_of(process, signal.SIGKILL)
    settle(place)
    place.play(*quick, {"match": "task three", "do": [{"say": "did three"}]})
    return expected(the_session(place), "interrupted", calls=["task three"], ledger=["said did one did three did two"])


def until_calls(place: Place, count: int) -> None:
    wait_until(lambda: len(place.calls) >= count, f"call {count}", limit=HANG)


def until_through(place: Place, count: int) -> None:
    """Wait until so many turns have ended, which `sessions show` tells."""
    deadline = time.monotonic() + HANG
    id = the_session(place)
    while True:
        shown = json.loads(place.atomic("sessions", "show", id, "--json").stdout)
        if sum(call["reason"] == "done" for call in shown["calls"]) >= count:
            break
        assert time.monotonic() < deadline, shown["calls"]
        time.sleep(0.1)
    time.sleep(1)  # what a sub-agent said is in the journal a moment after its turn has ended


def trusted_project(place: Place) -> Json:
    """Make a workflow of the project, which the user has trusted; it waits for an answer."""
    repository(place)
    code = """
async def last(ctx):
    note("last", ctx.state.outputs["colour"])

workflow = graph(S).ask_user("colour", "Which colour?", options=["red", "blue"]).node("last", last).compile()
"""
    workflow(place, "theirs", code, folder=place.project / ".atomic")
    shown = json.loads(place.atomic("trust", "--show", "--json").stdout)
    assert place.atomic("trust", shown["hash"]).returncode == 0
    id = finished(place, "run", "theirs", "x", exit_code=5)
    return expected(id, "paused", "answer", "red", ledger=["last red"])


def task_loop(place: Place) -> Json:
    """Make a workflow with a task loop over tasks.json, killed in the second of three tasks."""
    tasks = [{"id": id, "title": f"task {id}"} for id in ("a", "b", "c")]
    (place.root / "tasks.json").write_text(json.dumps({"tasks": tasks}))
    workflow(
        place,
        "loop",
        """
async def work(ctx):
    if ctx.item.id == "b":
        await hold("b")
    note("did", ctx.item.id)
    return {"said": [ctx.item.title]}

loop = task_loop_node("loop", tasks_path="../tasks.json", task_nodes=node("work", work))
workflow = graph(S).then(loop).node("told", told).compile()
""",
    )
    id = struck(place, "run", "loop", "x")
    ledger = ["begin b", "did b", "did c", "said task a task b task c"]
    return expected(id, "interrupted", before=GO, ledger=ledger, tasks=3)


def changed_workflow(place: Place) -> Json:
    """Make a run whose workflow has a newer state and a renamed node since; it waits for an answer."""
    code = """
state_version = 1

class T(S):
    old: int = 1

workflow = (graph(T).tool("build", lambda: "built").ask_user("q", "Well?").tool("ship", lambda: 1).compile())
"""
    workflow(place, "grow", code)
    id = finished(place, "run", "grow", "x", exit_code=5)
    newer = code.replace("state_version = 1", "state_version = 2").replace("old", "new").replace('"build"', '"make"')
    newer += """
renamed = {"build": "make"}

def migrate_state(old, version):
    note("migrate", version, old["old"]); return {"prompt": old["prompt"], "new": old["old"] + 1}
"""
    workflow(place, "grow", newer)
    return expected(id, "paused", "answer", "yes", ledger=["migrate 1 1"])


def sdk(place: Place, code: str) -> None:
    """Run `flow.py PHASE` of the fixture; it uses only `atomic.workflows`."""
    (place.project / "flow.py").write_text(code)
    done = place.python("flow.py", "make")
    assert done.returncode == 0, done.stderr


def sdk_journal(place: Place) -> Json:
    """Make a `SqliteJournal` alone: a run that waits, one that is done, a fork, and one that was killed."""
    sdk(place, SDK)
    process = place.start_python("flow.py", "kill")
    place.until("held")
    end_of(process, signal.SIGKILL)
    settle(place)
    runs = {"done": "completed", "waits": "paused", "killed": "running"}
    ledger = ["ask", "b done 1", "b killed 1"]
    return {"sdk": True, "runs": runs, "before": GO, "ledger": ledger, "printed": ["2", "yes", "1", "2", "2"]}


def sdk_snapshot(place: Place) -> Json:
    """Make a `SqliteJournal` with a megabyte of rows, so that it has a snapshot; the run waits."""
    sdk(place, SNAPSHOT)
    return {"sdk": True, "runs": {"big": "paused"}, "before": {}, "ledger": ["300000 yes"], "printed": ["5"]}


SDK = '''"""`make` and `kill` are run with the old code, `resume` with the new one."""
import asyncio, os, sys
from typing import Annotated
from atomic.workflows import *

class S(State):
    name: str = ""
    count: Annotated[int, reducers.sum] = 0

def note(*words):
    with open("../ledger.txt", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

async def a(ctx):
    note("a", ctx.state.name); return {"count": 1}

async def b(ctx):
    note("b", ctx.state.name, ctx.state.count)
    if ctx.state.name == "killed" and not os.path.exists("../go"):
        open("../held", "w").close(); await asyncio.sleep(600)
    return {"count": 1}

plain = graph(S).node("a", a).node("b", b).compile("plain")
asking = graph(S).node("a", a).ask_user("q", "Well?").tool("ask", lambda: note("ask")).compile("asking")

async def main(phase):
    with SqliteJournal("runs.db") as journal:
        if phase == "make":
            assert (await plain.run({"name": "done"}, journal=journal, execution_id="done")).status == "completed"
            assert (await asking.run({"name": "waits"}, journal=journal, execution_id="waits")).status == "paused"
            forked = journal.fork("done", at=1)
            with open("forked.txt", "w") as file:
                file.write(forked)
        elif phase == "kill":
            await plain.run({"name": "killed"}, journal=journal, execution_id="killed")
        else:
            for run in journal.list():
                print(run.execution_id, run.status, run.steps, sep="\\t")
            print((await plain.resume(journal, "done")).state.count)
            print((await asking.resume(journal, "waits", answers={"q": "yes"})).state.outputs["q"])
            print(plain.load(journal, "done", at=1).count)
            print((await plain.resume(journal, open("forked.txt").read())).state.count)
            print((await plain.resume(journal, "killed")).state.count)

asyncio.run(main(sys.argv[1]))
'''
SNAPSHOT = '''"""`make` is run with the old code, `resume` with the new one."""
import asyncio, sys
from atomic.workflows import *

class S(State):
    text: str = ""

async def last(ctx):
    with open("../ledger.txt", "a") as file:
        file.write(f"{len(ctx.state.text)} {ctx.state.outputs['q']}\\n")

big = graph(S)
for number in range(1, 6):
    async def grow(ctx, number=number):
        return {"text": str(number) * 300_000}
    big = big.node(f"grow{number}", grow)
big = big.ask_user("q", "Well?").node("last", last).compile("big")

async def main(phase):
    with SqliteJournal("runs.db") as journal:
        if phase == "make":
            assert (await big.run({}, journal=journal, execution_id="big")).status == "paused"
        else:
            for run in journal.list():
                print(run.execution_id, run.status, run.steps, sep="\\t")
            print((await big.resume(journal, "big", answers={"q": "yes"})).state.text[-1])

asyncio.run(main(sys.argv[1]))
'''


def older_question(place: Place) -> Json:
    """Make a workflow that waits for an answer, of a version whose journals had no facts of a run."""
    return question(place)


def older_killed_map(place: Place) -> Json:
    """Make a workflow that was killed in a map, of a version whose journals had no facts of a run."""
    return killed_map(place)


def older_killed_work(place: Place) -> Json:
    """Make a run of Ralph, killed in the turn of a worker, of a version whose journals have no start of a run."""
    return killed_work(place)


def older_completed(place: Place) -> Json:
    """Make a run of Ralph from plan to the second review, of a version whose journals had no facts of a run."""
    return completed(place)


RUNS: tuple[Callable[[Place], Json], ...] = (
    completed, failed_no_plan, blocked_check_red, blocked_stuck, stopped_by_ctrl_c, capped_iterations, cancelled, yolo,
    salvage_left, tasks_from_a_file, killed_plan, killed_work, killed_check, killed_review, killed_fix, failed,
    question, two_questions, capped_cost, usage_limit, killed_map, killed_parallel, killed_subgraph, sub_agents,
    trusted_project, task_loop, changed_workflow, sdk_journal, sdk_snapshot, killed_after_work, killed_after_review,
    parked, named_session, older_question, older_killed_map, older_killed_work, older_completed,
)  # fmt: skip
