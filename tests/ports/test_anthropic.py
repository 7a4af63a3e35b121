"""The five patterns of Anthropic's "Building effective agents", with the values of its notebooks."""

import asyncio
from typing import Literal

import msgspec

from atomic.workflows import Flow, Journal, workflow
from tests.ports.agents import scripted
from tests.ports.source import port


@port("Anthropic", "basic_workflows.ipynb, chain", lines=31)
async def test_prompt_chaining(journal: Journal) -> None:
    @workflow
    async def chain(flow: Flow, text: str, prompts: list[str]) -> str:
        for prompt in prompts:
            text = await flow.agent("step", f"{prompt}\nInput: {text}")
        return text

    answers = {
        "Extract": "92: customer satisfaction points\n45%: revenue growth\n87: employee satisfaction points",
        "Convert": "92%: customer satisfaction\n45%: revenue growth\n87%: employee satisfaction",
        "Sort": "92%: customer satisfaction\n87%: employee satisfaction\n45%: revenue growth",
        "Format": "| Customer Satisfaction | 92% |\n| Employee Satisfaction | 87% |\n| Revenue Growth | 45% |",
    }
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return answers[prompt.split("\n")[0]]

    report = "Our customer satisfaction score rose to 92 points this quarter."
    ended = await chain.run(report, list(answers), agent=scripted(answer), journal=journal)
    assert ended.result == answers["Format"]
    inputs = [report, *list(answers.values())[:3]]
    assert asked == [f"{prompt}\nInput: {text}" for prompt, text in zip(answers, inputs, strict=True)]


@port("Anthropic", "basic_workflows.ipynb, route", lines=34)
async def test_routing(journal: Journal) -> None:
    class Selection(msgspec.Struct):
        reasoning: str
        selection: Literal["billing", "technical", "account", "product"]

    @workflow
    async def route(flow: Flow, ticket: str, routes: dict[str, str]) -> str:
        chosen = await flow.agent("select", f"Select the support team.\nInput: {ticket}", returns=Selection)
        return await flow.agent(chosen.selection, f"{routes[chosen.selection]}\nInput: {ticket}")

    def answer(prompt: str) -> str:
        if not prompt.startswith("Select"):
            return prompt.split("\n")[0]
        team = "account" if "access my account" in prompt else "billing"
        return f'{{"reasoning": "key terms", "selection": "{team}"}}'

    routes = {"billing": "Billing Support Response:", "account": "Account Support Response:"}
    tickets = {"I can't access my account": "account", "Unexpected charge on my card": "billing"}
    for ticket, team in tickets.items():
        ended = await route.run(ticket, routes, agent=scripted(answer), journal=journal, execution_id=team)
        assert ended.result == routes[team]
        assert [record.node_id for record in journal.records(team)] == ["select", team]


@port("Anthropic", "basic_workflows.ipynb, parallel", lines=14)
async def test_parallelisation(journal: Journal) -> None:
    @workflow
    async def parallel(flow: Flow, prompt: str, inputs: list[str]) -> list[str]:
        async def ask(stakeholder: str) -> str:
            return await flow.agent("impact", f"{prompt}\nInput: {stakeholder}")

        return await flow.map(ask, inputs, max_concurrency=3)

    def answer(prompt: str) -> str:
        return f"MARKET IMPACT ANALYSIS FOR {prompt.rpartition(': ')[2].upper()}"

    agent = scripted(answer)
    stakeholders = ["Customers", "Employees", "Investors", "Suppliers"]
    ended = await parallel.run("Analyze the impact.", stakeholders, agent=agent, journal=journal)
    assert ended.result == [
        "MARKET IMPACT ANALYSIS FOR CUSTOMERS",
        "MARKET IMPACT ANALYSIS FOR EMPLOYEES",
        "MARKET IMPACT ANALYSIS FOR INVESTORS",
        "MARKET IMPACT ANALYSIS FOR SUPPLIERS",
    ]


@port("Anthropic", "orchestrator_workers.ipynb", lines=78)
async def test_orchestrator_and_workers(journal: Journal) -> None:
    class Part(msgspec.Struct):
        type: str
        description: str

    class Plan(msgspec.Struct):
        analysis: str
        tasks: list[Part]

    @workflow
    async def orchestrate(flow: Flow, task: str) -> dict[str, str]:
        plan = await flow.agent("orchestrator", f"Break down: {task}", returns=Plan)
        prompts = [f"Task: {task}\nStyle: {part.type}\nGuidelines: {part.description}" for part in plan.tasks]
        texts = await asyncio.gather(*(flow.agent("worker", prompt) for prompt in prompts))
        return {part.type: text for part, text in zip(plan.tasks, texts, strict=True)}

    plan = {
        "analysis": "two variations",
        "tasks": [
            {"type": "formal", "description": "Write a precise, technical version"},
            {"type": "conversational", "description": "Write an engaging, friendly version"},
        ],
    }

    def answer(prompt: str) -> str:
        return msgspec.json.encode(plan).decode() if prompt.startswith("Break") else prompt.split("\n")[1]

    ended = await orchestrate.run("Describe a water bottle", agent=scripted(answer), journal=journal)
    assert ended.result == {"formal": "Style: formal", "conversational": "Style: conversational"}


@port("Anthropic", "evaluator_optimizer.ipynb", lines=45)
async def test_evaluator_and_optimizer(journal: Journal) -> None:
    class Evaluation(msgspec.Struct):
        evaluation: Literal["PASS", "NEEDS_IMPROVEMENT", "FAIL"]
        feedback: str = ""

    @workflow
    async def improve(flow: Flow, task: str) -> list[str]:
        attempts: list[str] = []
        context = ""
        while True:
            attempts.append(await flow.agent("generate", f"{context}Task: {task}"))
            verdict = await flow.agent("evaluate", f"Evaluate: {attempts[-1]}", returns=Evaluation)
            if verdict.evaluation == "PASS":
                return attempts
            context = f"Previous attempts: {attempts}\nFeedback: {verdict.feedback}\n"

    def answer(prompt: str) -> str:
        if "Evaluate: with exceptions" in prompt:
            return '{"evaluation": "PASS"}'
        if "Evaluate: returns None" in prompt:
            return '{"evaluation": "NEEDS_IMPROVEMENT", "feedback": "pop() should raise an exception"}'
        return "with exceptions" if "Feedback: pop() should raise an exception" in prompt else "returns None"

    ended = await improve.run("Implement a Stack", agent=scripted(answer), journal=journal, execution_id="1")
    assert ended.result == ["returns None", "with exceptions"]
    names = [record.node_id for record in journal.records("1")]
    assert names == ["generate", "evaluate", "generate", "evaluate"]
