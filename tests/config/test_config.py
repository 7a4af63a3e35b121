"""Settings: who may set them, which one wins, and the line of a mistake."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from atomic.config import (
    AcpSettings,
    CapSettings,
    ConfigError,
    ProviderSettings,
    Settings,
    find_project,
    load_settings,
    read_duration,
)
from atomic.config.files import key_lines
from atomic.ralph.definition import DEFAULTS as RALPH_DEFAULTS
from atomic.workflows import WorkflowDefinition
from tests.support.repositories import git

FORBIDDEN = {
    "editor": 'editor = "evil"',
    "providers.claude.path": '[providers.claude]\npath = "evil"',
    "providers.opencode.args": '[providers.opencode]\nargs = ["--evil"]',
    "providers.copilot.env": '[providers.copilot.env]\nGH_TOKEN = "evil"',
    "acp.gemini.command": '[acp.gemini]\ncommand = ["evil"]',
    "env.pass": '[env]\npass = ["AWS_SECRET_ACCESS_KEY"]',
    "trust": "trust = true",
    "permissions": 'permissions = "allow"',
    "providers.claude.base_url": '[providers.claude]\nbase_url = "http://evil"',
    "providers.claude.api_key": '[providers.claude]\napi_key = "evil"',
    "model": 'model = "the-most-expensive"',
    "keys.leave": '[keys]\nleave = "enter"',
    **{
        f"workflows.ralph.{words.partition(' ')[0]}": f"[workflows.ralph]\n{words}"
        for words in (
            "pr = true",
            "yolo = true",
            'tasks = "docs/.tasks.json"',
            'feature_list = "docs/features.json"',
            'gate_timeout = "9000h"',
            "dry_run = false",
            'isolate = "auto"',
            "anything = 1",
        )
    },
}


class Folders:
    """A user and a project, each with a configuration file to write."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.user_file = self.home / "config.toml"
        self.project_file = self.project / ".atomic" / "config.toml"

    def load(self, user: str | None = None, project: str | None = None) -> Settings:
        for file, text in ((self.user_file, user), (self.project_file, project)):
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                file.write_text(text, encoding="utf-8")
        return load_settings(self.project, self.home)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    for name in ("ATOMIC_HOME", "ATOMIC_AGENT", "ATOMIC_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return Folders(tmp_path)


def test_without_files_nothing_is_set(folders: Folders) -> None:
    assert folders.load() == Settings()


def test_every_key_is_understood_and_typed(folders: Folders) -> None:
    settings = folders.load(
        """
agent = "claude"
model = "opus"
theme = "dark"
editor = "vim -f"
[keys]
tasks = "ctrl+t"
leave = ["ctrl+q", "ctrl+d"]
[caps]
max_cost = 5
max_tokens = 1_000_000
max_time = "1h30m"
[providers.claude]
path = "/opt/claude"
args = ["--verbose", ""]
env = { ANTHROPIC_BASE_URL = "http://127.0.0.1:1" }
[acp.gemini]
command = ["gemini", "--acp"]
[env]
pass = ["NPM_TOKEN"]
[workflows.ralph]
verify = ["make test"]
workers = 2
"""
    )
    assert settings.warnings == ()
    assert (settings.agent, settings.model, settings.theme, settings.editor) == ("claude", "opus", "dark", "vim -f")
    assert settings.keys == {"tasks": ["ctrl+t"], "leave": ["ctrl+q", "ctrl+d"]}
    assert settings.caps == CapSettings(max_cost=5.0, max_tokens=1_000_000, max_time=5_400)
    assert settings.provider("claude") == ProviderSettings(
        "/opt/claude", ["--verbose", ""], {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    )
    assert settings.provider("copilot") == ProviderSettings()
    assert settings.acp == {"gemini": AcpSettings(["gemini", "--acp"])}
    assert settings.env.pass_ == ["NPM_TOKEN"]
    assert settings.workflows == {"ralph": {"verify": ["make test"], "workers": 2}}


def test_the_environment_overrides_the_project_which_overrides_the_user(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = 'agent = "claude"\nmodel = "opus"\ntheme = "dark"'
    project = 'agent = "opencode"\nmodel = "sonnet"'
    settings = folders.load(user, project)
    assert (settings.agent, settings.model, settings.theme) == ("opencode", "opus", "dark")
    monkeypatch.setenv("ATOMIC_AGENT", "copilot")
    monkeypatch.setenv("ATOMIC_MODEL", "")  # empty counts as unset
    settings = folders.load()
    assert (settings.agent, settings.model) == ("copilot", "opus")


def test_tables_are_merged_key_by_key(folders: Folders) -> None:
    settings = folders.load(
        "[workflows.ralph]\nworkers = 4\nreviewers = 2\n[workflows.mine]\ndeep = true\n[caps]\nmax_cost = 3",
        "[workflows.ralph]\nworkers = 3\n[caps]\nmax_tokens = 5",
    )
    assert settings.workflows == {"ralph": {"workers": 3, "reviewers": 2}, "mine": {"deep": True}}
    assert settings.caps == CapSettings(max_cost=3, max_tokens=5)
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("user", "project", "expected"),
    [
        ("", 'verify = ["b"]', ["b"]),
        ("", 'verify = "b"', ["b"]),
        ('verify = "a"', 'verify = ["b", "a"]', ["a", "b"]),
        ('verify = ["a"]', "verify = []", ["a"]),
    ],
)
@pytest.mark.parametrize("name", ["ralph", "RALPH"])
def test_a_project_adds_checks_and_removes_none(
    folders: Folders, user: str, project: str, expected: list[str], name: str
) -> None:
    settings = folders.load(f"[workflows.ralph]\n{user}", f"[workflows.{name}]\n{project}")
    assert settings.workflows == {"ralph": {"verify": expected}}


@pytest.mark.parametrize("key", ["max_iterations", "workers", "reviewers", "review_rounds"])
@pytest.mark.parametrize("name", ["ralph", "Ralph"])
def test_a_project_lowers_a_number_and_never_lifts_it(folders: Folders, key: str, name: str) -> None:
    user = f"[workflows.ralph]\n{key} = 5"
    assert folders.load(user, f"[workflows.{name}]\n{key} = 4").workflows == {"ralph": {key: 4}}
    for value in ("6", "0", "-1", "true", '"1"', "1.5", "[]"):
        settings = folders.load(user, f"[workflows.{name}]\n\n{key} = {value}")
        assert settings.workflows == {"ralph": {key: 5}}
        (warning,) = settings.warnings
        assert warning.startswith(f'{folders.project_file}:3: "workflows.{name}.{key}" is ignored')


def test_a_project_lowers_the_default_if_the_user_has_set_nothing(folders: Folders) -> None:
    settings = folders.load("", "[workflows.ralph]\nmax_iterations = 99\nworkers = 5\n[workflows.mine]\nworkers = 1")
    assert settings.workflows == {"ralph": {"max_iterations": 99}}
    assert len(settings.warnings) == 2
    settings = folders.load("[workflows.ralph]\nmax_iterations = 0", "[workflows.ralph]\nmax_iterations = 1000")
    assert settings.workflows == {"ralph": {"max_iterations": 1000}}


@pytest.mark.parametrize("name", ["replay:.atomic/r.jsonl", "acp:evil", "./evil", "/bin/sh", "CLAUDE", "acp:"])
def test_a_project_names_only_agents_that_the_user_has(folders: Folders, name: str) -> None:
    user = 'agent = "claude"\n[acp.mine]\ncommand = ["mine"]'
    assert folders.load(user, 'agent = "acp:mine"').agent == "acp:mine"
    settings = folders.load(user, f"\nagent = '{name}'\n[acp.evil]\n")
    assert settings.agent == "claude"
    (warning,) = settings.warnings
    assert warning.startswith(f'{folders.project_file}:2: "agent" is ignored: a project may name only claude')


def test_a_file_with_many_wrong_keys_does_not_fill_the_screen(folders: Folders) -> None:
    settings = folders.load("", "[keys]\n" + "".join(f'k{number} = "x"\n' for number in range(500)))
    assert len(settings.warnings) == 21
    assert settings.warnings[-1] == f"{folders.project_file}: 480 more keys are ignored"


# A project's file against the allow-list: compare effective settings, not warnings.

_WORDS = st.text("abcxyz:./-_ é\x1b", max_size=8)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.booleans(), st.integers(-2, 10**7), st.floats(allow_nan=False, allow_infinity=False), _WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=3)),
    max_leaves=4,
)
_SOME_AGENTS = st.sampled_from(["claude", "opencode", "replay:r.jsonl", "acp:mine", "acp:evil", "./x"])
_RALPH_KEYS = st.sampled_from([*RALPH_DEFAULTS, "other"])
_RALPH = st.dictionaries(
    _RALPH_KEYS, st.one_of(st.integers(-1, 200), st.booleans(), _WORDS, st.lists(_WORDS)), max_size=6
)
_TABLES = st.dictionaries(st.sampled_from(["ralph", "RALPH", "mine"]), _RALPH, max_size=3)
_CAPS = st.dictionaries(st.sampled_from(["max_cost", "max_tokens", "max_time"]), st.integers(1, 100), max_size=3)
_PROJECTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"unknown": st.just(0)},
    optional={
        **dict.fromkeys(("trust", "api_key", "x", "yolo"), _VALUES),
        "agent": _SOME_AGENTS,
        "model": _WORDS,
        "theme": st.sampled_from(["dark", "light"]),
        "editor": _WORDS,
        "keys": st.dictionaries(_WORDS, _VALUES, max_size=2),
        "caps": _CAPS,
        "workflows": _TABLES,
        "acp": st.dictionaries(_WORDS, st.fixed_dictionaries({"command": st.lists(_WORDS, min_size=1)}), max_size=1),
        "env": st.fixed_dictionaries({"pass": st.lists(_WORDS)}),
        "providers": st.dictionaries(
            st.sampled_from(["claude", "opencode", "evil"]),
            st.dictionaries(st.sampled_from(["path", "args", "env", "base_url"]), _VALUES, max_size=2),
            max_size=1,
        ),
    },
)
_USERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"acp": st.just({"mine": {"command": ["mine"]}})},
    optional={
        "agent": st.sampled_from(["claude", "copilot"]),
        "model": st.just("opus"),
        "theme": st.just("ansi"),
        "keys": st.just({"leave": "q"}),
        "caps": st.dictionaries(st.sampled_from(["max_cost", "max_tokens"]), st.integers(1, 100), max_size=2),
        "workflows": st.dictionaries(
            st.sampled_from(["ralph", "Ralph", "mine"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "max_iterations": st.integers(0, 200),
                    "workers": st.integers(1, 9),
                    "review_rounds": st.integers(0, 9),
                    "verify": st.lists(st.sampled_from(["make test", "x"]), max_size=2),
                    "pr": st.booleans(),
                    "gate_timeout": st.just("5m"),
                },
            ),
            max_size=2,
        ),
    },
)


