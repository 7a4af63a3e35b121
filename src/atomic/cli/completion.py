"""`atomic completion SHELL`: a script for the shell, and `atomic complete`, which the script asks for names.

A shell asks at every press of Tab, also in a stranger's repository: names are read as text, nothing of a project is
run, and a name with anything but plain characters, which a shell might take for a command, is not offered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.flags import Flag
from atomic.base.terminal import one_line
from atomic.cli.streams import put
from atomic.cli.verbs import TOP, VERBS, Verb
from atomic.cli.workflow_sources import find_written, read_text, written_workflows

MOST_SESSIONS = 50  # the newest ones: nobody reads more
_LENGTH_OF_ID = 36
_SIGNS = "._:@/+-="  # beside letters and digits: what no shell takes for more than itself
_AGENTS = ("claude", "opencode", "copilot", "acp:", "replay:")

Candidate = tuple[str, str]  # a word and what it is

BASH = r"""# completion of atomic for bash: atomic completion bash > ~/.local/share/bash-completion/completions/atomic
_atomic() {
    local line="${COMP_LINE:0:COMP_POINT}" current before candidate
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current="${words[${#words[@]}-1]}"
    # Readline takes : and = for the beginning of a new word, and wants only what is behind them.
    before="${current%"${current##*[:=]}"}"
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        COMPREPLY+=("${candidate#"$before"}")
    done < <(command atomic complete "${words[@]:1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace
    return 0
}
complete -o bashdefault -o default -F _atomic atomic
"""

ZSH = r"""#compdef atomic
# completion of atomic for zsh: atomic completion zsh > "${fpath[1]}/_atomic"
_atomic() {
    local candidate text
    local -a names shown
    while IFS=$'\t' read -r candidate text; do
        names+=("$candidate")
        shown+=("$candidate  $text")
    done < <(command atomic complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#names} )); then
        compadd -l -d shown -a names
    else
        _files
    fi
}
if [[ $funcstack[1] == _atomic ]]; then
    _atomic "$@"
else
    compdef _atomic atomic
fi
"""

FISH = r"""# completion of atomic for fish: atomic completion fish > ~/.config/fish/completions/atomic.fish
function __atomic_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -q current[1]; or set current ''
    set -l names (command atomic complete $words[2..-1] $current 2>/dev/null)
    if set -q names[1]
        printf '%s\n' $names
    else
        __fish_complete_path $current
    end
end
complete -c atomic -f -a '(__atomic_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def print_script(arguments: Arguments) -> int:
    """Print the script for a shell; it is the same on every machine."""
    shell = arguments.words[0]
    if shell not in SCRIPTS:
        raise UsageError(f'No completion for "{shell}": choose one of {", ".join(SCRIPTS)}')
    put(SCRIPTS[shell])
    return ExitCode.DONE


def complete(words: Sequence[str]) -> int:
    """Print what the last word may become, one a line with a tab and what it is; nothing: the shell offers files."""
    put("".join(f"{name}\t{text}\n" if text else f"{name}\n" for name, text in candidates(words)))
    return ExitCode.DONE


def candidates(words: Sequence[str]) -> Iterator[Candidate]:
    """What the last of these words may become."""
    *before, current = words or ("",)
    seen: set[str] = set()
    for name, text in _offers(before, current):
        if name.startswith(current) and name not in seen and _is_plain(name):
            seen.add(name)
            yield name, one_line(text)[:80]


def _is_plain(name: str) -> bool:
    return bool(name) and all(sign.isalnum() or sign in _SIGNS for sign in name)


def _offers(before: Sequence[str], current: str) -> Iterable[Candidate]:
    if not before:
        return _flags(TOP) if current.startswith("-") else _verbs(VERBS.values())
    verb, rest = VERBS.get(before[0]), before[1:]
    if verb is None:
        return _of_flags(TOP, before, current)
    if verb.verbs and not rest and not current.startswith("-"):
        return _verbs(verb.verbs.values())
    if verb.verbs:
        chosen = rest[0] if rest and rest[0] in verb.verbs else ""
        verb, rest = verb.verbs[chosen or verb.default], rest[1 if chosen else 0 :]
    flags = (*verb.flags, *_flags_of_workflow(verb, rest)) if current.startswith("-") else verb.flags
    return _of_flags(flags, rest, current) or _of_words(verb, rest)


def _flags_of_workflow(verb: Verb, words: Sequence[str]) -> Iterable[Flag]:
    """Those of the workflow that the words name."""
    if verb.workflow is None:
        return ()
    from atomic.config import atomic_home, find_project

    home, project = atomic_home(), find_project()
    for word in words:
        record = _record(home / "sessions" / word / "session.json") if len(word) == _LENGTH_OF_ID else {}
        name, place = (record.get("workflow"), Path(str(record.get("project")))) if record else (word, project)
        if (found := find_written(str(name), place, home)) is not None:
            return [flag for flag in found.flags() if flag.is_for_resume or not verb.resumes]
    return ()


def _verbs(verbs: Iterable[Verb]) -> list[Candidate]:
    return [(verb.name, verb.summary) for verb in verbs]


def _flags(flags: Iterable[Flag]) -> list[Candidate]:
    return [(flag.name, flag.help) for flag in flags]


def _of_flags(flags: Sequence[Flag], before: Sequence[str], current: str) -> list[Candidate]:
    """The flags themselves, or the values of the one that the last word, or the one before it, names."""
    named = {name: flag for flag in flags for name in flag.names if flag.value}
    name, equals, _ = current.partition("=")
    if equals and name in named:
        return [(f"{name}={value}", text) for value, text in _values(named[name])]
    if current.startswith("-"):
        return _flags(flags)
    return _values(named[before[-1]]) if before and before[-1] in named else []


def _values(flag: Flag) -> list[Candidate]:
    if flag.choices:
        return [(choice, "") for choice in flag.choices]
    kind = flag.value.rpartition("]")[2]  # [ROLE=]AGENT
    return list(_KINDS[kind]()) if kind in _KINDS else []


def _of_words(verb: Verb, rest: Sequence[str]) -> Iterable[Candidate]:
    """The names that fit the next word of a verb."""
    takes_value = {name for flag in verb.flags for name in flag.names if flag.value}
    given = [
        word for at, word in enumerate(rest) if not word.startswith("-") and not (at and rest[at - 1] in takes_value)
    ]
    if len(given) >= len(verb.words):
        return ()
    kind = verb.words[len(given)].strip("[].")
    kind = _NAMES_OF.get(verb.path.partition(" ")[0], kind) if kind == "NAME" else kind
    return (offer for offer in _KINDS[kind]() if not offer[0].startswith("-")) if kind in _KINDS else ()


# names --------------------------------------------------------------------------------------------------------------


def _workflows() -> Iterator[Candidate]:
    from atomic.config import atomic_home, find_project

    for level in written_workflows(find_project(), atomic_home()):
        for one in level:
            yield one.name, ""
            yield from ((alias, f"is {one.name}") for alias in one.aliases)


def _entities() -> Iterator[Candidate]:
    from atomic.config import find_project
    from atomic.entities import EntityKind, EntityRegistry

    registry = EntityRegistry.load(find_project())
    for kind in EntityKind:
        yield from ((entity.name, entity.description) for entity in registry.all(kind))


def _sessions() -> Iterator[Candidate]:
    """The newest ones; the folder's own time is enough to tell."""
    from atomic.config import atomic_home

    try:
        with os.scandir(atomic_home() / "sessions") as folders:
            found = [
                (one.stat(follow_symlinks=False).st_mtime, one.path)
                for one in folders
                if len(one.name) == _LENGTH_OF_ID
            ]
    except OSError:
        return
    for _, path in sorted(found, reverse=True)[:MOST_SESSIONS]:
        yield os.path.basename(path), _told(Path(path) / "session.json")


def _told(file: Path) -> str:
    return " ".join(str(_record(file).get(name, "")) for name in ("workflow", "status", "prompt"))


def _record(file: Path) -> dict[str, Any]:
    """What a session.json says; empty if it says nothing that could be read."""
    import json

    try:
        record: Any = json.loads(read_text(file) or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}


def _shells() -> Iterator[Candidate]:
    return ((shell, "") for shell in SCRIPTS)


_KINDS: dict[str, Callable[[], Iterable[Candidate]]] = {
    "WORKFLOW": _workflows,
    "ENTITY": _entities,
    "ID": _sessions,
    "SHELL": _shells,
    "AGENT": lambda: ((name, "") for name in _AGENTS),
}
_NAMES_OF = {"entities": "ENTITY", "workflows": "WORKFLOW"}
