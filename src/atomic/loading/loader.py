"""Make a workflow from the bytes of a file: run them, find the graph, compile it.

Every problem is reported with its file and line.
"""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Callable, Mapping
from hashlib import sha256
from inspect import Parameter as InspectParameter
from inspect import isclass, iscoroutinefunction, isroutine
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import msgspec

from atomic import __version__
from atomic.base.errors import AtomicError, did_you_mean
from atomic.graph import (
    CompiledGraph,
    FunctionWorkflow,
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
from atomic.workflows import workflow as workflow_decorator
from atomic.workflows.capabilities import capabilities_of
from atomic.workflows.code_names import called_workflows
from atomic.workflows.definition import (
    AtEnd,
    Capabilities,
    CreateState,
    LoadedWorkflow,
    MigrateState,
    Parameter,
    Runnable,
    WorkflowDefinition,
    WorkflowSource,
    WorkflowStateParams,
)
from atomic.workflows.errors import WorkflowCodeError, WorkflowLoadError, WorkflowProblem

_GRAPHS = ("graph_config", "workflow")


def define(
    path: Path,
    source: bytes,
    *,
    of: WorkflowSource,
    loader: Callable[[WorkflowDefinition], LoadedWorkflow],
    reader: MetadataReader,
    name: str = "",
) -> WorkflowDefinition:
    """Return the definition of a workflow from the metadata in its file, which does not
    run.

    `name` is its name if the file has none; by default the name of the file.
    """
    metadata = reader.metadata(source, name or path.stem)
    problems = [WorkflowProblem(path, remark.line, remark.reason) for remark in metadata.remarks]
    refused = any(remark.fatal for remark in metadata.remarks)
    needed = metadata.min_sdk_version
    if needed and is_newer(needed, __version__):
        line = _line_of_assignment(parse_source(source), "min_sdk_version")
        reason = f"it needs Atomic {needed} or newer, and this is {__version__}"
        problems.insert(0, WorkflowProblem(path, line, reason))
        refused = True
    facts = msgspec.structs.asdict(metadata)
    del facts["remarks"], facts["has_workflow"]
    if metadata.parameters is not None:
        facts["parameters"] = [Parameter(*msgspec.structs.astuple(one)) for one in metadata.parameters]
    return WorkflowDefinition(
        **facts,
        source=of,
        path=path,
        sha256=sha256(source).hexdigest(),
        problems=tuple(problems),
        refused=refused,
        loader=loader,
    )


class Code(Protocol):
    """The code of a file."""

    def run(self, path: str) -> ModuleType:
        """Return the module of a file. Raises whatever the file raises."""
        ...


def load_file(definition: WorkflowDefinition, files: Code, name: str, source: bytes) -> LoadedWorkflow:
    """Run a file and compile its graph. Raise WorkflowLoadError."""
    path = cast("Path", definition.path)
    try:
        module = files.run(name)
        graph = _find_graph(module, definition)
        if graph is None:
            _check_graph_is_not_misnamed(module, parse_source(source))
        if isinstance(graph, FunctionWorkflow):
            _check_function_file(module, graph, definition)
        at_end = cast("AtEnd | None", _find_plain_function(module, "at_end"))
        check_start = _find_plain_function(module, "check_start")
        create_state = _find_plain_function(module, "create_state")
    except GraphError as error:
        tree = parse_source(source)
        found = [WorkflowProblem(path, _line_of_node(tree, one.node_id), str(one)) for one in error.problems]
        raise WorkflowLoadError(definition.name, found) from error
    except _NotUsableError as error:
        line = error.line or _line_of_assignment(parse_source(source), error.name)
        raise WorkflowLoadError(definition.name, [WorkflowProblem(path, line, str(error))]) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's file may raise anything, an extension even a BaseException
        raise WorkflowLoadError(definition.name, [problem_of(error, path)]) from error
    return LoadedWorkflow(
        graph=graph,
        create_state=_take_prompt(graph) if create_state is None else _checked(create_state, graph, path, source),
        migrate_state=None if graph is None else graph.options.migrate_state,
        capabilities=capabilities_of(graph) if graph else Capabilities(),
        calls=called_workflows(graph) if isinstance(graph, FunctionWorkflow) else (),
        at_end=at_end,
        check_start=None if check_start is None else _located("check_start", check_start, path),
    )


def problem_of(error: BaseException, path: Path) -> WorkflowProblem:
    """Return an error of a user's file with the line that raised it."""
    if isinstance(error, SyntaxError) and error.filename:
        return WorkflowProblem(Path(error.filename), error.lineno or 1, f"this is not Python: {error.msg}")
    if isinstance(error, SourceError):
        return WorkflowProblem(path, error.line, error.reason)
    reason = str(error)
    if not isinstance(error, AtomicError) or not reason:
        reason = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    folders = (str(path.parent), str(path.parent.parent))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folders)]
    if not frames:
        return WorkflowProblem(path, 1, reason)
    return WorkflowProblem(Path(frames[-1].filename), frames[-1].lineno or 1, reason)


