"""Clipboard, notifications and title of the terminal, and merged events of a burst."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from atomic.chat.protocol import Activity, ChatEvent, RunEnded, ShellOutput, WorkflowActivity
from atomic.providers.events import TextDelta, ThinkingDelta, ToolOutput, ToolStarted
from atomic.runs.events import AgentActivity
from atomic.tui.desktop import alert, copy, local_tool, osc_52, passed_through, title
from atomic.tui.engine_reader import merged


def make_tool(folder: Path, name: str, script: str) -> dict[str, str]:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_the_local_clipboard_is_used_without_ssh(tmp_path: Path) -> None:
    environment = {**make_tool(tmp_path, "wl-copy", f"cat > {tmp_path}/copied"), "WAYLAND_DISPLAY": "wayland-0"}

    assert local_tool(environment) == ("wl-copy",)
    assert local_tool({**environment, "SSH_TTY": "/dev/pts/1"}) is None


def test_without_a_clipboard_tool_the_terminal_copies() -> None:
    written: list[str] = []

    assert copy("täxt", written.append, {"PATH": ""}) == "Copied by the terminal (OSC 52)"
    assert written == ["\x1b]52;c;dMOkeHQ=\x07"]


def test_a_text_too_long_for_the_terminal_is_reported_and_not_cut() -> None:
    written: list[str] = []

    assert copy("x" * 100_000, written.append, {"PATH": ""}).startswith("Not copied")
    assert written == []


def test_tmux_passes_the_clipboard_on() -> None:
    assert passed_through(osc_52("x")) == "\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\"


def test_a_notification_is_a_bell_or_a_message_without_control_characters() -> None:
    assert alert("done", {"TERM": "xterm-256color"}) == "\x07"
    assert alert("done", {"TERM_PROGRAM": "WezTerm"}) == "\x1b]9;done\x07"
    assert alert("done", {"TERM_PROGRAM": "WezTerm", "TMUX": "1"}) == "\x07"
    assert title("evil\x1b]0;x\x07\n") == "\x1b]0;evil]0;x\x07"


EVENTS = st.one_of(
    st.builds(TextDelta, st.text(max_size=3), st.sampled_from([None, "a"])),
    st.builds(ThinkingDelta, st.text(max_size=3)),
    st.builds(ToolOutput, st.sampled_from("12"), st.text(max_size=3)),
    st.builds(ToolStarted, st.sampled_from("12"), st.just("Bash")),
)
WORK = st.builds(
    AgentActivity,
    run=st.just("s"),
    seq=st.just(1),
    time=st.just(1.0),
    node=st.sampled_from(("plan", "work")),
    task=st.none(),
    role=st.none(),
    event=EVENTS,
)
CHAT_EVENTS = st.one_of(
    st.builds(Activity, run=st.sampled_from("rs"), event=EVENTS),
    st.builds(WorkflowActivity, run=st.sampled_from("rs"), event=WORK),
    st.builds(ShellOutput, run=st.sampled_from("rs"), text=st.text(max_size=3)),
    st.builds(RunEnded, run=st.sampled_from("rs"), status=st.just("done")),
)


def characters(events: list[ChatEvent]) -> list[tuple[object, ...]]:
    """Return each character with its run and owner, and other events unchanged."""
    found: list[tuple[object, ...]] = []
    for chat_event in events:
        match chat_event:
            case Activity(run=run, event=TextDelta() | ThinkingDelta() | ToolOutput() as event):
                owner = event.id if isinstance(event, ToolOutput) else ""
                found += [(run, type(event), event.agent, owner, character) for character in event.text]
            case WorkflowActivity(
                run=run, event=AgentActivity(node=node, event=TextDelta() | ThinkingDelta() | ToolOutput() as event)
            ):
                owner = event.id if isinstance(event, ToolOutput) else ""
                found += [(run, node, type(event), event.agent, owner, character) for character in event.text]
            case ShellOutput(run=run, text=text):
                found += [(run, character) for character in text]
            case _:
                found.append((chat_event,))
    return found


@given(st.lists(CHAT_EVENTS, max_size=20))
def test_merging_events_keeps_all_text_in_order(events: list[ChatEvent]) -> None:
    merged_events = list(merged(events))

    assert characters(merged_events) == characters(events)
    assert len(merged_events) <= len(events)


def test_a_burst_of_deltas_becomes_one_event() -> None:
    burst: list[ChatEvent] = [Activity(run="r", event=TextDelta("x")) for _ in range(500)]

    assert list(merged(burst)) == [Activity(run="r", event=TextDelta("x" * 500))]
