"""Make a workflow of a file's bytes: run them, find the graph, compile it. All that is wrong is told with its line."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable, Mapping
from hashlib import sha256
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec

from atomic import __version__
from atomic.base.errors import AtomicError
from atomic.graph import (
    CompiledGraph,
    GraphBuilder,
    GraphConfig,
    GraphError,
    State,
    StateError,
    compile_graph,
    with_options,
)
from atomic.loading.metadata import SourceError, is_newer, parse_source
from atomic.loading.metadata_reader import MetadataReader
from atomic.loading.modules import SourceFiles
from atomic.loading.near_misses import find_near_miss
from atomic.workflows.capabilities import capabilities_of
from atomic.workflows.definition import (
    AtEnd,
    Capabilities,
    CreateState,
    LoadedWorkflow,
    MigrateState,
    WorkflowDefinition,
    WorkflowSource,
    WorkflowStateParams,
)
from atomic.workflows.errors import WorkflowCodeError, WorkflowLoadError, WorkflowProblem

GRAPHS = ("graph_config", "workflow")


def define(
    path: Path,
    source: bytes,
    *,
    of: WorkflowSource,
    loader: Callable[[WorkflowDefinition], LoadedWorkflow],
    reader: MetadataReader,
) -> WorkflowDefinition:
    """What a file says of itself; nothing of it runs."""
    said = reader.metadata(source, path.stem)
    problems = [WorkflowProblem(path, remark.line, remark.reason) for remark in said.remarks]
    refused = any(remark.fatal for remark in said.remarks)
    if said.min_sdk_version and is_newer(said.min_sdk_version, __version__):
        line = _line_of_assignment(source, "min_sdk_version")
        needs = f"it needs Atomic {said.min_sdk_version} or newer, and this is {__version__}"
        problems, refused = [WorkflowProblem(path, line, needs), *problems], True
    return WorkflowDefinition(
        name=said.name, description=said.description, aliases=said.aliases, version=said.version,
        min_sdk_version=said.min_sdk_version, state_version=said.state_version, argument_hint=said.argument_hint,
        default_config=said.default_config, node_descriptions=said.node_descriptions,
        config_descriptions=said.config_descriptions, source=of, path=path,
        sha256=sha256(source).hexdigest(),
        problems=tuple(problems), refused=refused, loader=loader,
    )  # fmt: skip


def load_file(definition: WorkflowDefinition, files: SourceFiles, name: str, source: bytes) -> LoadedWorkflow:
    """Run a file and compile its graph. Raises WorkflowLoadError."""
    path = cast("Path", definition.path)
    try:
        module = files.run(name)
        graph = _graph_of(module, definition)
        if graph is None and (missed := find_near_miss(module, parse_source(source))) is not None:
            raise _NotUsableError(missed.name, missed.reason, missed.line)
        at_end = cast("AtEnd | None", _plain_function(module, "at_end"))
        check_start = _plain_function(module, "check_start")
        create_state = _plain_function(module, "create_state")
    except GraphError as error:
        lines = _Lines(source)
        found = [WorkflowProblem(path, lines.of_node(one.node_id), str(one)) for one in error.problems]
        raise WorkflowLoadError(definition.name, found) from error
    except _NotUsableError as error:
        line = error.line or _Lines(source).of_assignment(error.name)
        problem = WorkflowProblem(path, line, str(error))
        raise WorkflowLoadError(definition.name, [problem]) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's file may raise anything; the panic of an extension is no Exception
        raise WorkflowLoadError(definition.name, [problem_of(error, path)]) from error
    return LoadedWorkflow(
        graph=graph,
        create_state=_with_prompt(graph) if create_state is None else _first_state(create_state, graph, path, source),
        migrate_state=None if graph is None else graph.options.migrate_state,
        capabilities=capabilities_of(graph) if graph else Capabilities(),
        at_end=at_end,
        check_start=None if check_start is None else _told("check_start", check_start, path),
    )


def problem_of(error: BaseException, path: Path) -> WorkflowProblem:
    """Where in a user's file an error comes from, and what it is."""
    if isinstance(error, SyntaxError) and error.filename:
        return WorkflowProblem(Path(error.filename), error.lineno or 1, f"this is not Python: {error.msg}")
    if isinstance(error, SourceError):
        return WorkflowProblem(path, error.line, error.reason)
    folders = {str(path.parent), str(path.parent.parent)}
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if any(frame.filename.startswith(f) for f in folders)
    ]
    where = frames[-1] if frames else None
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, AtomicError) and str(error):
        reason = str(error)
    return WorkflowProblem(Path(where.filename) if where else path, (where.lineno if where else None) or 1, reason)


class _NotUsableError(Exception):
    """A name in the file that holds something else than it should."""

    def __init__(self, name: str, reason: str, line: int = 0) -> None:
        self.name, self.line = name, line
        super().__init__(reason)


