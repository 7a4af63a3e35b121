"""The options of a run: the flags and the files that they name, read once, before there
is a session.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from atomic.base.errors import AtomicError, ExitCode
from atomic.base.redaction import MARK, Redactor
from atomic.base.terminal import one_line
from atomic.base.untrusted_files import read_bounded_text
from atomic.config import read_duration, read_layers
from atomic.config.ralph_flags import DEFAULTS, NAME
from atomic.git import find_repository
from atomic.loading.project_check import CheckCommand, find_check
from atomic.ralph.plan import FATAL
from atomic.tasks import TaskList, TasksError
from atomic.workflows.definition import ResumeParams, WorkflowStateParams
from atomic.workflows.errors import UntrustedError

OWN_LISTS = ("research/tasks.json", "research/feature-list.json")
RED_CHECKS = ("ignore", "goal")
ISOLATION = ("auto", "overlay", "clone", "worktree", "none")
# Origins of checks:
PLAN = "the plan"
SETTINGS = "config.toml"  # of the user
PROJECT_SETTINGS = ".atomic/config.toml"
MAX_SPEC = 1_000_000  # characters of a spec that a planner could still read
_SPEC_ENDINGS = (".md", ".markdown", ".txt", ".rst", ".adoc")


class StartError(AtomicError):
    """The run cannot be started with these options."""

    exit_code = ExitCode.USAGE


class Options(msgspec.Struct, frozen=True):
    """The options of a run."""

    mode: Literal["plan", "tasks", "yolo"]
    goal: str = ""  # the text for a planner or a yolo turn
    origin: str = ""  # the file that the goal or the list came from
    gates: tuple[CheckCommand, ...] = ()
    gate_timeout: float = 1800.0
    review_rounds: int = 3
    reviewers: int = 1
    workers: int = 1
    shared_workers: int = 0  # without isolation; 0: the same number
    isolate: str = "none"
    include_uncommitted: bool = False
    accept: bool = False
    pr: bool = False
    dry_run: bool = False
    project: str = ""  # the root of the project


def read_options(params: WorkflowStateParams) -> Options:
    """Read the options of a run. Raises StartError."""
    config = {**DEFAULTS, **params.config}
    cwd = Path(params.cwd or os.curdir)
    _check_words(config)
    mode, goal, origin = _source(params.prompt.strip(), config, cwd, Path(params.project or cwd))
    checks = _checks(params, config)
    refuse_secrets(checks, Redactor.of_environment())
    return Options(
        mode=mode,
        goal=goal,
        origin=origin,
        gates=tuple(checks),
        gate_timeout=_timeout(config["gate_timeout"]),
        review_rounds=_count(config, "review_rounds", least=0),
        reviewers=_count(config, "reviewers", least=1),
        workers=1 if mode == "yolo" else _count(config, "workers", least=1),
        shared_workers=0 if "workers" in params.given or _users_own(params, "workers") else 1,
        isolate=config["isolate"],
        include_uncommitted=bool(config["include_uncommitted"]),
        accept=bool(config["accept"]),
        pr=bool(config["pr"]),
        dry_run=bool(config["dry_run"]),
        project=params.project,
    )


def check_texts(params: WorkflowStateParams) -> None:
    """Refuse bytes that are not UTF-8: no file of the session could have them.

    Raises StartError.
    """
    for text in (params.cwd, params.project):
        _require_text(text, "the path of the project")
    for key, value in params.config.items():
        for text in cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,):
            _require_text(text, f"--{key.replace('_', '-')}")
    repository = find_repository(params.cwd or os.curdir)
    if (
        repository is not None and {**DEFAULTS, **params.config}["isolate"] != "none"
    ):  # it stores where its branch began
        _require_text(repository.branch_in_head(), f"the name of the branch in {repository.root}")


def _require_text(text: Any, name: str) -> None:
    if not isinstance(text, str):
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        raise StartError(
            f'{name} has bytes that are not UTF-8, and Atomic stores only UTF-8: "{one_line(readable)}". Change it'
        ) from None


def check_resume(params: ResumeParams) -> None:
    """Refuse flags without effect, and a checkout that no worker may commit to.

    Raises StartError.
    """
    given = params.given
    config = {**DEFAULTS, **params.config}
    if not config["dry_run"] and config["isolate"] == "none":
        check_operation(params.cwd, then=f"run atomic resume {params.run}")
    red_checks_of(given)
    if "red_checks" in given and params.has_worked:
        raise StartError(
            "--red-checks has no effect: it decides about checks that are red before the run, and this run has begun"
            f" its work. Make the check green and run atomic resume {params.run}, or start a new run with --red-checks"
        )
    if "review_rounds" not in given:
        return
    rounds = rounds_of(given)
    if config["yolo"]:
        raise StartError("--review-rounds has no effect: a run with --yolo has no review; leave it out")
    if bool(rounds) != bool(rounds_of(config)):
        was = "with" if rounds_of(config) else "without"
        raise StartError(
            f"--review-rounds cannot be {rounds}: this run was started {was} reviews, and a resume cannot change that"
        )


def check_yolo(params: WorkflowStateParams) -> None:
    """Refuse flags that have no effect with `--yolo`. Raises StartError."""
    given = params.given
    config = {**DEFAULTS, **params.config}
    if not config["yolo"]:
        return
    if given.get("workers", 1) != 1:
        raise StartError("--workers has no effect with --yolo: one agent works on the prompt; leave it out")
    for key, flag in (("reviewers", "--reviewers"), ("review_rounds", "--review-rounds")):
        if given.get(key):
            raise StartError(f"{flag} has no effect: a run with --yolo has no review; leave it out")


def most_iterations(config: Mapping[str, Any]) -> int:
    """Return the limit of turns of workers and fixers; 0 means no limit.

    Raises StartError.
    """
    return _count({**DEFAULTS, **config}, "max_iterations", least=0)


def red_checks_of(config: Mapping[str, Any]) -> str:
    """Return what to do with checks that are red before the run; empty if not given.

    Raises StartError.
    """
    said = {**DEFAULTS, **config}["red_checks"]
    if said not in ("", *RED_CHECKS):
        raise StartError(f'--red-checks cannot be "{said}": give {" or ".join(RED_CHECKS)}')
    return said


def rounds_of(config: Mapping[str, Any]) -> int:
    """Return the current limit of review rounds. Raises StartError."""
    return _count({**DEFAULTS, **config}, "review_rounds", least=0)


def read_list(path: Path) -> TaskList:
    """Read a list of tasks or features. Raises StartError if it cannot be worked on."""
    try:
        tasks = TaskList.read(path)
    except TasksError as error:
        raise StartError(str(error)) from error
    if fatal := [problem for problem in tasks.problems if problem.kind in FATAL]:
        raise StartError(f"{path}: {'; '.join(map(str, fatal))}")
    if not tasks.tasks:
        raise StartError(f"{path} has no tasks: add one, or give another list")
    if all(task.status.is_done for task in tasks.tasks):
        raise StartError(
            f"all {len(tasks.tasks)} tasks in {path} are completed already: add a task, or give another list"
        )
    return tasks


def _check_words(config: Mapping[str, Any]) -> None:
    if config["isolate"] not in ISOLATION:
        raise StartError(
            f'--isolate cannot be "{config["isolate"]}": give {", ".join(ISOLATION[:-1])} or {ISOLATION[-1]}'
        )
    for flag, key in (("--include-uncommitted", "include_uncommitted"), ("--accept", "accept")):
        if config[key] and config["isolate"] == "none":
            raise StartError(f"{flag} has no effect with --isolate none: the run works in your checkout; leave one out")
    given = [flag for flag, key in (("--tasks", "tasks"), ("--feature-list", "feature_list")) if config[key]]
    if config["yolo"]:
        given.append("--yolo")
    if len(given) > 1:
        raise StartError(f"{' and '.join(given)} cannot be given together: choose one")
    most_iterations(config)
    red_checks_of(config)


def _count(config: Mapping[str, Any], key: str, *, least: int) -> int:
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise StartError(f'--{key.replace("_", "-")} cannot be "{value}": give a whole number, {least} or more')
    return value


def _timeout(text: Any) -> float:
    try:
        seconds = read_duration(str(text))
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise StartError(f'--gate-timeout cannot be "{text}": give a time, such as 90s, 30m or 2h')
    return seconds


def check_trust(params: WorkflowStateParams, options: Options) -> None:
    """Refuse a check of the project, or a set-up of its workspaces, that the user has
    not approved.

    Raises UntrustedError.
    """
    untrusted = params.untrusted
    if untrusted is None or options.dry_run:
        return
    if untrusted.setup and options.isolate != "none":
        raise UntrustedError(untrusted.project, untrusted.hash, [f"set-up of workspaces ({untrusted.setup})"])
    if "verify" in params.given:
        return
    of_settings = [command for path, command in untrusted.gates if path == PROJECT_SETTINGS]
    for check in options.gates:
        if check.origin != SETTINGS or check.command in of_settings:
            raise UntrustedError(untrusted.project, untrusted.hash, [f'check "{check.command}" ({check.origin})'])


def check_operation(cwd: str, *, then: str = "start again") -> None:
    """Refuse a checkout with an unfinished merge or rebase, which a worker's commit
    would finish. Raises StartError.

    `then` is the next command once the operation is finished.
    """
    repository = find_repository(cwd)
    operation = "" if repository is None else repository.operation()
    if repository is None or operation in ("", "bisect"):
        return
    raise StartError(
        f"A git {operation} is in progress in {repository.root}: a commit of a worker would become part of it. "
        f"Finish it (git {operation} --continue) or take it back (git {operation} --abort), then {then}"
    )


def check_writable(cwd: str) -> None:
    """Refuse a folder in which workers could change nothing. Raises StartError."""
    if not os.access(cwd, os.W_OK | os.X_OK):
        raise StartError(
            f"You may not write to {one_line(cwd)}, in which the workers would work. Nothing was paid. "
            "Change its permissions, or change to another folder, then start again"
        )


def _checks(params: WorkflowStateParams, config: Mapping[str, Any]) -> list[CheckCommand]:
    """Return the given checks, or else the one that the project's files define, which
    runs at the project's root.
    """
    if given := _commands(config["verify"]):
        if "verify" in params.given:
            return [CheckCommand(command, "--verify") for command in given]
        own = {command for value in _users_own(params, "verify") for command in _commands(value)}
        return [CheckCommand(command, SETTINGS if command in own else PROJECT_SETTINGS) for command in given]
    found = project_check(params.project or params.cwd, params.cwd)
    return [] if found is None else [found]


def _users_own(params: WorkflowStateParams, key: str) -> list[Any]:
    """Return the values that the user's own configuration sets for a key of Ralph."""
    layers, _ = read_layers(Path(params.project or params.cwd))
    tables = [layer.values.get("workflows", {}) for layer in layers if layer.origin == "user"]
    return [
        table[key]
        for workflows in tables
        for name, table in workflows.items()
        if name.casefold() == NAME and key in table
    ]


