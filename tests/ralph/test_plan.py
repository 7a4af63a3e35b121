"""Plans in the many forms in which planners answer."""

from __future__ import annotations

import json

import pytest

from atomic.ralph.plan import PlanError, plan_in, plan_tool, read_plan

TASKS = [{"id": "1", "title": "First"}, {"id": "2", "title": "Second", "blocked_by": ["1"]}]
PLAN = json.dumps({"tasks": TASKS})
CYCLE = json.dumps([{"id": "1", "title": "a", "blocked_by": ["2"]}, {"id": "2", "title": "b", "blocked_by": ["1"]}])


@pytest.mark.parametrize(
    "answer",
    [
        PLAN,
        json.dumps(TASKS),
        f"Here it is:\n```json\n{PLAN}\n```\nGood luck.",
        f"I looked at {{curly}} things. {PLAN} That is all.",
        f'The form is {{"tasks": [{{"id": "9", "title": "an example"}}]}}.\n\nMy plan:\n{PLAN}',
        json.dumps({"tasks": [{"id": 1, "name": "First"}, {"id": 2, "content": "Second", "dependencies": ["#1"]}]}),
    ],
    ids=["whole", "list", "fenced", "embedded", "behind-an-example", "other-words"],
)
def test_a_plan_is_found_in_an_answer(answer: str) -> None:
    plan = plan_in(answer)
    assert [(task.id, task.title, list(task.blocked_by)) for task in plan.tasks] == [
        ("1", "First", []),
        ("2", "Second", ["1"]),
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I could not find anything to do.", "no JSON"),
        ('{"tasks": []}', "no tasks"),
        ('{"tasks": [{"id": "1", "title": ""}]}', "without a title: 1"),
        ('{"tasks": [{"id": "1", "title": "a", "blocked_by": ["7"]}]}', '"7"'),
        (CYCLE, "cycle"),
        ('{"steps": ["a"]}', "without a list"),
    ],
    ids=["prose", "empty", "untitled", "unknown-blocker", "cycle", "no-list"],
)  # fmt: skip
def test_an_answer_that_is_not_a_plan_is_refused_with_the_reason(answer: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        plan_in(answer)


def test_planned_tasks_are_still_to_be_done() -> None:
    plan = read_plan({"tasks": [{"id": "1", "title": "a", "status": "completed"}]})
    assert [task.status.value for task in plan.tasks] == ["pending"]


async def test_the_tool_takes_a_plan_and_reports_its_problems() -> None:
    taken: list[object] = []
    tool = plan_tool(taken.append)
    with pytest.raises(PlanError, match="no tasks"):
        await tool.run({"tasks": []})
    assert "2 tasks" in await tool.run({"tasks": TASKS})
    assert len(taken) == 1
