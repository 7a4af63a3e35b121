"""How the old chats were made. Each function holds one conversation and returns what is expected of it then.

* `id`: the conversation; `sessions`: the status of every session of that home folder, by id.
* `messages`: texts that `atomic chat --plain --resume ID` prints, in this order.
* `say`, `answer`: the next prompt, and what the agent answers.
* `calls`: exactly the turns that the scripted agent is asked for then; a recording does not count them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.old_formats.old_runs import HOLD, environment, recording, settle, workflow
from tests.old_formats.place import HANG, Json, Place, end_of

NEXT = "and what now?"
NOW = "Now we rest."


def text(words: str, **more: Any) -> Json:
    return {"type": "text_delta", "text": words, **more}


def turn_ended(words: str = "", reason: str = "done", **more: Any) -> Json:
    return {"type": "turn_ended", "reason": reason, "text": words, **more}


def call(match: str, *events: Json, **more: Any) -> Json:
    return {"match": match, "events": [[0, event] for event in events], **more}


def saying(match: str, words: str, **more: Any) -> Json:
    return call(match, text(words), turn_ended(words, usage={"input": 9, "output": 3, "cost": 0.01}), **more)


def recorded(place: Place, *calls: Mapping[str, Any]) -> str:
    """Write a recording; its first call answers the prompt that continues the conversation."""
    return recording(place, saying(NEXT, NOW), *calls)


def talk(place: Place, agent: str, *lines: str, words: tuple[str, ...] = ()) -> str:
    """Send these lines, then leave; return the whole output."""
    typed = "".join(f"{line}\n" for line in lines)
    done = place.atomic("chat", "--plain", "--agent", agent, *words, input=typed)
    assert done.returncode == 0, (done.stdout, done.stderr)
    settle(place)
    return done.stdout


def expected(place: Place, *messages: str, answer: str = NOW, calls: tuple[str, ...] = ()) -> Json:
    """Return the expectations of the oldest conversation."""
    folders = (place.atomic_home / "sessions").iterdir()
    records = sorted((place.record(folder.name) for folder in folders), key=lambda record: record["created_at"])
    sessions = {record["id"]: record["status"] for record in records}
    [id, *_] = [record["id"] for record in records if record["status"] == "chat" and not record["workflow"]]
    return {"id": id, "sessions": sessions, "messages": messages, "say": NEXT, "answer": answer, "calls": calls}


def held(place: Place, *lines: str) -> subprocess.Popen[str]:
    """Send these lines, and wait until the agent holds."""
    process = place.start("chat", "--plain", "--agent", "acp:player", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("".join(f"{line}\n" for line in lines))
    process.stdin.flush()
    place.until("held")
    return process


def kill_all(place: Place, process: subprocess.Popen[str]) -> None:
    """Kill the command and all that it has started, as a power cut does."""
    mark = f"HOME={place.home}\0".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        if mark in environment(folder):
            os.kill(int(folder.name), signal.SIGKILL)
    end_of(process)
    settle(place)


def logged(place: Place, word: str) -> None:
    """Wait until a word is in the log of the only conversation."""
    deadline = time.monotonic() + HANG
    while not any(word in path.read_text() for path in place.atomic_home.glob("sessions/*/logs/events.jsonl")):
        assert time.monotonic() < deadline, word
        time.sleep(0.05)


PLAYER: tuple[Json, ...] = ({"match": NEXT, "do": [{"say": NOW}]}, {"match": "hello", "do": [{"say": "Good morning."}]})


def one_exchange(place: Place) -> Json:
    """Make one prompt and its answer."""
    talk(place, recorded(place, saying("hello", "Good morning.")), "hello")
    return expected(place, "you: hello", "Good morning.")


def tool_calls(place: Place) -> Json:
    """Make tools that were called: one with output, one that failed."""
    agent = recorded(
        place,
        call(
            "look",
            text("I will look."),
            {"type": "tool_started", "id": "t1", "name": "Bash", "input": {"command": "ls -l"}},
            {"type": "tool_output", "id": "t1", "text": "README.md\n"},
            {"type": "tool_ended", "id": "t1", "output": "README.md\n"},
            {"type": "tool_started", "id": "t2", "name": "Read", "input": {"file_path": "gone.txt"}},
            {"type": "tool_ended", "id": "t2", "error": "no such file"},
            text("There is a README."),
            turn_ended("There is a README.", usage={"input": 50, "output": 20, "cached": 5, "cost": 0.02}),
        ),
    )
    talk(place, agent, "look around")
    said = ("you: look around", "I will look.", "tool: Bash ls -l", "tool: Read gone.txt", "no such file")
    return expected(place, *said, "There is a README.")


def thoughts_and_plans(place: Place) -> Json:
    """Make a turn with thoughts, a plan, a loaded skill, a cost and a notice."""
    agent = recorded(
        place,
        call(
            "think",
            {"type": "thinking_delta", "text": "Let me think."},
            {"type": "plan_changed", "items": [{"text": "look", "status": "completed"}, {"text": "act"}]},
            {"type": "skill_loaded", "name": "thinking"},
            {"type": "usage_reported", "usage": {"input": 5, "output": 2, "cached": 1, "cost": 0.001}},
            {"type": "notice", "text": "The model was busy."},
            text("I have thought."),
            turn_ended("I have thought."),
        ),
    )
    talk(place, agent, "think hard")
    return expected(place, "you: think hard", "The model was busy.", "I have thought.")


def question_answered(place: Place) -> Json:
    """Make a question of the agent, answered with a number."""
    options = [{"label": "Tabs", "description": "wide"}, {"label": "Blanks", "description": "narrow"}]
    asked = {"type": "question_asked", "questions": [{"text": "Tabs or blanks?", "options": options}]}
    agent = recorded(place, call("format", asked, text("As you wish."), turn_ended("As you wish.")))
    talk(place, agent, "format it", "2")
    return expected(place, "you: format it", "As you wish.")


def several_questions(place: Place) -> Json:
    """Make two questions at once, one of them with several answers and a default."""
    questions = [
        {"text": "Which parts?", "multi_select": True, "options": [{"label": "a"}, {"label": "b"}, {"label": "c"}]},
        {"text": "Your name?", "header": "Name", "default": "Bob"},
    ]
    asked = {"type": "question_asked", "questions": questions}
    agent = recorded(place, call("ask me", asked, text("Thank you."), turn_ended("Thank you.")))
    talk(place, agent, "ask me", "1,3", "Alice")
    return expected(place, "you: ask me", "Thank you.")


def sub_agents_in_a_turn(place: Place) -> Json:
    """Make an agent with two sub-agents, one of which failed; their tools and words are their own."""
    agent = recorded(
        place,
        call(
            "delegate",
            {"type": "subagent_started", "id": "s1", "name": "finder", "task": "find the file"},
            {"type": "subagent_started", "id": "s2", "name": "reader", "task": "read the file"},
            {"type": "tool_started", "id": "t1", "name": "Grep", "input": {"pattern": "x"}, "agent": "s1"},
            {"type": "tool_ended", "id": "t1", "output": "x.py", "agent": "s1"},
            text("It is x.py.", agent="s1"),
            {"type": "subagent_ended", "id": "s1", "text": "It is x.py."},
            {"type": "subagent_ended", "id": "s2", "error": "it cannot read"},
            text("Found it."),
            turn_ended("Found it."),
        ),
    )
    talk(place, agent, "delegate it")
    said = ("sub-agent: finder started: find the file", "tool: Grep x", "it cannot read", "Found it.", "It is x.py.")
    return expected(place, "you: delegate it", *said)


def sub_agents_asked(place: Place) -> Json:
    """Make two sub-agents of the project, asked at once with @name."""
    for name in ("thinker", "checker"):
        path = place.project / ".atomic" / "agents" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nname: {name}\ndescription: About {name}.\n---\nYou are the {name}.\n")
    agent = recorded(place, saying("plan it", "A plan."), saying("check it", "All is well."))
    talk(place, agent, "@thinker plan it @checker check it")
    return expected(place, "you: @thinker plan it @checker check it", "A plan.", "All is well.")


def compacted(place: Place) -> Json:
    """Make a context that was summarised in the middle of a turn."""
    event = {"type": "compacted", "before": 190_000, "after": 12_000}
    agent = recorded(place, saying("begin", "Begun."), call("go on", event, text("Done."), turn_ended("Done.")))
    talk(place, agent, "begin", "go on")
    return expected(place, "you: begin", "Begun.", "you: go on", "Done.")


def turn_failed(place: Place) -> Json:
    """Make a turn that failed, and one that was refused."""
    agent = recorded(
        place,
        call("break", text("I try."), turn_ended(reason="error", error="the model is gone")),
        call("refuse", turn_ended(reason="refused", error="I may not")),
        call("endless", turn_ended("Still at it.", reason="max_turns")),
    )
    talk(place, agent, "break it", "refuse it", "endless work")
    said = ("you: break it", "I try.", "the model is gone", "you: refuse it", "I may not", "you: endless work")
    return expected(place, *said)


def limit_reached(place: Place) -> Json:
    """Make a turn that a usage limit has ended."""
    limit = {"type": "limit_reached", "reset_at": "2026-11-18T00:00:00Z", "message": "You have used it all."}
    agent = recorded(place, call("more", limit, turn_ended(reason="limit", error="You have used it all.")))
    talk(place, agent, "more of it")
    return expected(place, "you: more of it", "You have used it all.")


def long_one(place: Place) -> Json:
    """Make a hundred and sixty exchanges: more events than fit in one message."""
    numbers = range(160)
    agent = recorded(place, *(saying(f"number {n} please", f"This is {n}.") for n in numbers))
    talk(place, agent, *(f"number {n} please" for n in numbers))
    return expected(place, *(line for n in numbers for line in (f"you: number {n} please", f"This is {n}.")))


def many_scripts(place: Place) -> Json:
    """Make a prompt of several lines, other scripts, a table and a code block with blank lines."""
    answer = "# Titel ✓\n\n| a | b |\n|---|---|\n| 日本 | 🦀 |\n\n```py\nx = 1\n\ny = 2\n```\n\nGrüße!"
    pieces = [text(answer[at : at + 7]) for at in range(0, len(answer), 7)]
    agent = recorded(place, call("erzähle", *pieces, turn_ended(answer)))
    talk(place, agent, "erzähle mir\\", "  von 日本 🦀")
    return expected(place, "you: erzähle mir\n  von 日本 🦀", "# Titel ✓", "| 日本 | 🦀 |", "x = 1\n\ny = 2", "Grüße!")


def secret_hidden(place: Place) -> Json:
    """Make a secret of the environment in a prompt and in an answer: neither is kept."""
    place.env["MY_API_TOKEN"] = "sk-very-secret-token-4711"
    agent = recorded(place, call("tell", text("It is sk-very-sec"), text("ret-token-4711."), turn_ended("It is.")))
    talk(place, agent, "tell me of sk-very-secret-token-4711")
    return expected(place, "you: tell me of [redacted]", "It is [redacted].")


def shell_lines(place: Place) -> Json:
    """Make command lines of the user between two prompts."""
    agent = recorded(place, saying("begin", "Begun."), saying("what did it say", "It said two."))
    talk(place, agent, "begin", "!printf 'one\\ntwo\\n'", "!exit 3", "what did it say")
    return expected(place, "you: begin", "one\ntwo", "you: what did it say", "It said two.")


def skill_called(place: Place) -> Json:
    """Make a skill of the project, called as a slash command with arguments."""
    path = place.project / ".atomic" / "skills" / "greet" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: greet\ndescription: Greets.\n---\nGreet $ARGUMENTS warmly.\n")
    agent = recorded(place, saying("Greet the world warmly", "Hello, world."))
    talk(place, agent, "/greet the world")
    return expected(place, "you: /greet the world", "Hello, world.")


def another_model(place: Place) -> Json:
    """Make a conversation whose model was given at the start and changed with /model."""
    agent = recorded(place, saying("begin", "Begun.", model="m1"), saying("go on", "Done.", model="m2"))
    talk(place, agent, "begin", "/model m2", "go on", words=("--model", "m1"))
    return {**expected(place, "you: begin", "Begun.", "you: go on", "Done."), "model": "m2"}


def another_agent(place: Place) -> Json:
    """Make a conversation that another agent took over."""
    second = recording(place, saying(NEXT, NOW), saying("sail it", "Aye."), name="second")
    first = recorded(place, saying("begin", "I did it."), saying("takes this conversation over", "We built a boat."))
    talk(place, first, "begin", f"/agent {second}", "sail it")
    return expected(place, "you: begin", "I did it.", "you: sail it", "Aye.")


def acp_agent(place: Place) -> Json:
    """Make an agent of the Agent Client Protocol with a tool call; it resumes its own session."""
    started = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Look", "kind": "read", "status": "pending"}
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}
    place.play(*PLAYER, {"match": "look", "do": [{"update": started}, {"update": ended}, {"say": "I saw it."}]})
    talk(place, "acp:player", "hello", "look at it")
    said = ("you: hello", "Good morning.", "you: look at it", "I saw it.")
    return {**expected(place, *said, calls=(NEXT,)), "provider_session": "player-1"}


def acp_agent_that_forgets(place: Place) -> Json:
    """Make a conversation of an agent that cannot resume its session: it gets the transcript."""
    place.play(*PLAYER)
    talk(place, "acp:forgetful", "hello")
    told = {"match": "Good morning.", "do": [{"say": "I was told. "}, {"say": NOW}]}
    place.play(told, *PLAYER)
    return expected(place, "you: hello", "Good morning.", answer=f"I was told. {NOW}", calls=("Good morning.",))


def question_left_open(place: Place) -> Json:
    """Make a conversation that was killed while a question of the agent was open."""
    field = {"type": "string", "title": "Which?", "enum": ["a", "b"]}
    schema = {"type": "object", "properties": {"answer": field}, "required": ["answer"]}
    form = {"mode": "form", "message": "Which?", "requestedSchema": schema}
    place.play(*PLAYER, {"match": "ask", "do": [{"ask": form}]})
    process = place.start("chat", "--plain", "--agent", "acp:player", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("hello\nask me\n")
    process.stdin.flush()
    logged(place, "question_opened")
    kill_all(place, process)
    return expected(place, "you: hello", "Good morning.", "you: ask me", calls=(NEXT,))


def turn_interrupted(place: Place) -> Json:
    """Make a turn that was stopped with Ctrl+C."""
    place.play(*PLAYER, {"match": "work", "do": [{"say": "I work."}, HOLD]})
    process = held(place, "hello", "work")
    logged(place, '"work"')
    assert end_of(process, signal.SIGINT) == 0
    settle(place)
    return expected(place, "you: hello", "Good morning.", "you: work", "I work.", calls=(NEXT,))


def killed_in_a_turn(place: Place) -> Json:
    """Make a conversation that was killed in the middle of a turn: no record ends it."""
    place.play(*PLAYER, {"match": "work", "do": [{"say": "I work.\n\n"}, HOLD]})
    process = held(place, "hello", "work")
    logged(place, '"work"')
    kill_all(place, process)
    return expected(place, "you: hello", "Good morning.", "you: work", calls=(NEXT,))


def cut_in_a_line(place: Place) -> Json:
    """Make a log whose last line was not written to its end."""
    talk(place, recorded(place, saying("hello", "Good morning."), saying("bye", "Good night.")), "hello", "bye")
    [log] = place.atomic_home.glob("sessions/*/logs/events.jsonl")
    *lines, last = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines) + last[: len(last) // 2])
    return expected(place, "you: hello", "Good morning.", "you: bye", "Good night.")


def run_started(place: Place) -> Json:
    """Make a workflow that was started from the conversation and asked something there."""
    workflow(
        place,
        "ship",
        """