def project_check(project: str, cwd: str) -> CheckCommand | None:
    """Return the check that the project's files define, as it is run from `cwd`, or
    None.
    """
    found = find_check(Path(project))
    if found is None or os.path.realpath(project) == os.path.realpath(cwd):
        return found
    way = shlex.quote(os.path.relpath(os.path.realpath(project), os.path.realpath(cwd)))
    return CheckCommand(f"cd {way} && {found.command}", found.origin)


def has_secret(command: str, redactor: Redactor) -> bool:
    """Return whether a check contains a secret, or did before it was stored."""
    return MARK in command or redactor.text(command) != command


def refuse_secrets(checks: Iterable[CheckCommand], redactor: Redactor) -> None:
    """Raise StartError if a check contains a secret.

    Checks are stored without secrets and are run as they are stored, so such a check
    would run with the mark.
    """
    for check in checks:
        if has_secret(check.command, redactor):
            raise StartError(
                f'the check "{redactor.text(check.command)}" ({check.origin}) contains a secret, which Atomic does not '
                'store: put the value into an environment variable, write "$NAME" in the check, and list NAME in '
                "[checks] env of your config.toml"
            )


def _commands(given: Any) -> Sequence[str]:
    commands = list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else [given]
    if not all(isinstance(command, str) and command.strip() for command in commands):
        raise StartError('--verify needs a command, such as --verify "make test"')
    return list(dict.fromkeys(commands))


