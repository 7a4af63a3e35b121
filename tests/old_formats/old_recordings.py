"""How the old recordings were made. Each function records something and returns what a replay is expected to do.

* `calls`: the number of calls that `atomic replay` plays; `texts`: what the agents said, in their order.
* `files`, `head`: files of the project afterwards, and its last commit: replayed commits have the same ids.
* `words`: a command that is played on the recording instead of an agent; `exit_code` and `said` of it.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.old_formats.old_chats import talk
from tests.old_formats.old_runs import ALL_PARTS, SCRIPT, finished, ralph, repository
from tests.old_formats.place import Json, Place


def of_a_run(place: Place) -> Json:
    """Make a run of Ralph with three commits and a file that was left uncommitted."""
    repository(place)
    left = {"role": "worker", "task": "1", "do": [*SCRIPT[1]["do"], {"write": {"left.txt": "left\n"}}]}
    place.play(left, *SCRIPT)
    start = place.git("rev-parse", "HEAD")
    finished(place, *ralph("--record", "../run.jsonl"), exit_code=0)
    head = place.git("rev-parse", "HEAD")
    place.git("reset", "--hard", "-q", start)
    place.git("clean", "-fdq")
    again = [*ralph("--agent", f"replay:{place.root}/run.jsonl")]
    texts = ["part1.txt is written.", "part2.txt is written.", "index.txt is written."]
    files = {**ALL_PARTS, "left.txt": "left\n"}
    return {"calls": 6, "texts": texts, "files": files, "head": head, "words": again, "exit_code": 0, "said": []}


def of_a_chat(place: Place) -> Json:
    """Make a conversation with a tool call, outside of git."""
    started = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Look", "kind": "read", "status": "pending"}
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}
    place.play(
        {"match": "hello", "do": [{"say": "Good morning."}]},
        {
            "match": "look",
            "do": [{"update": started}, {"update": ended}, {"write": {"seen.txt": "x\n"}}, {"say": "Yes."}],
        },
    )
    talk(place, "acp:player", "hello", "look at it", words=("--record", "../run.jsonl"))
    (place.project / "seen.txt").unlink()
    again = ["-p", "look at it", "--agent", f"replay:{place.root}/run.jsonl"]
    texts = ["Good morning.", "Yes."]
    files = {"seen.txt": "x\n"}
    return {"calls": 2, "texts": texts, "files": files, "head": "", "words": again, "exit_code": 0, "said": ["Yes."]}


def cut_off(place: Place) -> Json:
    """Make a recording whose last line was not written to its end: the calls before it are played."""
    place.play({"match": "", "do": [{"say": "Good morning."}]})
    for _ in range(2):
        done = place.atomic("-p", "hello", "--record", "../run.jsonl")
        assert done.returncode == 0, done.stderr
    path = place.root / "run.jsonl"
    *lines, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + last[: len(last) // 2])
    again = ["-p", "hello", "--agent", f"replay:{place.root}/run.jsonl"]
    return {
        "calls": 1,
        "texts": ["Good morning."],
        "files": {},
        "head": "",
        "words": again,
        "exit_code": 0,
        "said": ["Good morning."],
    }


RECORDINGS: tuple[Callable[[Place], Json], ...] = (of_a_run, of_a_chat, cut_off)