class _NotUsableError(Exception):
    """A name of the file has an unusable value.

    Without a line, its assignment is reported.
    """

    def __init__(self, name: str, reason: str, line: int = 0) -> None:
        self.name = name
        self.line = line
        super().__init__(reason)


def _find_graph(module: ModuleType, definition: WorkflowDefinition) -> Runnable | None:
    """Return the compiled graph or the workflow function of a file, with the options
    that the file sets.
    """
    config, workflow = (getattr(module, name, None) for name in _GRAPHS)
    if workflow is workflow_decorator:  # from an import
        workflow = None
    if config is not None and workflow is not None:
        raise _NotUsableError("workflow", "the file has both graph_config and workflow: remove one of them")
    if config is not None:
        if not isinstance(config, GraphConfig):
            raise _NotUsableError("graph_config", f"graph_config is {_kind(config)}, not a GraphConfig")
        return _with_options(compile_graph(cast("GraphConfig[Any]", config)), module, definition)
    if workflow is None:
        workflow = _only_function(module)
    if workflow is None:
        return None
    if isinstance(workflow, FunctionWorkflow):
        function = cast("FunctionWorkflow[..., Any]", workflow)
        options = msgspec.structs.replace(
            function.options, name=definition.name, description=function.description or definition.description
        )
        return function.with_options(options)
    if isinstance(workflow, GraphBuilder):
        workflow = cast("GraphBuilder[Any]", workflow).compile()
    if not isinstance(workflow, CompiledGraph):
        reason = f"workflow is {_kind(workflow)}, not a compiled graph: end it with .compile()"
        if iscoroutinefunction(workflow):
            reason = "workflow is an async function without its decorator: write @workflow above it"
        raise _NotUsableError("workflow", reason)
    return _with_options(cast("CompiledGraph[Any]", workflow), module, definition)


def _only_function(module: ModuleType) -> FunctionWorkflow[..., Any] | None:
    """Return the workflow function that a file itself defines.

    Raise _NotUsableError if there are several.
    """
    own: dict[int, tuple[str, FunctionWorkflow[..., Any]]] = {}
    for name, value in vars(module).items():
        if isinstance(value, FunctionWorkflow):
            function = cast("FunctionWorkflow[..., Any]", value)
            if function.function.__module__ == module.__name__:
                own.setdefault(id(function), (name, function))
    if len(own) > 1:
        names = [name for name, _ in own.values()]
        reason = f"the file has several workflows ({', '.join(names)}): name the one to run: workflow = {names[-1]}"
        raise _NotUsableError(names[-1], reason)
    return next((function for _, function in own.values()), None)


_FOR_GRAPHS = ("result", "create_state", "migrate_state", "state_version", "renamed", "removed")


def _check_function_file(
    module: ModuleType, function: FunctionWorkflow[..., Any], definition: WorkflowDefinition
) -> None:
    """Raise _NotUsableError for names that only graphs use."""
    for name in _FOR_GRAPHS:
        if hasattr(module, name):
            instead = "returns its result" if name == "result" else "has parameters and local variables"
            reason = f"{name} is for graphs: a workflow function {instead}; remove it"
            raise _NotUsableError(name, reason)
    parameters = function.parameters.parameters
    takes_all = any(one.kind is InspectParameter.VAR_KEYWORD for one in parameters.values())
    for key in definition.default_config:
        if key not in parameters and not takes_all:
            own = function.function.__name__
            reason = f'default_config has "{key}", but {own} has no such parameter{did_you_mean(key, parameters)}'
            raise _NotUsableError("default_config", reason)


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _with_options(graph: CompiledGraph[Any], module: ModuleType, definition: WorkflowDefinition) -> CompiledGraph[Any]:
    """Return the graph under the name of the workflow, which journals and cycle checks
    use.
    """
    migrate = cast("MigrateState | None", _find_function(module, "migrate_state")) or graph.options.migrate_state
    options = msgspec.structs.replace(
        graph.options,
        name=definition.name,
        description=graph.options.description or definition.description,
        state_version=definition.state_version if hasattr(module, "state_version") else graph.options.state_version,
        migrate_state=migrate,
        renamed=_find_edit(module, "renamed", graph.options.renamed),
        removed=_find_edit(module, "removed", graph.options.removed),
        result=graph.options.result or _find_result(module),
    )
    return with_options(graph, options)


def _find_result(module: ModuleType) -> Callable[[Any], Any] | None:
    """Return the file's function `result`. What `at_end` says is the result of a file
    that has only that.
    """
    result = _find_plain_function(module, "result")
    return _no_result if result is None and hasattr(module, "at_end") else result


def _no_result(state: Any) -> None:
    """Return no result: `at_end` says it."""


def _find_edit(module: ModuleType, name: str, compiled: Any) -> Any:
    """Return `renamed` or `removed` of the file, else of the call of `compile`."""
    given = getattr(module, name, None)
    if given is not None and compiled and given != compiled:
        raise _NotUsableError(name, f"{name} is given to compile and in the file: remove one of them")
    return compiled if given is None else given