async def last(ctx):
    note("shipped", ctx.state.prompt, ctx.state.outputs["port"])

workflow = graph(S).ask_user("port", "Which port?", options=["Kiel", "Brest"]).node("last", last).compile()
""",
    )
    agent = recorded(place, saying("hello", "Good morning."))
    talk(place, agent, "hello", "/ship the goods", "1")
    assert place.ledger == ["shipped the goods Kiel"]
    return expected(place, "you: hello", "Good morning.", "you: /ship the goods", "workflow ship started")


def cleared(place: Place) -> Json:
    """Make two conversations of one screen, with /clear between them."""
    talk(place, recorded(place, saying("one", "First."), saying("two", "Second.")), "one", "/clear", "two")
    return expected(place, "you: one", "First.")


def continued(place: Place) -> Json:
    """Make a conversation that was continued once already, by the old version."""
    agent = recorded(place, saying("one", "First."), saying("two", "Second."))
    talk(place, agent, "one")
    [id] = expected(place)["sessions"]
    process = place.start("chat", "--plain", "--resume", id, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("two\n")
    process.stdin.flush()
    logged(place, "Second.")
    end_of(process)
    settle(place)
    return expected(place, "you: one", "First.", "you: two", "Second.")


def older_tool_calls(place: Place) -> Json:
    """Make a conversation with tool calls, kept by an older version."""
    return tool_calls(place)


CHATS: tuple[Callable[[Place], Json], ...] = (
    one_exchange, tool_calls, thoughts_and_plans, question_answered, several_questions, sub_agents_in_a_turn,
    sub_agents_asked, compacted, turn_failed, limit_reached, long_one, many_scripts, secret_hidden, shell_lines,
    skill_called, another_model, another_agent, acp_agent, acp_agent_that_forgets, question_left_open,
    turn_interrupted, killed_in_a_turn, cut_in_a_line, run_started, cleared, continued, older_tool_calls,
)  # fmt: skip
