"""`atomic workflows add`: copy a workflow from a file, a folder or a git repository."""

from __future__ import annotations

import asyncio

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import harmless, one_line
from atomic.cli.errors import CliError
from atomic.cli.streams import STDERR, confirmed, has_terminal, put, tell, write
from atomic.loading.added import add, find_added, find_offer


def add_workflow(arguments: Arguments) -> int:
    """Show the code, ask, and write it."""
    source, name = [*arguments.words, ""][:2]
    if not source.strip():
        raise UsageError("the source is empty: give a file, a folder (. is this one) or the address of a repository")
    offer = asyncio.run(find_offer(source, name))
    given = arguments.value("--trust")
    if given is not None and given != offer.sha256:
        raise CliError(
            f'"{one_line(given)}" is not the hash of {one_line(offer.name)}: {offer.sha256}', ExitCode.UNTRUSTED
        )
    added = find_added(offer)
    if added is not None:
        tell(f"{one_line(offer.name)} is added already: {one_line(str(added))}")
        return ExitCode.DONE
    if given is None:
        facts = (("Workflow", offer.name), ("From", offer.origin), ("File", offer.path), ("Hash", offer.sha256))
        lines = [f"{label + ':':<10}{one_line(value)}\n" for label, value in facts]
        write(STDERR, f"{''.join(lines)}\n{harmless(offer.data.decode('utf-8', 'replace'))}\n")
        if not has_terminal():
            how = f"if you agree to this code, run it again with --trust {offer.sha256}"
            raise CliError(f"there is no terminal to ask in ({how})", ExitCode.UNTRUSTED)
        if not confirmed("Add exactly this code, to run with your rights? [y/N] "):
            tell("nothing was added")
            return ExitCode.UNTRUSTED
    file = add(offer)
    put(f"{one_line(str(file))}\n")
    tell(f'added {one_line(offer.origin)}; run it: atomic run {one_line(offer.name)} "…"')
    return ExitCode.DONE
