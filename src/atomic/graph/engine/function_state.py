"""The state of a workflow function: the last result of each step, and its own fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.graph.engine.state import State, StateSpec, Values

if TYPE_CHECKING:
    from atomic.graph.engine.function_run import FunctionRun

_ENCODED = (bytes, msgspec.Raw)


class FlowState(State):
    """The state of a workflow function that declares none: its arguments, and the last
    result of each step in `outputs`.
    """

    input: dict[str, Any] = {}


class FunctionState:
    """Collects the updates of steps. It builds a state object only when one is read."""

    def __init__(self, spec: StateSpec[Any], values: Values) -> None:
        self.spec = spec
        self._values = values
        # Results that are not in the values yet: encoded, or as they are if they cannot change.
        self._outputs: dict[str, Any] = {}
        self._updated = 0.0
        self._state: Any = None

    @property
    def values(self) -> Values:
        if self._outputs:
            outputs = {
                name: msgspec.msgpack.decode(output) if isinstance(output, _ENCODED) else output
                for name, output in self._outputs.items()
            }
            self._outputs = {}
            self._values["outputs"] = {**self._values["outputs"], **outputs}
        return self._values

    @property
    def state(self) -> Any:
        """Return the state as it is now. The object never changes."""
        if self._state is None:
            self._state = self.spec.build(self.values, self._updated)
        return self._state

    def add_output(self, name: str, output: Any, updated: float) -> None:
        """Keep the result of a step: encoded, or a plain value that cannot change."""
        self._outputs[name] = output
        self._updated = updated
        self._state = None

    def apply(self, update: Values, updated: float) -> None:
        """Merge a checked update through the reducers. Raise StateError."""
        self.spec.apply(self.values, update)
        self._updated = updated
        self._state = None

    def convert(self, update: Mapping[str, Any]) -> Values:
        """Return an update as the state will have it. Raise StateError."""
        return self.spec.convert(update)


class FunctionScope:
    """One call of a workflow function: the run, the prefix of its steps, its state.

    A workflow that another one calls has a scope of its own in the same run.
    """

    __slots__ = ("names", "prefix", "run", "state")

    def __init__(self, run: FunctionRun, prefix: str, state: FunctionState, names: tuple[str, ...]) -> None:
        self.run = run
        self.prefix = prefix
        self.state = state
        self.names = names  # of the workflows around it, for circles
