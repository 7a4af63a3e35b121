"""Short programs in a private view, which its first process runs (`namespace.py`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from atomic.processes import MAX_OUTPUT, ExecError, ExecOutputError, ExecResult, ExecTimeoutError, Program

_STOP = b"stop\n"


class ViewOrders:
    """Runs one program at a time, in the order of the calls."""

    def __init__(self, holder: Program) -> None:
        assert holder.stdin is not None
        self._output = holder.stdout
        self._input = holder.stdin
        self._one_at_a_time = asyncio.Lock()

    async def run(self, argv: Sequence[str], folder: str, env: Mapping[str, str], timeout: float | None) -> ExecResult:
        """Run a program until it ends, like `processes.execute`.

        A program that does not exist is exit code 127. Raises ExecError.
        """
        async with self._one_at_a_time:
            order = {
                "argv": argv,
                "folder": folder,
                "env": {**env},
                "timeout": timeout,
                "max_output": MAX_OUTPUT,
            }
            clock = asyncio.get_running_loop().time
            started = clock()
            exit_code, reason, outputs = await self._carry_out(order)
            stdout, stderr = (output.decode("utf-8", "surrogateescape") for output in outputs)
            if reason == "timeout" and timeout is not None:
                raise ExecTimeoutError(argv, timeout=timeout, stdout=stdout, stderr=stderr, survivors=())
            if reason == "output":
                raise ExecOutputError(argv, max_output=MAX_OUTPUT)
            return ExecResult(exit_code, stdout, stderr, clock() - started)

    async def end_programs(self) -> None:
        """End all processes of the view, but its first one. Raises ExecError."""
        async with self._one_at_a_time:
            await self._carry_out({"argv": []})

    async def _carry_out(self, order: Mapping[str, Any]) -> tuple[int, str, list[bytes]]:
        """Send an order and return its answer. If this is cancelled, the program is
        ended first.
        """
        answer = asyncio.create_task(self._exchange(order))
        cancellation: asyncio.CancelledError | None = None
        while not answer.done():
            try:
                await asyncio.wait({answer})
            except asyncio.CancelledError as error:
                cancellation = error
                self._input.write(_STOP)
        if cancellation is not None:
            if not answer.cancelled():
                answer.exception()  # retrieved, so that asyncio does not log it
            raise cancellation
        return answer.result()

    async def _exchange(self, order: Mapping[str, Any]) -> tuple[int, str, list[bytes]]:
        try:
            self._input.write(json.dumps(order).encode() + b"\n")
            await self._input.drain()
            head = json.loads(await self._output.readuntil(b"\n"))
            outputs = [await self._output.readexactly(length) for length in head["lengths"]]
        except (OSError, asyncio.IncompleteReadError) as error:
            program = order["argv"][0] if order["argv"] else "kill"
            raise ExecError(f'The private view ended while "{program}" ran in it', order["argv"]) from error
        return head["exit_code"], head["reason"], outputs
