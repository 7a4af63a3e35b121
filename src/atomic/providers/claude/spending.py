"""What the results of the program say about tokens and cost."""

from __future__ import annotations

from atomic.providers.claude.message_events import usage_of
from atomic.providers.claude.messages import ModelUsage, Result
from atomic.providers.events import Usage


class Spending:
    """Reads results in order. Older versions report the total since the program
    started, newer ones also what came since the previous result.
    """

    def __init__(self) -> None:
        self._usage = Usage()
        self._cost = 0.0

    def program_started(self) -> None:
        """Begin at 0: a total does not include what an earlier program has spent."""
        self._usage = Usage()
        self._cost = 0.0

    def since_last(self, result: Result) -> Usage:
        """Return the usage since the previous result, of the agent and all sub-agents."""
        if result.spent is not None:
            return _sum(result.spent)
        if result.total is None:  # only the agent's own tokens
            used = usage_of(result.usage)
        else:
            now = _sum(result.total)
            used = Usage(
                _rest(now.input, self._usage.input),
                _rest(now.output, self._usage.output),
                _rest(now.cached, self._usage.cached),
            )
            self._usage = now
        if result.total_cost is None:
            return used
        cost = result.total_cost - self._cost if result.total_cost >= self._cost else result.total_cost
        self._cost = result.total_cost
        return Usage(used.input, used.output, used.cached, cost)


def _sum(models: dict[str, ModelUsage]) -> Usage:
    total = Usage()
    for model in models.values():
        total += Usage(
            input=model.input_tokens + model.cache_read_input_tokens + model.cache_creation_input_tokens,
            output=model.output_tokens,
            cached=model.cache_read_input_tokens,
            cost=model.cost,
        )
    return total


def _rest(now: int, before: int) -> int:
    """Return what was added to a total; all of it if the program began to count again."""
    return now - before if now >= before else now
