"""`atomic sessions`: list, show, report, export and prune."""

from __future__ import annotations

import os
import re
import stat
import tarfile
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.base.redaction import Redactor
from atomic.base.usage import Usage
from atomic.runs.events import RunStarted, Warning
from atomic.runs.spending import KILLED, Amount, CallRecord, write_call
from atomic.sessions.facts import Facts
from atomic.sessions.journal import SqliteJournal
from tests.support.entity_files import write
from tests.support.session_folders import add_call, folder_of, make_session, owned_by
from tests.support.terminal import in_terminal
from tests.support.timing import judge
from tests.support.user import ATOMIC, User, complaint, objects, told

FIRST = "0f9b2c1e-1111-4111-8111-111111111111"
SECOND = "0f9b2c1e-2222-4222-8222-222222222222"
FIELDS = {
    "id", "workflow", "workflow_version", "project", "prompt", "status", "reason", "created_at", "updated_at",
    "ended_at", "config", "cost", "questions", "owner", "pr", "atomic_version", "state_version",
}  # fmt: skip
GRAPH = """
from atomic.workflows import State, graph
class S(State):
    prompt: str = ""
open({canary!r}, "a").close()
def work(state):
    return ""
workflow = graph(S).tool("plan", work).tool("check", work).tool("never", work).compile(name="review")
"""