def _source(
    prompt: str, config: Mapping[str, Any], cwd: Path, project: Path
) -> tuple[Literal["plan", "tasks", "yolo"], str, str]:
    """Return the mode, the goal, and the file that it is from."""
    if config["yolo"]:
        if not prompt:
            raise StartError('--yolo needs a prompt, such as atomic run ralph --yolo "make all tests pass"')
        return "yolo", *_spec(prompt, cwd)
    for key in ("tasks", "feature_list"):
        if config[key]:
            return "tasks", prompt, str(_listed(cwd / str(config[key])))
    if prompt:
        return "plan", *_spec(prompt, cwd)
    for path in (folder / name for folder in (cwd, project) for name in OWN_LISTS):
        if path.exists():
            return "tasks", "", str(_listed(path))
    raise StartError(
        "nothing to do: give a prompt, the path of a spec, --tasks PATH or --feature-list PATH"
        f" (found neither {' nor '.join(OWN_LISTS)})"
    )


def _listed(path: Path) -> Path:
    read_list(path)
    return path


def _spec(prompt: str, cwd: Path) -> tuple[str, str]:
    """Return the prompt, or the text of the file that it names, and that file.

    Raises StartError.
    """
    if "\n" in prompt or len(prompt) > 1000:
        return prompt, ""
    path = cwd / Path(prompt).expanduser()
    try:
        if path.is_file():
            return _read_spec(path), str(path)
        is_folder = " " not in prompt and path.is_dir()
    except (OSError, ValueError):  # not a possible file name
        return prompt, ""
    if is_folder:
        raise StartError(f"{prompt} is a folder, and no goal: give the path of a spec, or a prompt in quotes")
    if prompt.endswith(_SPEC_ENDINGS) and " " not in prompt:
        raise StartError(f"{prompt} does not exist: give the path of a spec, or a prompt in quotes")
    return prompt, ""


def _read_spec(path: Path) -> str:
    try:
        text = read_bounded_text(path, 4 * MAX_SPEC)
    except OSError as error:
        raise StartError(f"{path}: {error.strerror or error}") from error
    if not text.strip():
        raise StartError(f"{path} is empty: write the goal into it, or give another file")
    if len(text) > MAX_SPEC:
        raise StartError(f"{path} is longer than {MAX_SPEC:,} characters: give a shorter spec")
    return text
