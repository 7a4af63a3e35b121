"""Ralph on real agents: a user with a repository, and a scripted model.

The first line of each prompt selects the part of the script.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from atomic.testing import Call, ModelCall, ModelServer, Script, Turn, Word
from atomic.testing.conformance import AGENTS
from atomic.testing.conformance.agents import Words
from atomic.testing.model_server.playbook import Playbook
from atomic.testing.model_server.player import Player
from atomic.testing.model_server.script import ScriptFile
from tests.ralph.sandbox import Outcome, RalphProject
from tests.support.programs import CACHE, use_opencode_before
from tests.support.user import User, processes
from tests.support.user_workflows import Running, started
from tests.support.waits import eventually

PROGRAMS = ("ATOMIC_OPENCODE_PATH", "ATOMIC_COPILOT_PATH")
AGENT_NAMES = ["claude", *(pytest.param(name, marks=pytest.mark.full) for name in ("opencode", "copilot"))]
FOLDER = "{{folder}}"  # in the input of a tool: where the agent works
FIND_FOLDER = 'echo "folder=$(pwd -P)"'
_FOLDER = re.compile(r"^folder=(.+?)\s*$", re.MULTILINE)
_CUE = re.compile(r"^\[atomic role=(\S+?)(?: task=(\S+?))? attempt=(\d+)\]", re.MULTILINE)


# The model


def cue_in(text: str) -> tuple[str, ...]:
    """Return role, task and attempt of a prompt. Agents put their own text before it."""
    found = _CUE.search(text)
    return () if found is None else tuple(filter(None, found.groups()))


class Model(ModelServer):
    """A scripted model. Its calls are a record that Atomic cannot write to."""

    def __init__(self) -> None:
        super().__init__()
        self._gatherings: list[Gathering] = []

    def gather(self, *scripts: str) -> None:
        """Answer none of these scripts before all of them have been asked for."""
        self._gatherings.append(Gathering(scripts))

    def play(self, scripts: Mapping[str, Script]) -> None:
        """Play these parts from now on: the first of `worker.2.1`, `worker.2` and `worker` that exists."""

        def named(text: str) -> str | None:
            cue = cue_in(text)
            names = (".".join(cue[:length]) for length in range(len(cue), 0, -1))
            return next((name for name in names if name in scripts), None)

        self._playbook = Playbook(ScriptFile(dict(scripts), models=self.models), named)

    async def _play(self, call: ModelCall, player: Player, words: Sequence[Word]) -> bool:
        for gathering in self._gatherings:
            await gathering.attend(call)
        return await super()._play(call, player, [with_folder(word, call) for word in words])

    @property
    def begun(self) -> list[str]:
        """Return the prompts of Ralph in order, one for each turn."""
        return [" ".join(cue) for call in self.turns if (cue := cue_in(call.user_text))]

    @property
    def turns(self) -> list[ModelCall]:
        """Return the first call of each turn that has a part."""
        return [call for call in self.calls if call.script is not None and call.turn == 0]

    def asked(self, role: str) -> ModelCall:
        """Return the first call of a role."""
        return next(call for call in self.turns if cue_in(call.user_text)[:1] == (role,))

    def tool_results(self, role: str) -> str:
        """Return all results of tools that a role got."""
        return "\n".join(call.tool_result for call in self.calls if cue_in(call.user_text)[:1] == (role,))


class Gathering:
    """Scripts whose turns are open at the same time."""

    def __init__(self, scripts: Sequence[str]) -> None:
        self._missing = set(scripts)
        self._scripts = frozenset(scripts)
        self._complete = asyncio.Event()

    async def attend(self, call: ModelCall) -> None:
        """Wait for the others, if it is a call of one of the scripts."""
        if call.script not in self._scripts:
            return
        self._missing.discard(call.script)
        if not self._missing:
            self._complete.set()
        await self._complete.wait()


def with_folder(word: Word, call: ModelCall) -> Word:
    """Replace `{{folder}}` by the folder that the command before has printed."""
    found = _FOLDER.search(call.tool_result)
    if not isinstance(word, Call) or found is None:
        return word
    input = {
        name: value.replace(FOLDER, found[1]) if isinstance(value, str) else value for name, value in word.input.items()
    }
    return Call(word.tool, input, word.id)


# The user


class Stage(RalphProject):
    """A user with agents, a repository, and Ralph."""

    def __init__(self, user: User, model: Model, *names: str) -> None:
        super().__init__(user)
        self.model = model
        self.name = names[0]
        self.words = AGENTS[names[0]].words
        path = self.user.env["PATH"]
        for name in names:
            self.user.env |= AGENTS[name].environment(model, self.user.home, CACHE)
        self.user.env |= {"PATH": path, **{name: os.environ[name] for name in PROGRAMS}}
        if len(names) == 1:
            self.user.env["ATOMIC_AGENT"] = self.name
        if "opencode" in names:
            use_opencode_before(self.user.home)
        (self.project / ".gitignore").write_text("__pycache__/\n")
        (self.project / "README.md").write_text("# Games\n")
        self.make_repository()

    def leaves(self, name: str, data: Any) -> Path:
        """Put a file into the project and commit it."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        self.commit_all(f"Add {name}")
        return path

    # Parts that a model plays

    def work(self, files: Mapping[str, str], *, words: Words | None = None) -> list[Turn]:
        """Return a turn that writes the files, commits them, and claims success."""
        used = words or self.words
        writes: list[Turn] = [[used.write(self.project / name, text)] for name, text in files.items()]
        return [*writes, [used.bash(commit_command(*files))], "All is done, and it is excellent."]

    # Commands

    @asynccontextmanager
    async def running(self, *words: str) -> AsyncGenerator[Running]:
        async with started(self.user, *words) as run:
            yield run

    # Results

    @property
    def sessions(self) -> list[Path]:
        return sorted((self.user.home / ".atomic" / "sessions").iterdir())

    @property
    def about(self) -> dict[str, Any]:
        return json.loads((self.session / "session.json").read_text())

    @property
    def branch(self) -> str:
        return f"atomic/{self.session.name[:8]}"

    @property
    def subjects(self) -> list[str]:
        """Return the subjects of the commits, oldest first, without the user's own."""
        lines = self.git("log", "--branches", "--reverse", "--format=%s").splitlines()
        return [line for line in lines if line.startswith("Write ")]

    @property
    def logged(self) -> list[dict[str, Any]]:
        """Return the calls of agents in Atomic's log."""
        return [json.loads(line) for line in (self.session / "logs" / "agent-calls.jsonl").read_text().splitlines()]

    async def is_quiet(self) -> None:
        """Wait until no process of this user is left. Raises TimeoutError after ten seconds."""
        await eventually(lambda: not processes(self.user.home))


def commit_command(*files: str) -> str:
    """Return a command that commits; of two at once, one waits for the other."""
    names = " ".join(files)
    inner = f'git add -- {names} && git commit -q -m "Write {names}" -- {names}'
    return f"flock .git/one-at-a-time sh -c '{inner}'"


def asked_the_user(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the questions and permission requests of a run."""
    return [event for event in outcome.events if event["type"] == "question_asked"]


@asynccontextmanager
async def stage_for(folder: Path, *names: str, user: User | None = None) -> AsyncGenerator[Stage]:
    """Open a stage for these agents.

    At its end no process is left, and the agents have requested nothing but a model.
    """
    async with Model() as model:
        stage = Stage(user or User(folder), model, *names)
        yield stage
        await stage.is_quiet()
    assert not model.other, f"an agent asked for more than a model: {model.other}"
