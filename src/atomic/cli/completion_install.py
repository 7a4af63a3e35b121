"""`atomic completion --install`: write the completion to where a shell looks for it.

A second call changes nothing. `--dry-run` shows the same lines and writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

from atomic.base.arguments import UsageError
from atomic.base.errors import ExitCode
from atomic.base.files import replace_file
from atomic.base.terminal import harmless
from atomic.base.untrusted_files import read_bounded_text
from atomic.cli.errors import CliError
from atomic.cli.streams import put, tell

# Where packages put bash-completion, which loads our file at the first Tab.
_BASH_COMPLETION = (
    "/usr/share/bash-completion/bash_completion",
    "/etc/bash_completion",
    "/usr/local/etc/profile.d/bash_completion.sh",
    "/opt/homebrew/etc/profile.d/bash_completion.sh",
)
_MARK = "# completion of atomic"
_BEGINNINGS = (_MARK, "#compdef atomic")


class Place:
    """The files of one shell: the script, and the start file that loads it, if the
    shell needs that.
    """

    def __init__(self, script: Path, start_file: Path | None = None, lines: Sequence[str] = ()) -> None:
        self.script = script
        self.start_file = start_file
        self.lines = lines


def guess_shell(environment: Mapping[str, str], shells: Sequence[str]) -> str:
    """Return the user's shell. Raises UsageError if it has no completion."""
    name = os.path.basename(environment.get("SHELL", ""))
    if name in shells:
        return name
    whose = f'"{name}", your shell, has none' if name else "SHELL is not set"
    raise UsageError(f"{whose}: name one, as in atomic completion --install {shells[0]} ({', '.join(shells)})")


def place_of(shell: str, environment: Mapping[str, str], *, has_bash_completion: bool | None = None) -> Place:
    """Return the files of a shell. Raises CliError without a home folder."""
    home = Path(environment.get("HOME", ""))
    if not home.is_absolute():
        raise CliError("HOME is not set to your home folder, where a shell looks for its completion: set it")
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    if shell == "fish":
        config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
        return Place(config / "fish" / "completions" / "atomic.fish")
    if shell == "zsh":
        script = data / "zsh" / "site-functions" / "_atomic"
        start_file = Path(environment.get("ZDOTDIR") or home) / ".zshrc"
        start = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }"
        return Place(script, start_file, (_MARK, start, f"source {_quoted(script)}"))
    script = data / "bash-completion" / "completions" / "atomic"
    if has_bash_completion is None:
        has_bash_completion = any(map(os.path.exists, _BASH_COMPLETION))
    if has_bash_completion:
        return Place(script)
    return Place(script, home / ".bashrc", (_MARK, f"source {_quoted(script)}"))


def install(shell: str, script: str, *, dry_run: bool) -> int:
    """Write the files of a shell, and print what changes."""
    place = place_of(shell, os.environ)
    old = _read(place.script)
    if old is not None and not old.startswith(_BEGINNINGS):
        raise CliError(f"{place.script} exists and is not Atomic's: remove it, then install again", ExitCode.FAILED)
    started = None if place.start_file is None else _read(place.start_file)  # refused before anything is written
    is_changed = _change(place.script, old, script, dry_run=dry_run)
    if place.start_file is not None and place.lines[-1] not in (started or "").splitlines():
        gap = "" if not started or started.endswith("\n") else "\n"
        added = gap + "\n".join((*place.lines, ""))
        _change(place.start_file, started, (started or "") + added, dry_run=dry_run, added=added)
        is_changed = True
    if not is_changed:
        tell(f"the completion for {shell} is installed already: {place.script}")
    elif dry_run:
        tell(f"nothing was written; without --dry-run the completion for {shell} is installed like this")
    else:
        tell(f"the completion for {shell} is installed; open a new shell to use it")
    return ExitCode.DONE


def _change(path: Path, old: str | None, new: str, *, dry_run: bool, added: str | None = None) -> bool:
    """Print the difference of a file and write it; only `added` at its end if given."""
    if old == new:
        return False
    before = "/dev/null" if old is None else str(path)
    lines = unified_diff((old or "").splitlines(), new.splitlines(), before, str(path), lineterm="")
    put(harmless("".join(f"{line}\n" for line in lines)))
    if dry_run:
        return True
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if added is None:
            replace_file(path, new.encode())
        else:  # appended, because start files are often links, and keep their mode
            with path.open("a", encoding="utf-8") as file:
                file.write(added)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from error
    return True


def _read(path: Path) -> str | None:
    """Return the text of a file; None if there is none. Raises CliError."""
    try:
        return read_bounded_text(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror or error}") from error


def _quoted(path: Path) -> str:
    from shlex import quote

    return quote(str(path))