def _toml(value: Any) -> str:
    """Return a value as TOML; JSON covers everything except tables."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(inner)}" for name, inner in items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, cast("list[Any]", value))) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def _file(table: Mapping[str, Any]) -> str:
    return "".join(f"{json.dumps(name)} = {_toml(value)}\n" for name, value in table.items())


def _effective(settings: Settings, name: str) -> dict[str, Any]:
    definition = WorkflowDefinition(name=name, default_config=RALPH_DEFAULTS if name == "ralph" else {})
    return definition.config(settings.workflows)


def _at_most(one: float | None, other: float | None) -> bool:
    return other is None or (one is not None and one <= other)


@settings_of_hypothesis(max_examples=100)
@given(_USERS, _PROJECTS)
def test_a_project_changes_only_settings_on_the_allow_list(user: dict[str, Any], project: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folders = Folders(Path(place))
        own = folders.load(_file(user))
        try:
            both = folders.load(None, _file(project))
        except ConfigError:  # a value of the wrong type: nothing is set
            return
    assert both.agent in (own.agent, "claude", "opencode", "copilot", "acp:mine")
    for name in ("model", "editor", "keys", "acp", "env"):
        assert getattr(both, name) == getattr(own, name)
    for name in ("claude", "opencode", "copilot", "evil"):
        assert both.provider(name) == own.provider(name)
    for name in ("max_cost", "max_tokens", "max_time"):
        assert _at_most(getattr(both.caps, name), getattr(own.caps, name))
    for name in ("ralph", "mine"):
        before = _effective(own, name)
        after = _effective(both, name)
        numbers = ("max_iterations", "workers", "reviewers", "review_rounds")
        for key in after.keys() | before.keys():
            if key == "verify":
                given = _as_list(before.get(key))
                assert list(after[key])[: len(given)] == given
            elif key in numbers and before.get(key) != after.get(key):
                assert key in before
                assert 1 <= after[key] <= (before[key] or math.inf if key == "max_iterations" else before[key])
            else:
                assert after.get(key) == before.get(key)


def _as_list(commands: Any) -> list[Any]:
    return list(dict.fromkeys(cast("list[Any]", commands or [])))


@pytest.mark.parametrize("key", FORBIDDEN)
def test_a_project_cannot_set(folders: Folders, key: str) -> None:
    text = f"# a comment\n\n{FORBIDDEN[key]}\n"
    settings = folders.load(project=text)
    line = text.rstrip("\n").count("\n") + 1 if not key.endswith(".env") else 3
    (warning,) = settings.warnings
    assert warning.startswith(f'{folders.project_file}:{line}: "{key}" is ignored: a project may not set it')
    assert settings == Settings(warnings=(warning,), providers=settings.providers)
    assert all(provider == ProviderSettings() for provider in settings.providers.values())


def test_a_project_cannot_replace_the_users_programs(folders: Folders) -> None:
    settings = folders.load(
        '[acp.mine]\ncommand = ["mine"]\n[providers.claude]\npath = "/mine"',
        '[acp.mine]\ncommand = ["evil"]\n[providers.claude]\npath = "/evil"',
    )
    assert settings.acp["mine"].command == ["mine"]
    assert settings.provider("claude").path == "/mine"
    assert len(settings.warnings) == 2


def test_a_project_can_lower_a_cap_and_not_raise_it(folders: Folders) -> None:
    user = '[caps]\nmax_cost = 10.0\nmax_time = "1h"'
    settings = folders.load(user, '[caps]\nmax_cost = 10.5\nmax_tokens = 7\nmax_time = "30m"')
    assert settings.caps == CapSettings(max_cost=10.0, max_tokens=7, max_time=1_800)
    (warning,) = settings.warnings
    assert warning.startswith(f'{folders.project_file}:2: "caps.max_cost" is ignored: a project may not set it higher')


@pytest.mark.parametrize(
    ("text", "line", "key", "hint"),
    [
        ('agnet = "claude"', 1, "agnet", 'did you mean "agent"?'),
        ("\n[provider.claude]\n", 2, "provider", 'did you mean "providers"?'),
        ('[providers.claud]\npath = "x"', 1, "providers.claud", 'did you mean "providers.claude"?'),
        ("[caps]\n\nmax_costs = 1", 3, "caps.max_costs", 'did you mean "caps.max_cost"?'),
        ("[env]\nzzz = 1", 2, "env.zzz", "known here: pass"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest(folders: Folders, text: str, line: int, key: str, hint: str) -> None:
    (warning,) = folders.load(text).warnings
    assert warning == f'{folders.user_file}:{line}: "{key}" is ignored: there is no such key ({hint})'


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("agent = 3", 1, '"agent" must be the name of an agent, such as "claude", not 3'),
        ('agent = ""', 1, '"agent" must be the name of an agent, such as "claude", not ""'),
        ("\ncaps = 5", 2, '"caps" must be a table, not 5'),
        ('[caps]\nmax_cost = "ten"', 2, '"caps.max_cost" must be a number of dollars above 0, not "ten"'),
        ("[caps]\nmax_cost = true", 2, '"caps.max_cost" must be a number of dollars above 0, not true'),
        ("[caps]\nmax_cost = nan", 2, '"caps.max_cost" must be a number of dollars above 0, not nan'),
        ("[caps]\nmax_tokens = 0", 2, '"caps.max_tokens" must be a whole number above 0, not 0'),
        ("[caps]\nmax_time = 6", 2, '"caps.max_time" must be a time such as "90s", "30m" or "6h", not 6'),
        ('[providers.claude]\nargs = "-v"', 2, '"providers.claude.args" must be a list of texts, not "-v"'),
        ("[providers.claude]\nenv = 3", 2, '"providers.claude.env" must be a table of variables, not 3'),
        ("[acp.gemini]\ncommand = []", 2, '"acp.gemini.command" must be a list, such as ["gemini", "--acp"], not []'),
        ("\n[acp.gemini]\n", 2, '"acp.gemini" must be a table with a "command", not {}'),
        ('agent = "claude"\nagent = "x"', 2, "this is not TOML: Cannot overwrite a value"),
        ('x = 1\nagent = "claude', 2, "this is not TOML: Illegal character '\\n'"),
        ("a = " + "[" * 20_000, 1, "values are nested too deep"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_file_line_and_reason(folders: Folders, text: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        folders.load(text + "\n")
    assert str(caught.value) == f"{folders.user_file}:{line}: {reason}"
    assert (caught.value.file, caught.value.line) == (folders.user_file, line)


def test_a_file_that_is_not_text_is_reported(folders: Folders) -> None:
    folders.load()
    folders.user_file.write_bytes(b'agent = "claude"\nmodel = "\xff"\n')
    with pytest.raises(ConfigError, match=":2: this is not UTF-8 text"):
        folders.load()
    folders.user_file.write_bytes(b"#" * 2_000_000)
    with pytest.raises(ConfigError, match=":1: this file is longer than"):
        folders.load()


def test_a_projects_pipe_does_not_block_the_start(folders: Folders) -> None:
    folders.load()
    os.mkfifo(folders.project_file)
    assert folders.load() == Settings()


def test_a_relative_program_starts_from_the_folder_of_its_file(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    path = "[providers.claude]\npath = 'bin/claude'\n[providers.copilot]\npath = '~/copilot'"
    settings = folders.load(path)
    assert settings.provider("claude").path == str(folders.home / "bin/claude")
    assert settings.provider("copilot").path == "/somewhere/copilot"


def test_in_the_home_folder_the_users_file_is_not_a_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ATOMIC_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".atomic").mkdir()
    (tmp_path / ".atomic" / "config.toml").write_text('editor = "vim"')
    settings = load_settings()
    assert (settings.editor, settings.warnings) == ("vim", ())


def test_the_project_is_the_nearest_folder_upwards_with_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    inside = tmp_path / "project" / "a" / "b"
    inside.mkdir(parents=True)
    git(tmp_path, "init", "-q")  # the home folder contains projects and is not one
    assert find_project(inside) == inside
    (tmp_path / "project" / "a" / ".git").mkdir()  # not a repository
    git(tmp_path / "project", "init", "-q")
    assert find_project(inside) == tmp_path / "project"
    (inside / ".atomic").mkdir()
    monkeypatch.chdir(inside)
    assert find_project() == inside


def test_a_deleted_folder_has_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.setenv("ATOMIC_HOME", str(tmp_path))
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert load_settings() == Settings()


def test_a_line_is_found_after_any_other_lines() -> None:
    text = '''# [no]
a = """
[no]
b = 1
""" # c = 2
"d.e" = [
  "]", # f = 3
  '[',
]
[ g . "h i" ] # comment
j.k = { l = 1 }
[[m]]
n = \'\'\'o = "\'\'\'
p = "#"
'''
    lines = key_lines(text)
    assert lines == {
        ("a",): 2, ("d.e",): 6, ("g",): 10, ("g", "h i"): 10, ("g", "h i", "j"): 11, ("g", "h i", "j", "k"): 11,
        ("m",): 12, ("m", "n"): 13, ("m", "p"): 14,
    }  # fmt: skip


@given(st.lists(st.sampled_from(["a = 1", 'b = """x', 'y"""', "[c]", "d = [", "]", "# e", "'f' = '", "g.h = {}", ""])))
def test_no_text_makes_the_search_for_a_line_fail(lines: list[str]) -> None:
    assert all(1 <= line <= len(lines) for line in key_lines("\n".join(lines)).values())


@given(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99), st.integers(1, 99))
def test_a_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, seconds: int) -> None:
    assert read_duration(f"{days}d{hours}h{minutes}m{seconds}s") == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@pytest.mark.parametrize("text", ["", "6", "h", "0s", "1.5h", "6 h", "1m1h", "-1s", "６h"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # it has no text: whoever asks knows what was expected
        read_duration(text)


def test_without_a_file_nothing_is_imported_to_read_one(tmp_path: Path) -> None:
    code = "import sys; from atomic.config import load_settings; load_settings(); print('tomllib' in sys.modules)"
    environment = {"ATOMIC_HOME": str(tmp_path)}
    said = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, env=environment, text=True)
    assert said == "False\n"