async def as_json(user: User, *words: str) -> Any:
    done = await user.atomic("sessions", *words, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    return msgspec.json.decode(done.stdout)


async def test_the_list_has_the_newest_first_with_all_fields(user: User) -> None:
    make_session(user.home, FIRST, created_at="2026-11-15T10:00:00.000Z")
    make_session(user.home, SECOND, created_at="2026-11-15T11:00:00.000Z", workflow="ralph")
    found = await as_json(user, "list")
    assert [one["id"] for one in found] == [SECOND, FIRST]
    assert {*found[0]} >= FIELDS
    for_people = await user.atomic("sessions")
    assert [line.split()[4] for line in for_people.stdout.splitlines()] == ["$0.75", "$0.75"]
    assert SECOND in for_people.stdout  # eight characters are not enough here to tell the two apart


async def test_a_running_one_whose_owner_is_dead_is_shown_as_interrupted(user: User) -> None:
    make_session(user.home, status="running", owner=owned_by(2**22 - 3))
    (one,) = await as_json(user, "list")
    assert one["status"] == "interrupted"
    assert await as_json(user, "list", "--status", "running") == []
    assert len(await as_json(user, "list", "--status", "interrupted")) == 1


async def test_project_lists_only_runs_of_this_project(user: User) -> None:
    make_session(user.home, project="/elsewhere")
    mine = make_session(user.home, project=str(user.project.resolve()))
    assert [one["id"] for one in await as_json(user, "list", "--project")] == [mine]


async def test_an_empty_list_is_not_an_error(user: User) -> None:
    done = await user.atomic("sessions", "list")
    expected = 'No runs yet. Start one with atomic ralph "GOAL", or watch one without an agent: atomic demo\n'
    assert (done.exit_code, done.stdout, done.stderr) == (0, expected, "")
    assert await as_json(user, "list") == []
    assert not (user.home / ".atomic").exists()


@pytest.mark.timed
async def test_a_thousand_old_sessions_do_not_slow_it_down(user: User) -> None:
    sessions = user.home / ".atomic" / "sessions"
    template = folder_of(user.home, make_session(user.home)) / "session.json"
    for number in range(1000):
        folder = sessions / f"{number:08x}-0000-4000-8000-000000000000"
        folder.mkdir()
        (folder / "session.json").write_bytes(template.read_bytes())
    began = time.perf_counter()
    assert len(await as_json(user, "list")) == 1001
    judge(time.perf_counter() - began, 5)  # it takes a third of a second; the machine may be shared


@pytest.mark.parametrize("verb", ["show", "report"])
async def test_not_an_id_unknown_and_ambiguous_are_three_messages(user: User, verb: str) -> None:
    make_session(user.home, FIRST)
    make_session(user.home, SECOND)
    said = [await user.atomic("sessions", verb, id) for id in ("hello", "abcdef12", FIRST[:8])]
    assert [done.exit_code for done in said] == [2, 2, 2]
    assert len({complaint(done).split('"')[2] for done in said}) == 3
    assert (await user.atomic("sessions", verb, FIRST[:13])).exit_code == 0


async def test_no_id_reaches_outside_of_the_sessions(user: User) -> None:
    secret = write(user.home / "secret" / "session.json", "{}").parent
    for id in ("../../secret", str(secret), "..", f"{FIRST}/../../../secret"):
        assert (await user.atomic("sessions", "show", id)).exit_code == 2


async def test_an_answer_without_an_id_goes_to_the_only_run_that_waits(user: User) -> None:
    question: dict[str, Any] = {"id": "go", "text": "Go on?", "options": ["yes", "no"], "node": "ask"}
    fields: dict[str, Any] = {"status": "paused", "questions": [question], "steps": ["plan"]}
    first, second = (make_session(user.home, id, project=str(user.project), **fields) for id in (FIRST, SECOND))
    done = await user.atomic("answer", "no", "--no-resume")
    assert (done.exit_code, sorted(complaint(done).partition(": ")[2].split(", "))) == (2, [first, second])
    assert (await user.atomic("answer", first, "yes", "--no-resume")).exit_code == 0
    assert second in told(await user.atomic("answer", "no", "--no-resume"))
    assert complaint(await user.atomic("answer", second)) == f"The answer is missing: atomic answer {second} ANSWER"


async def test_logs_show_all_processes_of_a_run(user: User) -> None:
    """A run that was killed and resumed has worked before, too."""
    id = make_session(user.home, status="completed")
    base: dict[str, Any] = {"run": id, "time": 1.0}
    first = RunStarted(seq=1, workflow="review", prompt="p", session_dir="/s", **base)
    lines = (
        first,
        Warning(seq=2, text="early", **base),
        msgspec.structs.replace(first, seq=3, resumed=True),
        Warning(seq=4, text="late", **base),
    )
    log = folder_of(user.home, id) / "logs" / "events.jsonl"
    log.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    shown = await user.atomic("logs", id)
    assert shown.exit_code == 0, shown
    said = shown.stdout + shown.stderr
    assert said.index("early") < said.index("late")
    assert [one["seq"] for one in objects(await user.atomic("logs", id, "--json"))] == [1, 2, 3, 4]
    followed = await user.atomic("logs", id, "--follow", "--json")
    assert [one["seq"] for one in objects(followed)] == [1, 2, 3, 4]
    attached = await user.atomic("attach", id, "--json")
    assert [one["seq"] for one in objects(attached)] == [3, 4]


async def test_show_prints_the_next_command_with_the_flag_that_lifts_the_limit(user: User) -> None:
    id = make_session(user.home, status="paused", reason="--max-cost is reached")
    resume = f"atomic resume {id}"
    ended = {"type": "run_ended", "run": id, "seq": 9, "time": "2026-11-15T10:05:00.000Z", "status": "paused"}
    ended |= {"reason": "max_cost", "message": "", "exit_code": 6}
    log = folder_of(user.home, id) / "logs" / "events.jsonl"
    log.write_bytes(msgspec.json.encode({**ended, "resume": f"{resume} --max-cost 2"}) + b"\n")
    done = await user.atomic("sessions", "show", id)
    assert re.search(f"^next +{resume} --max-cost 2$", done.stdout, re.MULTILINE)
    with log.open("ab") as file:  # a later attempt was stopped by the user
        file.write(msgspec.json.encode({**ended, "resume": resume}) + b"\n")
    done = await user.atomic("sessions", "show", id)
    assert re.search(f"^next +{resume}$", done.stdout, re.MULTILINE)


async def test_show_prints_steps_with_their_cost_and_the_tasks(user: User) -> None:
    id = make_session(user.home, steps=["plan", "check"])
    write(folder_of(user.home, id) / "tasks.json", '{"tasks": [{"id": "1", "title": "Log in", "status": "completed"}]}')
    add_call(user.home, id, time=time.time())
    shown = await as_json(user, "show", id)
    assert shown["id"] == id
    keys = ("node", "attempt", "status")
    assert [tuple(step[key] for key in keys) for step in shown["steps"]] == [
        ("plan", 1, "completed"),
        ("check", 1, "completed"),
    ]
    assert [step["cost"] for step in shown["steps"]] == [0.25, None]
    assert all(step["seconds"] >= 0 and step["step_id"].startswith(id) for step in shown["steps"])
    assert [task["title"] for task in shown["tasks"]] == ["Log in"]


async def test_show_draws_the_steps_and_a_timeline(user: User) -> None:
    id = make_session(user.home, steps=["plan", "bad-check"], status="failed", reason="error")
    add_call(user.home, id, time=1_800_000_010.0, seconds=10)
    add_call(user.home, id, time=1_800_000_015.0, seconds=10, node="work", role="worker", task="3", reason="error")
    done = await user.atomic("sessions", "show", id)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "✓ plan" in done.stdout
    assert "✗ bad-check" in done.stdout
    assert f"atomic resume {id}" in done.stdout
    planner, worker = (line for line in done.stdout.splitlines() if "claude opus" in line)
    assert "plan planner" in planner
    assert "$0.25" in planner
    assert "✗ work worker task 3" in worker
    assert worker.index("█") > planner.index("█")  # it began later


async def test_a_gap_of_days_leaves_room_for_the_work(user: User) -> None:
    id = make_session(user.home)
    add_call(user.home, id, time=1_800_000_010.0, seconds=10)
    add_call(user.home, id, time=1_800_000_010.0 + 5 * 86400, seconds=10)
    lines = [line for line in (await user.atomic("sessions", "show", id)).stdout.splitlines() if "█" in line]
    assert [line.count("█") > 10 for line in lines] == [True, True]


async def test_a_step_that_a_kill_has_cut_is_shown(user: User) -> None:
    id = make_session(user.home, status="running", owner=owned_by(2**22 - 3), steps=["plan"])
    base = {"run": id, "description": "", "attempt": 1}
    lines = [
        {"type": "node_started", "seq": 1, "time": 1.0, "node": "plan", "step_id": f"{id}:plan#1", **base},
        {"type": "node_ended", "seq": 2, "time": 2.0, "node": "plan", "step_id": f"{id}:plan#1", **base},
        {"type": "node_started", "seq": 3, "time": 3.0, "node": "work", "step_id": f"{id}:work#1", **base},
    ]
    log = folder_of(user.home, id) / "logs" / "events.jsonl"
    log.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b'\n{"type": "node_st')
    shown = await as_json(user, "show", id)
    assert [(step["node"], step["status"]) for step in shown["steps"]] == [
        ("plan", "completed"),
        ("work", "interrupted"),
    ]


