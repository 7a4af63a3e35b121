"""The contract that every provider must pass, as cases that run on the real program.

house = House(AGENTS["claude"], folder, cache, CASES)
async with house.opened():
    for case in cases_for(require_provider("claude").capabilities):
        await house.play(case)
"""

from atomic.testing.conformance.agents import AGENTS, Agent
from atomic.testing.conformance.case import Heard, House, Stage, World
from atomic.testing.conformance.cases import CASES, Case, cases_for

__all__ = ["AGENTS", "CASES", "Agent", "Case", "Heard", "House", "Stage", "World", "cases_for"]
