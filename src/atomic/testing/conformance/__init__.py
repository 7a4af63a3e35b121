"""The contract that every provider must pass, as cases that run on the real program.

for case in cases_for(agent.capabilities()):
    await case.run(World(...))
"""

from atomic.testing.conformance.agents import AGENTS, Agent
from atomic.testing.conformance.case_setup import Heard, Stage, World
from atomic.testing.conformance.cases import CASES, Case, cases_for
from atomic.testing.conformance.shared_setup import House

__all__ = ["AGENTS", "CASES", "Agent", "Case", "Heard", "House", "Stage", "World", "cases_for"]
