"""The completion promise is never accepted wrongly and never missed."""

from __future__ import annotations

import random

from atomic.ralph.prompts import PROMISE, PromptContext, yolo_prompt
from atomic.workflows.task_loop import ends_with_signal

WORDS = (
    "All tests pass.", "I changed src/app.py.", "The work is INCOMPLETE.", "COMPLETE", "COMPLETED", "done", "- item",
    "> a quotation", "| a | table |", "## Heading", "`<promise>COMPLETE</promise>` is what I will write later.", "",
    "See <promise>COMPLETE</promise> above.", "ünïcödé 完了", "    indented", "\t", "1. first",
)  # fmt: skip
BLOCKS = (
    "```python\nprint('x')\n```", "~~~\ncode\n~~~", "````md\n```\ninner\n```\n````", "```\nunder ~~~ another\n```",
    "~~~\n```\n~~~", f"```\n{PROMISE}\n```", f"~~~text\n{PROMISE}\n~~~",
)  # fmt: skip
LIES = (
    "<promise>INCOMPLETE</promise>", "<promise>COMPLETED</promise>", "<promise>complete</promise>", "COMPLETE",
    "<promise> COMPLETE </promise>", "promise: COMPLETE", f"{PROMISE}.", f"**{PROMISE}**", f"`{PROMISE}`",
    f"> {PROMISE}", f"- {PROMISE}", f"Done: {PROMISE}", f"{PROMISE} {PROMISE}", "<promise>COMPLETE<promise>",
    f"{PROMISE}\nBut two tests are red.", f"I will write {PROMISE}\nwhen it is done", f"{PROMISE}\n```",
    f"```\n{PROMISE}\n```", f"```\ncode\n{PROMISE}", f"~~~\n```\n{PROMISE}", f"````\n```\n{PROMISE}",
    "<PROMISE>COMPLETE</PROMISE>", "&lt;promise&gt;COMPLETE&lt;/promise&gt;", "</promise>COMPLETE<promise>",
    "<promise>COMPLETE</promise", "<promise>\nCOMPLETE\n</promise>", "<promise>NOT COMPLETE</promise>",
    f"``` {PROMISE}", f"{PROMISE}\u200b", "<promise>COMPLETE</promise>?", "",
)  # fmt: skip


def prose(dice: random.Random, *, blocks: bool = True) -> str:
    parts = [dice.choice(WORDS) for _ in range(dice.randrange(6))]
    parts += [dice.choice(BLOCKS) for _ in range(dice.randrange(3))] if blocks else []
    dice.shuffle(parts)
    return dice.choice(("\n", "\n\n", "\r\n")).join(parts)


def test_an_honest_promise_is_never_missed() -> None:
    for seed in range(500):
        dice = random.Random(seed)
        padding = dice.choice(("", " ", "\t", "  "))
        end = dice.choice(("", "\n", "\n\n", "  \n \n", "\r\n"))
        text = f"{prose(dice)}\n{padding}{PROMISE}{padding}{end}"
        assert ends_with_signal(text, PROMISE), (seed, text)


def test_a_promise_is_never_taken_wrongly() -> None:
    for seed in range(500):
        text = f"{prose(random.Random(seed), blocks=False)}\n{LIES[seed % len(LIES)]}"
        assert not ends_with_signal(text, PROMISE), (seed, text)


def test_the_prompt_itself_keeps_no_promise() -> None:
    place = PromptContext(cwd="project", notes="notes.md", is_git=True)
    prompt = yolo_prompt("make it so", place, attempt=1)
    assert PROMISE in prompt
    assert not ends_with_signal(prompt, PROMISE)
    assert not ends_with_signal(f"> {prompt}", PROMISE)