def _graph_of(module: ModuleType, definition: WorkflowDefinition) -> CompiledGraph[Any] | None:
    config, workflow = (getattr(module, name, None) for name in GRAPHS)
    if config is not None and workflow is not None:
        raise _NotUsableError("workflow", "the file has both graph_config and workflow: give one of them")
    if config is not None:
        if not isinstance(config, GraphConfig):
            raise _NotUsableError("graph_config", f"graph_config is no GraphConfig, but {_kind(config)}")
        return _named(compile_graph(cast("GraphConfig[Any]", config)), module, definition)
    if workflow is None:
        return None
    if isinstance(workflow, GraphBuilder):
        workflow = cast("GraphBuilder[Any]", workflow).compile()
    if not isinstance(workflow, CompiledGraph):
        raise _NotUsableError(
            "workflow", f"workflow is no compiled graph, but {_kind(workflow)}; end it with .compile()"
        )
    return _named(cast("CompiledGraph[Any]", workflow), module, definition)


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _named(graph: CompiledGraph[Any], module: ModuleType, definition: WorkflowDefinition) -> CompiledGraph[Any]:
    """The same graph under the workflow's name: by that a circle is seen, and journals tell it."""
    migrate = cast("MigrateState | None", _function(module, "migrate_state")) or graph.options.migrate_state
    options = msgspec.structs.replace(
        graph.options,
        name=definition.name,
        description=graph.options.description or definition.description,
        state_version=definition.state_version if hasattr(module, "state_version") else graph.options.state_version,
        migrate_state=migrate,
        renamed=_edit(module, "renamed", graph.options.renamed),
        removed=_edit(module, "removed", graph.options.removed),
    )
    return with_options(graph, options)


def _edit(module: ModuleType, name: str, compiled: Any) -> Any:
    """What the file says about runs of its older versions; one word for the graph and the file."""
    given = getattr(module, name, None)
    if given is not None and compiled and given != compiled:
        raise _NotUsableError(name, f"{name} is given to compile and in the file: give it once")
    return compiled if given is None else given


def _function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    value = getattr(module, name, None)
    if value is not None and not callable(value):
        raise _NotUsableError(name, f"{name} is no function, but {_kind(value)}")
    return value


def _plain_function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    given = _function(module, name)
    if iscoroutinefunction(given):
        raise _NotUsableError(name, f"{name} is async, and nobody would wait for it: write a plain function")
    return given


def _told(name: str, function: Callable[..., Any], path: Path) -> Callable[[WorkflowStateParams], Any]:
    """A function of a user's file; what it does not raise on purpose is told with its name, file and line."""

    def call(params: WorkflowStateParams) -> Any:
        try:
            return function(params)
        except AtomicError:
            raise
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            raise WorkflowCodeError(name, problem_of(error, path)) from error

    return call


def _first_state(
    create_state: Callable[..., Any], graph: CompiledGraph[Any] | None, path: Path, source: bytes
) -> CreateState:
    """Wrap a file's `create_state`: whatever goes wrong in it, or with its result, is reported with file and line."""

    def refuse(reason: str) -> WorkflowCodeError:
        line = _line_of_assignment(source, "create_state")
        return WorkflowCodeError("create_state", WorkflowProblem(path, line, reason))

    def call(params: WorkflowStateParams) -> State | Mapping[str, Any]:
        try:
            made: object = create_state(params)
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            raise WorkflowCodeError("create_state", problem_of(error, path)) from error
        if not isinstance(made, State | Mapping):
            raise refuse(f"it returned {'nothing' if made is None else _kind(made)}, not a state")
        state = cast("State | Mapping[str, Any]", made)
        if graph is not None:
            try:
                graph.program.spec.start(state, "")
            except StateError as error:
                raise refuse(f"it returned a state that does not fit: {error}") from error
        return state

    return call


def _with_prompt(graph: CompiledGraph[Any] | None) -> CreateState:
    has_prompt = graph is not None and "prompt" in graph.program.spec.fields

    def with_prompt(params: WorkflowStateParams) -> Mapping[str, Any]:
        return {"prompt": params.prompt} if has_prompt else {}

    return with_prompt


# lines -------------------------------------------------------------------------------------------------------------


def line_of_node(source: bytes, node_id: str) -> int:
    """Where a file names a node first; 1 if nobody can see it."""
    return _Lines(source).of_node(node_id)


def _line_of_assignment(source: bytes, name: str) -> int:
    return _Lines(source).of_assignment(name)


class _Lines:
    """Where things stand in a file."""

    def __init__(self, source: bytes) -> None:
        self._tree = parse_source(source)

    def of_node(self, node_id: str) -> int:
        """Where its id is written: in a call rather than as a plain text."""
        wanted = node_id.rpartition("/")[2]
        texts = [node for node in ast.walk(self._tree) if isinstance(node, ast.Constant) and node.value == wanted]
        first = [
            call.args[0].lineno
            for call in ast.walk(self._tree)
            if isinstance(call, ast.Call) and call.args and call.args[0] in texts
        ]
        found = min(first or [text.lineno for text in texts], default=0) if wanted else 0
        return found or self.of_assignment(*GRAPHS)

    def of_assignment(self, *names: str) -> int:
        for statement in self._tree.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            named = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name in names
            if named or any(isinstance(target, ast.Name) and target.id in names for target in targets):
                return statement.lineno
        return 1