@pytest.mark.ci
async def test_the_graph_is_drawn_only_if_the_workflow_is_trusted(user: User, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    write(user.project / ".atomic" / "workflows" / "review.py", GRAPH.format(canary=str(canary)))
    id = make_session(user.home, project=str(user.project.resolve()), steps=["plan", "check"])
    for words in ((), ("--html",), ("--json",)):
        assert (await user.atomic("sessions", "show", id, *words)).exit_code == 0
    assert not canary.exists()
    assert "never" not in (await user.atomic("sessions", "show", id)).stdout

    hash = msgspec.json.decode((await user.atomic("trust", "--show", "--json")).stdout)["hash"]
    assert (await user.atomic("trust", hash)).exit_code == 0
    drawn = (await user.atomic("sessions", "show", id)).stdout
    assert "│✓plan" in drawn
    assert "│ never" in drawn
    assert "<svg" in (await user.atomic("sessions", "show", id, "--html")).stdout


async def test_a_damaged_journal_is_reported_and_the_rest_is_shown(user: User) -> None:
    id = make_session(user.home)
    (folder_of(user.home, id) / "journal.db").write_bytes(b"no database at all" * 1000)
    done = await user.atomic("sessions", "show", id)
    assert done.exit_code == 0
    assert "journal.db" in done.stderr
    assert "fix the login" in done.stdout


class Page(HTMLParser):
    """The tags of a page, and whether anything in it could reach out or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.reaches: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.reaches += [
            name for name, _ in attrs if name in ("src", "href", "srcset", "data") or name.startswith("on")
        ]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("logs/agent-calls.jsonl", "cannot be read: this is not a regular file"),
        ("logs/events.jsonl", "cannot be read: this is not a regular file"),
        ("session.json", "session.json cannot be read"),
        ("journal.db", ""),
        ("report.md", ""),
    ],
)
async def test_a_pipe_instead_of_a_file_does_not_block(user: User, name: str, said: str) -> None:
    id = make_session(user.home, steps=["plan"], status="paused")
    path = folder_of(user.home, id) / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for words in (["show"], ["show", "--json"], ["report"], ["list"]):
        done = await user.atomic("sessions", *words, *([] if words == ["list"] else [id]), timeout=60)
        assert (done.exit_code == 0) is (name != "session.json" or words == ["list"])
        if words == ["show"]:
            assert said in done.stdout + done.stderr
    for words in (["resume", id], ["attach", id], ["answer", id, "x"], ["salvage", id], ["doctor"]):
        done = await user.atomic(*words, timeout=60)
        assert "internal error" not in done.stderr
    assert path.is_fifo()


async def test_the_page_is_self_contained_and_all_text_is_escaped(user: User) -> None:
    evil = '<script src="http://evil/x.js">alert(1)</script><img onerror=x src=y>\u202e\x1b[31m'
    id = make_session(user.home, prompt=evil, reason=evil, workflow=evil[:60], steps=["plan", "bad-one"])
    add_call(user.home, id, node=evil, role=evil, model=evil, provider=evil)
    write(folder_of(user.home, id) / "report.md", evil)
    done = await user.atomic("sessions", "show", id, "--html")
    assert (done.exit_code, done.stderr) == (0, "")
    page = Page(done.stdout)
    assert not {"script", "img", "link", "iframe", "b"} & {*page.tags}
    assert page.reaches == []
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert re.search(r"url\(|@import", done.stdout) is None
    assert "&lt;script" in done.stdout
    assert "default-src &#x27;none&#x27;" in done.stdout or "default-src 'none'" in done.stdout


async def test_the_page_goes_to_a_file_that_is_not_there_yet(user: User) -> None:
    id = make_session(user.home)
    done = await user.atomic("sessions", "show", id, "--html", "run.html")
    page = user.project / "run.html"
    assert done.stdout == f"{page.resolve()}\n"
    assert page.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert (await user.atomic("sessions", "show", id, "--html", "run.html")).exit_code == 2
    assert (await user.atomic("sessions", "show", id, "run2.html")).exit_code == 2
    assert (await user.atomic("sessions", "show", id, "--html", "--json")).exit_code == 2


async def test_the_report_is_the_workflows_own(user: User) -> None:
    id = make_session(user.home)
    write(folder_of(user.home, id) / "report.md", "# Mine\n")
    assert (await user.atomic("sessions", "report", id)).stdout == "# Mine\n"


async def test_a_missing_report_is_made_from_the_history(user: User) -> None:
    question: dict[str, Any] = {"id": "which", "text": "Which one?", "options": [], "node": "ask"}
    id = make_session(user.home, status="paused", reason="question", questions=[question], steps=["plan", "bad-one"])
    add_call(user.home, id)
    add_call(user.home, id, role="worker", usage={"input": 5, "output": 5, "cost": None})
    text = (await user.atomic("sessions", "report", id)).stdout
    assert text.startswith("# review: paused\n")
    assert f'atomic answer {id} which "…"' in text
    assert "- planner: 1 call, 10s, 110 tokens, $0.25" in text
    assert "- worker: 1 call, 10s, 10 tokens, price unknown\n" in text
    assert "it broke" in text


def keep_calls(user: User, id: str, *calls: CallRecord) -> None:
    """Write calls to the journal of a run, as its process does."""
    facts = Facts(folder_of(user.home, id), Redactor([]))
    with SqliteJournal(folder_of(user.home, id) / "journal.db") as journal:
        facts.open(journal, id)
        for call in calls:
            write_call(facts, call)


PAID = CallRecord(id="1", role="worker", reason="done", usage=Usage(100, 20, 0, 0.0003), amount=Amount(0.0003, 100, 20))
CUT = CallRecord(id="2", role="worker", reason=KILLED, usage=Usage(), amount=Amount(0.0, 50, 0, 50))


async def test_the_cost_of_a_run_with_a_killed_turn_is_about_so_much(user: User) -> None:
    """The killed turn is in the journal only, and its agent has reported no price."""
    id = make_session(user.home, status="interrupted", steps=["plan"])
    add_call(user.home, id, role="worker", usage={"input": 100, "output": 20, "cost": 0.0003})
    keep_calls(user, id, PAID, CUT)
    text = (await user.atomic("sessions", "report", id)).stdout
    assert "- **cost**: about $0.0003, 170 tokens (150 read, 20 written)" in text
    assert "- worker: 2 calls, 10s, 170 tokens, about $0.0003\n" in text
    assert " about $0.0003 " in (await user.atomic("ps")).stdout


async def test_a_cost_of_which_nothing_is_known_is_not_zero(user: User) -> None:
    id = make_session(user.home, status="interrupted", steps=["plan"])
    keep_calls(user, id, msgspec.structs.replace(CUT, amount=Amount(0.0, 50, 0)))
    assert "- **cost**: price unknown, 50 tokens" in (await user.atomic("sessions", "report", id)).stdout
    assert "$" not in (await user.atomic("ps")).stdout


@pytest.mark.ci
async def test_the_archive_has_everything_and_no_secret(user: User, tmp_path: Path) -> None:
    user.env["MY_API_KEY"] = "correct-horse-battery"
    id = make_session(user.home, prompt="use correct-horse-battery", steps=["plan"])
    folder = folder_of(user.home, id)
    write(folder / "artifacts" / "note.txt", "token ghp_abcdefghijklmnopqrstuvwxyz0123456789\nprüfen\n")
    (folder / "artifacts" / "bytes.bin").write_bytes(b"\0\xffcorrect-horse-battery")
    (folder / "artifacts" / "plain.bin").write_bytes(b"\0\xff\x01")
    (folder / "artifacts" / "link").symlink_to("/etc/passwd")
    write(folder / "inbox" / "stop", "x")
    done = await user.atomic("sessions", "export", id, "run.tar.gz")
    assert done.exit_code == 0
    assert done.stderr == "atomic: left out: artifacts/bytes.bin: it is binary and contains a secret\n"
    archive = user.project / "run.tar.gz"
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as tar:
        members = {member.name.removeprefix(f"{id}/"): member for member in tar.getmembers()}
        content = {name: (tar.extractfile(member) or pytest.fail(name)).read() for name, member in members.items()}
    assert {*content} == {
        "session.json", "journal.db", "history.json", "report.md", "artifacts/note.txt", "artifacts/plain.bin",
    }  # fmt: skip
    assert all(member.isreg() for member in members.values())
    everything = b"".join(content.values())
    assert b"correct-horse" not in everything
    assert b"ghp_abc" not in everything
    assert "prüfen".encode() in content["artifacts/note.txt"]
    assert msgspec.json.decode(content["history.json"])["steps"][0]["node"] == "plan"
    _is_whole(content["journal.db"], id, tmp_path)


def _is_whole(journal: bytes, id: str, folder: Path) -> None:
    from atomic.sessions import SqliteJournal

    (folder / "copy.db").write_bytes(journal)
    with SqliteJournal(folder / "copy.db") as copy:
        assert [record.node_id for record in copy.records(id)] == ["plan"]


@pytest.mark.ci
async def test_an_archive_replaces_nothing_and_leaves_nothing_half_written(user: User) -> None:
    id = make_session(user.home)
    mine = write(user.project / "run.tar.gz", "mine")
    done = await user.atomic("sessions", "export", id, "run.tar.gz")
    assert (done.exit_code, mine.read_text()) == (2, "mine")
    assert (await user.atomic("sessions", "export", id, "nowhere/run.tar.gz")).exit_code == 1
    assert sorted(os.listdir(user.project)) == ["run.tar.gz"]


@pytest.mark.ci
async def test_prune_needs_to_know_which_ones(user: User) -> None:
    make_session(user.home)
    done = await user.atomic("sessions", "prune", "--yes")
    assert done.exit_code == 2
    assert "--older-than" in complaint(done)
    assert (await user.atomic("sessions", "prune", "--older-than", "soon", "--yes")).exit_code == 2
    assert len(await as_json(user, "list")) == 1


@pytest.mark.ci
async def test_prune_deletes_by_age_and_status_and_never_one_that_runs(user: User) -> None:
    new = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    running = make_session(user.home, status="running", owner=owned_by(os.getpid()))
    kept = make_session(user.home, updated_at=new)
    failed = make_session(user.home, status="failed")
    old = make_session(user.home, updated_at="2020-01-01T00:00:00Z")
    done = await user.atomic("sessions", "prune", "--older-than", "1h", "--status", "completed", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert old in done.stdout
    assert done.stdout.endswith("1 deleted.\n")
    assert {one["id"] for one in await as_json(user, "list")} == {running, kept, failed}
    assert (await user.atomic("sessions", "prune", "--status", "running", "--yes")).stdout == "No runs to delete.\n"
    assert folder_of(user.home, running).exists()


@pytest.mark.ci
async def test_prune_follows_no_link(user: User, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    id = make_session(user.home)
    folder_of(user.home, id).rename(elsewhere)
    folder_of(user.home, id).symlink_to(elsewhere)
    inner = make_session(user.home)
    (folder_of(user.home, inner) / "artifacts").symlink_to(elsewhere)
    await user.atomic("sessions", "prune", "--status", "completed", "--yes")
    assert (elsewhere / "session.json").exists()
    assert not folder_of(user.home, inner).exists()


@pytest.mark.ci
async def test_without_a_terminal_prune_needs_yes(user: User) -> None:
    make_session(user.home)
    done = await user.atomic("sessions", "prune", "--status", "completed")
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert len(await as_json(user, "list")) == 1


@pytest.mark.ci
@pytest.mark.parametrize(("typed", "left"), [("\n", 1), ("n\n", 1), ("y\n", 0)])
async def test_prune_asks_and_enter_means_no(user: User, typed: str, left: int) -> None:
    make_session(user.home)
    words = [ATOMIC, "sessions", "prune", "--status", "completed"]
    async with in_terminal(words, env=user.env, cwd=user.project) as terminal:
        await terminal.shows("[y/N]")
        terminal.type(typed)
        assert await terminal.exit_code() == 0
    assert len(await as_json(user, "list")) == left
