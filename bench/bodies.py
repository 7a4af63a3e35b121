"""The work of the nodes, equal for every engine and as small as possible, to measure only the engine."""

CHAIN = 100
LONG_CHAIN = 1_000  # ten times the nodes
LOOP = 10_000
LONG_LOOP = 100_000  # ten times the steps
STREAM = 1_000
COMPILE = 1_000
DEPTH = 10
DURABLE = 1_000
RESUMED = 10_000  # steps of a function before its resume
RECORD = "x" * 1_024  # what one durable step adds to the state


def more(n: int) -> int:
    """Do the work of a step in chains and loops."""
    return n + 1


def expect(actual: object, expected: object) -> None:
    """Raise AssertionError if an engine did not do the work."""
    if actual != expected:
        raise AssertionError(f"the workload ended with {actual!r}, expected {expected!r}")
