"""`merge_node`: puts the results of isolated nodes on the run's branch, one by one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.lazy_types import deferred
from atomic.graph import Node, NodeKind, NodeResult
from atomic.graph.engine.author_functions import AuthorFunctions, call, value_of
from atomic.graph.engine.builder import NodeOptions
from atomic.graph.engine.control import Duration, seconds_of
from atomic.graph.engine.state import StateT
from atomic.workflows.agent_turns import runtime_of
from atomic.workflows.errors import MergeError
from atomic.workflows.nodes import Context
from atomic.workflows.runtime import SubagentRequest

if TYPE_CHECKING:
    from atomic.workspaces import Landed, View, Work
else:
    Work = deferred("atomic.workspaces", "Work")

OnConflict = Literal["fail", "continue"]
Results = Sequence[str] | Callable[[StateT], Any] | Callable[[StateT, Any], Any]
Commands = str | Sequence[str] | Callable[[StateT], str | Sequence[str]] | Callable[[StateT, Any], str | Sequence[str]]
MAX_OUTPUT = 8_000  # bytes of the end of a check's output
MAX_NAMED = 5  # files in a sentence
CHECK_TIMEOUT = "30m"


class MergeOutcome(msgspec.Struct, frozen=True):
    """What became of one result.

    `merged`: `commit` is on the run's branch. `unchanged`: there was nothing to merge.
    `conflict`: `detail` has both sides as git shows them, of `files`. `red`: a check
    failed on the merged result, and `detail` has the end of its output. `unfinished`:
    its worker left a rebase or the like, or commits without the one at which it began.
    `failed`: its sub-agent failed, and `detail` has the reason.
    """

    name: str
    status: Literal["merged", "unchanged", "conflict", "red", "unfinished", "failed"]
    commit: str = ""
    detail: str = ""
    files: tuple[str, ...] = ()
    dropped: Mapping[str, Sequence[str]] = {}  # by path: lines of others that the merge took away
    work: Work | None = None

    @property
    def is_done(self) -> bool:
        """Return whether nothing of the result is missing on the branch."""
        return self.status in ("merged", "unchanged")


class _Red(msgspec.Struct, frozen=True):
    """A check that failed, and the end of its output."""

    command: str
    reason: str
    output: str

    @property
    def text(self) -> str:
        return f"`{self.command}` {self.reason}\n{self.output}".rstrip()


class _Given(msgspec.Struct, frozen=True):
    """A result to merge, or the error of its sub-agent."""

    name: str
    work: Work | None
    error: str = ""


def merge_node(
    id: str,
    *,
    results: Results[StateT],
    check: Commands[StateT] = (),
    check_timeout: Duration = CHECK_TIMEOUT,
    on_conflict: OnConflict = "fail",
    fixer: str = "",
    fixes: int = 2,
    **options: Unpack[NodeOptions[StateT]],
) -> Node[StateT, Any]:
    """Make a node that puts the results of isolated nodes on the run's branch.

    `results` are the ids of these nodes, or a function of the state that returns their
    outputs. One after the other, in this order, is put on top of the branch. The
    commands of `check` run in a new workspace of the result. Then the branch moves, if
    no other program has moved it meanwhile. If two results have the same name, the last
    one counts, so that a fixer's result can follow the one that it continues.

    `outputs[id]` is a list with a `MergeOutcome` for each result. A result with a
    conflict, or with a check that fails after the merge, goes to the sub-agent `fixer`,
    at most `fixes` times, in a workspace of that result. What still cannot be merged is
    left out, and the others are merged. Then the node fails and shows both sides, or
    with `on_conflict="continue"` it does not.
    """
    functions = AuthorFunctions(*_problems(results, check_timeout, on_conflict, fixes))
    get_results = functions.read("results", results)
    get_commands = functions.read("check", check)

    async def run(ctx: Context[StateT]) -> NodeResult:
        if fixer:
            runtime_of(ctx).entities.require("agent", fixer)  # report an unknown name before spending anything
        given = _given(ctx, results, get_results)
        commands: str | Sequence[str] = value_of(get_commands, ctx.state, ctx.item)
        queue = _Queue(ctx, [commands] if isinstance(commands, str) else commands, check_timeout, fixer, fixes)
        outcomes = [await queue.merge(one, order) for order, one in enumerate(given)]
        left = [outcome for outcome in outcomes if not outcome.is_done]
        if left and on_conflict == "fail":
            raise MergeError(len(outcomes), [(one.name, _reason(one)) for one in left])
        return NodeResult({"outputs": {ctx.output_key: outcomes}})

    reads = () if callable(results) or isinstance(results, str) else tuple(results)
    kind = NodeKind.AGENT if fixer else NodeKind.TOOL
    return Node(
        id=id, kind=kind, run=run, problems=functions.problems, of_item=functions.of_item, reads=reads, isolated=True,
        **options,
    )  # fmt: skip


def _problems(results: Any, timeout: Any, on_conflict: Any, fixes: Any) -> tuple[str, ...]:
    found: list[str] = []
    if callable(results):
        pass  # its signature is checked with those of the others
    elif isinstance(results, str) or not all(isinstance(one, str) for one in results):
        found.append(f"results takes a list of ids of isolated nodes, or a function of the state, not {results!r:.60}")
    elif not results:
        found.append("results is empty: give the ids of isolated nodes")
    try:
        seconds_of(timeout)
    except ValueError as error:
        found.append(f"check_timeout {error}")
    if on_conflict not in ("fail", "continue"):
        found.append(f'on_conflict takes "fail" or "continue", not {on_conflict!r:.60}')
    if not isinstance(fixes, int) or isinstance(fixes, bool) or fixes < 1:
        found.append(f"fixes takes a whole number from 1, not {fixes!r:.60}")
    return tuple(found)


def _given(ctx: Context[StateT], results: Results[StateT], get_results: Any) -> list[_Given]:
    """Return the results in their order; of several with one name the last one.

    Raises AtomicError if there is none, or one is not that of an isolated node.
    """
    if callable(results):
        found = list(_find("results", call(get_results, ctx.state, item=ctx.item)))
    else:
        found = [one for id in results for one in _find(f'outputs["{id}"]', ctx.output_of(id))]
    if not found:
        raise AtomicError("there is nothing to merge: none of the nodes in results has an output")
    return list({one.name: one for one in found}.values())


def _find(where: str, value: Any) -> Iterator[_Given]:
    """Yield the results in the output of a node: of a single one, of a map, of parallel
    sub-agents. A node that has not run has none.
    """
    if value is None:
        return
    value = msgspec.to_builtins(value)
    if isinstance(value, list):
        for place, one in enumerate(cast("list[Any]", value)):
            yield from _find(f"{where}[{place}]", one)
        return
    facts = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    work = facts.get("work", facts)
    try:
        from atomic.workspaces import Work

        read = msgspec.convert(work, Work)
    except msgspec.ValidationError:
        raise AtomicError(f"{where} is not the result of an isolated node: give that node isolate=True") from None
    error = "" if facts.get("success", True) else facts.get("error") or "it gave no reason"
    yield _Given(read.name, None if error else read, error)


class _Queue:
    """Merges the results of one step."""

    def __init__(self, ctx: Context[Any], commands: Sequence[str], timeout: Duration, fixer: str, fixes: int) -> None:
        self._ctx = ctx
        self._deps = runtime_of(ctx)
        self._commands = commands
        self._timeout = seconds_of(timeout)
        self._fixer = fixer
        self._fixes = fixes if fixer else 0

    async def merge(self, given: _Given, order: int) -> MergeOutcome:
        """Merge one result, with the help of the fixer if there is one."""
        if given.work is None:
            return MergeOutcome(given.name, "failed", detail=given.error)
        outcome = await self._try(given.work, order)
        for number in range(1, self._fixes + 1):
            if outcome.is_done:
                break
            outcome = await self._fix(outcome, number, order)
        return outcome

    async def _try(self, work: Work, order: int) -> MergeOutcome:
        from atomic.workspaces import Conflict

        if work.is_empty:
            return MergeOutcome(work.name, "unchanged", work=work)
        if unfinished := _find_unfinished(work):
            return MergeOutcome(work.name, "unfinished", detail=unfinished, work=work)
        merged = await self._deps.merge(work, order=order, check=self._find_red)
        if isinstance(merged, Conflict):
            return MergeOutcome(work.name, "conflict", detail=merged.text, files=merged.paths, work=work)
        if isinstance(merged, _Red):
            return MergeOutcome(work.name, "red", detail=merged.text, work=work)
        self._tell_dropped(merged)
        return MergeOutcome(work.name, "merged", merged.commit, dropped=merged.dropped, work=work)

    def _tell_dropped(self, landed: Landed) -> None:
        from atomic.workspaces import WHOLE

        for path, lines in landed.dropped.items():
            what = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
            taken = f"{what} away that another result had added to {path}"
            if list(lines) == [WHOLE]:
                taken = f"the change away that another result had made to {path}"
            text = f"{landed.task}: merging took {taken}; look at it"
            self._ctx.emit("warning", {"text": text})

    async def _fix(self, outcome: MergeOutcome, number: int, order: int) -> MergeOutcome:
        """Let the fixer continue a result, and merge it again."""
        assert outcome.work is not None
        self._ctx.emit("warning", {"text": f"{outcome.name}: {_describe(outcome)}; {self._fixer} gets it back"})
        request = SubagentRequest(
            self._fixer,
            _fix_prompt(outcome),
            id=f"{self._ctx.step_id}-{outcome.name}-{number}",
            model=self._ctx.model,
            isolate=outcome.work,
        )
        fixed = await self._deps.bridge.spawn(request)
        if not fixed.success or fixed.work is None:
            return msgspec.structs.replace(outcome, detail=f"{self._fixer} failed: {fixed.error}\n\n{outcome.detail}")
        return await self._try(fixed.work, order)

    async def _find_red(self, commit: str) -> _Red | None:
        """Run the checks in a new workspace of a commit, up to the first that fails."""
        if not self._commands:
            return None
        place = f"{self._ctx.node_id}-{commit[:12]}"
        async with self._deps.timed("check"), self._deps.workspaces.fresh(place, commit) as view:
            for command in self._commands:
                red = await self._run(command, view)
                if red is not None:
                    return red
        return None

    async def _run(self, command: str, view: View) -> _Red | None:
        from atomic.processes import ExecTimeoutError
        from atomic.providers.environment import CHECK_VARIABLES, child_environment

        place = view.path_of(self._deps.folder)
        env = child_environment(passed=self._deps.check_variables, extra={**CHECK_VARIABLES, "PWD": str(place)})
        end = _End()
        try:
            done = await view.run("sh", "-c", command, cwd=place, env=env, timeout=self._timeout, on_output=end.add)
        except ExecTimeoutError:
            return _Red(command, f"took longer than {self._timeout:g} s", end.text)
        if done.exit_code == 0:
            return None
        return _Red(command, f"failed (exit code {done.exit_code})", end.text)


class _End:
    """The end of an output."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        del self._data[:-MAX_OUTPUT]

    @property
    def text(self) -> str:
        from atomic.base.terminal import harmless

        return harmless(self._data.decode("utf-8", "replace"))