def _find_function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    value = getattr(module, name, None)
    if value is not None and not callable(value):
        raise _NotUsableError(name, f"{name} is {_kind(value)}, not a function")
    return value


def _find_plain_function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    found = _find_function(module, name)
    if iscoroutinefunction(found):
        raise _NotUsableError(name, f"{name} is async, and Atomic does not await it: write a plain function")
    return found


def _located(name: str, function: Callable[..., Any], path: Path) -> Callable[[WorkflowStateParams], Any]:
    """Wrap a function of a user's file: an unexpected error is reported with file and
    line.
    """

    def call(params: WorkflowStateParams) -> Any:
        try:
            return function(params)
        except AtomicError:
            raise
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            raise WorkflowCodeError(name, problem_of(error, path)) from error

    return call


def _checked(create_state: Callable[..., Any], graph: Runnable | None, path: Path, source: bytes) -> CreateState:
    """Wrap a file's `create_state`: errors in it and in its result are reported with
    file and line.
    """

    def refuse(reason: str) -> WorkflowCodeError:
        line = _line_of_assignment(parse_source(source), "create_state")
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


def _take_prompt(graph: Runnable | None) -> CreateState:
    """Return the `create_state` of a file without one: it sets the field `prompt`, if
    there is one.
    """
    has_prompt = graph is not None and "prompt" in graph.program.spec.fields
    return lambda params: {"prompt": params.prompt} if has_prompt else {}


def line_of_node(source: bytes, node_id: str) -> int:
    """Return the line on which a file first names a node; 1 if it cannot be found."""
    return _line_of_node(parse_source(source), node_id)


def _line_of_node(tree: ast.Module, node_id: str) -> int:
    """Return the line of a node's id, preferably as the first argument of a call."""
    wanted = node_id.rpartition("/")[2]
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == wanted]
    calls = [
        call.args[0].lineno
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and call.args and call.args[0] in texts
    ]
    lines = calls or [text.lineno for text in texts]
    return min(lines) if wanted and lines else _line_of_assignment(tree, *_GRAPHS)


def _line_of_assignment(tree: ast.Module, *names: str) -> int:
    return min((line for name, line in _defined_names(tree).items() if name in names), default=1)


def _defined_names(tree: ast.Module) -> dict[str, int]:
    """Return the names that the top level assigns or defines, each with its first line."""
    found: dict[str, int] = {}
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.setdefault(name, statement.lineno)
            case ast.Assign() | ast.AnnAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, statement.lineno)
            case _:
                pass
    return found


_CONFIG_NAMES = ("graphconfig", "workflowconfig", "graphdefinition", "workflowdefinition")
_GRAPH_NAMES = ("workflow", "workflows", "graph", "workflowgraph", "graphworkflow", "compiledgraph", "graphbuilder")
_FACTORY = re.compile(r"(create|build|make|get|define|new|default|main|my)(?=graph|workflow)")
_SIMILAR = 0.85  # of difflib's ratio: "wrokflow" and "workflw", not "work" or "flow"


def _check_graph_is_not_misnamed(module: ModuleType, tree: ast.Module) -> None:
    """Raise _NotUsableError for a graph under another name, else for a name that looks
    like one.

    A file without either is a workflow that only has functions for the chat.
    """
    names = {name: line for name, line in _defined_names(tree).items() if hasattr(module, name)}
    graphs = [name for name in names if isinstance(getattr(module, name), CompiledGraph | GraphBuilder | GraphConfig)]
    name = next(iter(graphs), None) or next(filter(_looks_like_graph, names), None)
    if name is not None:
        raise _NotUsableError(name, f"no graph found: {_remedy(name, getattr(module, name))}", names[name])


def _looks_like_graph(name: str) -> bool:
    word = _FACTORY.sub("", _folded(name))
    if word in (*_CONFIG_NAMES, *_GRAPH_NAMES):
        return True
    # Other lengths cannot be similar, and every run of a chat would import difflib.
    if not 6 <= len(word) <= 14:
        return False
    from difflib import get_close_matches

    return bool(get_close_matches(word, ("workflow", "graphconfig"), 1, _SIMILAR))


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()


def _remedy(name: str, value: object) -> str:
    if isinstance(value, GraphConfig):
        return f'rename "{name}" to "graph_config"'
    if isinstance(value, CompiledGraph | GraphBuilder):
        return f'rename "{name}" to "workflow"'
    if iscoroutinefunction(value):
        return f'"{name}" is async: make it a plain function and add "workflow = {name}()"'
    if isroutine(value):
        return f'Atomic does not call "{name}": add "workflow = {name}()"'
    if "config" in _folded(name) and not isclass(value):
        return f'"{name}" must be "graph_config = GraphConfig(…)"'
    return f'"{name}" must be "workflow = graph(…).compile()"'
