"""Find the recorded call that answers a prompt."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence

from atomic.processes import execute
from atomic.providers.errors import ProviderError
from atomic.providers.prompt_title import role_and_task
from atomic.providers.recording import RecordedCall

_WORDS = 4000  # of a prompt that are compared
_DIFF_LINES = 80
_SEARCH_SECONDS = 5  # of CPU time
_SEARCH_WALL_SECONDS = 300.0  # ends a hang only
_SEARCH = """
import json, re, resource, sys
seconds, prompt, patterns = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
for at, pattern in enumerate(patterns):
    print(at, flush=True)
    if re.search(pattern, prompt):
        print("found")
        break
"""


class NoRecordedCallError(ProviderError):
    """No recorded call answers a prompt; the text shows the diff to the nearest one."""

    def __init__(self, prompt: str, calls: Sequence[RecordedCall], used: frozenset[int]) -> None:
        self.role, self.task = role_and_task(prompt)
        same_role = [at for at, call in enumerate(calls) if _is_for(call, self.role, self.task)]
        nearest = nearest_prompt(prompt, [calls[at] for at in same_role] or calls)
        super().__init__(
            f"The recording has no call left for {_who(self.role, self.task)}: {_reason(same_role, used)}"
            + ("" if nearest is None else _difference(prompt, nearest)),
            provider="replay",
        )


class SlowPatternError(ProviderError):
    """Searching for the `match` of a recorded call takes too long."""

    def __init__(self, pattern: str) -> None:
        super().__init__(
            f"searching for the match {pattern[:100]!r} of the recording takes more than {_SEARCH_SECONDS} s:"
            " use plain text or a simpler pattern",
            provider="replay",
        )


async def find_call(prompt: str, calls: Sequence[RecordedCall], used: frozenset[int]) -> int | None:
    """Return the index of the unused call of the same role and task that answers the
    prompt.

    The first call whose `match` is found wins. Otherwise take, of the calls without a
    `match`, the one with the most similar prompt; of equal ones the first. Raise
    SlowPatternError.
    """
    role, task = role_and_task(prompt)
    free = [at for at, call in enumerate(calls) if at not in used and _is_for(call, role, task)]
    patterns = {at: match for at in free if (match := calls[at].match) is not None}
    found = await _first_found(list(patterns.values()), prompt)
    if found is not None:
        return list(patterns)[found]
    plain = [at for at in free if calls[at].match is None]
    if len(plain) < 2:
        return plain[0] if plain else None
    return await asyncio.to_thread(max, plain, key=lambda at: (_similarity(prompt, calls[at].prompt), -at))


async def _first_found(patterns: Sequence[str], prompt: str) -> int | None:
    """Return the index of the first pattern that is found in the prompt.

    A recording may not be trusted, and a pattern such as (a+)+$ never ends. So a child
    process with a CPU limit searches for it.
    """
    if all(_is_literal(pattern) for pattern in patterns):
        return next((at for at, pattern in enumerate(patterns) if pattern in prompt), None)
    question = json.dumps([_SEARCH_SECONDS, prompt, patterns])
    words = (sys.executable, "-I", "-S", "-c", _SEARCH)
    done = await execute(*words, cwd="/", env={}, input=question, timeout=_SEARCH_WALL_SECONDS)
    tried = done.stdout.split()
    if done.exit_code == -signal.SIGXCPU and tried:
        raise SlowPatternError(patterns[int(tried[-1])])
    if done.exit_code != 0:
        raise ProviderError(f"could not search for the recording's matches: {done.stderr[-300:]}", provider="replay")
    return int(tried[-2]) if tried[-1:] == ["found"] else None


def _is_literal(pattern: str) -> bool:
    return not set(pattern) & set(r".^$*+?{}[]\|()")


def nearest_prompt(prompt: str, calls: Sequence[RecordedCall]) -> RecordedCall | None:
    """Return the call with the most similar prompt."""
    return max(calls, key=lambda call: _similarity(prompt, call.prompt), default=None)


def _is_for(call: RecordedCall, role: str | None, task: str | None) -> bool:
    return call.role == role and (None if call.task is None else str(call.task)) == task


def _similarity(one: str, other: str) -> float:
    if one == other:
        return 2.0
    from difflib import SequenceMatcher  # not needed for calls with a `match`

    words = SequenceMatcher(None, one.split()[:_WORDS], other.split()[:_WORDS]).ratio()
    letters = SequenceMatcher(None, one[:500], other[:500], autojunk=False).ratio()  # decides between short prompts
    return words + letters / 100


def _who(role: str | None, task: str | None) -> str:
    if role is None:
        return "a prompt without a role"
    return f"role {role}" if task is None else f"role {role}, task {task}"


def _reason(same_role: Sequence[int], used: frozenset[int]) -> str:
    if not same_role:
        return "it was never recorded"
    taken = sum(at in used for at in same_role)
    if taken == len(same_role):
        return "its call was already played" if taken == 1 else f"all {taken} were already played"
    return "the prompt does not contain the match of any other call"


def _difference(prompt: str, nearest: RecordedCall) -> str:
    name = f"recorded for {_who(nearest.role, None if nearest.task is None else str(nearest.task))}"
    if nearest.match is not None:
        name += f", match {nearest.match!r}"
    from difflib import unified_diff

    lines = list(unified_diff(nearest.prompt.splitlines(), prompt.splitlines(), name, "asked now", lineterm=""))
    if not lines:
        return f"; the nearest prompt is the same, {name}"
    shown = [line if len(line) <= 500 else f"{line[:500]}…" for line in lines[:_DIFF_LINES]]
    if len(lines) > len(shown):
        shown.append(f"… {len(lines) - len(shown)} more lines")
    return "\n".join(["", *shown])