def _find_unfinished(work: Work) -> str:
    """Return why a work cannot be merged as its worker has left it, or an empty text."""
    if work.unfinished:
        return f"its worker left a {work.unfinished} unfinished, and files may have both sides of a conflict"
    if not work.base:
        return f"its commits do not contain {work.start[:12]}, at which it began, so the work of others would be lost"
    return ""


def _describe(outcome: MergeOutcome) -> str:
    """Return why a result was not merged, in one line."""
    if outcome.status == "unfinished":
        return outcome.detail
    if outcome.status == "conflict":
        return f"conflicts with other results in {', '.join(outcome.files[:MAX_NAMED])}"
    if outcome.status == "failed":
        return f"its sub-agent failed: {outcome.detail}"
    return f"after merging, {outcome.detail.partition(chr(10))[0]}"


def _reason(outcome: MergeOutcome) -> str:
    """Return why a result was not merged, with both sides."""
    if outcome.status in ("failed", "unfinished"):
        return _describe(outcome)
    return f"{_describe(outcome)}\n{outcome.detail}"


def _fix_prompt(outcome: MergeOutcome) -> str:
    """Return the task of a fixer."""
    from atomic.workspaces.run_workspaces import TIP

    work = outcome.work
    assert work is not None
    if outcome.status == "conflict":
        what = (
            f"Others have changed the same lines since then, in {shlex.join(outcome.files)}. Both sides, as git shows "
            "them (first theirs, then those of this work):"
        )
    elif outcome.status == "red":
        what = "Together with the work of others a check fails:"
    else:
        what = "The reason:"
    return (
        f"The commits after {work.start[:12]} in this repository are one piece of work: {work.title}\n\n"
        f"It could not be merged. {what}\n\n{outcome.detail}\n\n"
        f"The branch `{TIP}` of this repository has the work of the others. Put this work on top of it "
        f"(`git rebase {TIP}`), keep what both sides intend, run the tests, and commit."
    )
