"""See the plan before anything is changed: `atomic run plan-first "move the settings to a file"`.

Answer `go` to carry it out, `stop` to leave it, or write what the plan should do instead.
"""

from __future__ import annotations

from atomic.workflows import Flow, Option, workflow

name = "plan-first"
description = "Show a plan, change it until you agree, then carry it out"
argument_hint = "WHAT TO DO"
node_descriptions = {"plan": "Planning", "agree": "Waiting for you", "work": "Carrying out the plan"}


@workflow
async def plan_first(flow: Flow, prompt: str) -> str:
    wish = ""
    options = [Option("go", "carry it out"), Option("stop", "leave it")]
    while True:
        plan = await flow.agent("plan", f"Write a short plan for this task and change nothing: {prompt}{wish}")
        answer = await flow.ask(f"{plan}\n\nCarry it out?", id="agree", options=options)
        if answer == "stop":
            return "The plan was not carried out."
        if answer == "go":
            return await flow.agent("work", f"Carry out this plan:\n\n{plan}")
        wish = f"\n\nChange this plan: {plan}\n\nIn this way: {answer}"
