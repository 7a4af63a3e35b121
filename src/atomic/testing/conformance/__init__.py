"""The contract that every provider must pass, as cases that run on the real program.

for case in cases_for(agent.capabilities()):
    await case.run(World(...))
"""

from atomic.testing.conformance.agents import AGENTS, Agent
from atomic.testing.conformance.cases import CASES, Case, cases_for
from atomic.testing.conformance.house import House
from atomic.testing.conformance.world import Heard, Stage, World

__all__ = ["AGENTS", "CASES", "Agent", "Case", "Heard", "House", "Stage", "World", "cases_for"]
