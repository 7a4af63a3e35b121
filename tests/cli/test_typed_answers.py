"""`atomic answer` with the data of a question that returns a type."""

from __future__ import annotations

from tests.cli.test_workflows import flow, hash_of, session
from tests.support.user import User

APPROVES = """import msgspec
from atomic.workflows import *

class Approval(msgspec.Struct):
    approve: bool
    note: str = ""

class S(State):
    said: str = ""

async def decide(ctx):
    answer = await ctx.ask(Question("Deploy?", id="deploy", returns=Approval))
    if not isinstance(answer, Approval):
        raise TypeError(answer)
    return {"said": f"{answer.approve} {answer.note}"}

workflow = graph(S).node("decide", decide).compile()
"""


async def test_an_answer_is_json_that_is_checked_before_it_is_saved(user: User) -> None:
    flow(user, "approve", APPROVES)
    assert (await user.atomic("run", "approve", "--trust", await hash_of(user), "x")).exit_code == 5
    record = session(user)
    (question,) = record["questions"]
    assert question["returns"]["$defs"]["Approval"]["required"] == ["approve"]
    refused = await user.atomic("answer", record["id"], '{"approve": "yes"}')
    assert refused.exit_code == 2
    assert 'The answer to "deploy" does not fit at approve: Expected `bool`, got `str`' in refused.stderr
    refused = await user.atomic("answer", record["id"], "yes")
    assert 'does not fit: it needs {"approve": bool, "note"?: str}, not \'yes\'' in refused.stderr
    assert session(user)["status"] == "paused"
    done = await user.atomic("answer", record["id"], '{"approve": true, "note": "go"}')
    assert done.exit_code == 0, done.stderr
    again = await user.atomic("answer", record["id"], "deploy", '{"approve": true, "note": "go"}')
    assert again.exit_code == 0, again.stderr
    other = await user.atomic("answer", record["id"], "deploy", '{"approve": false}')
    assert other.exit_code == 2
    assert '"Deploy?" is answered already: {"approve":true,"note":"go"}' in other.stderr


async def test_an_answer_can_be_saved_for_later(user: User) -> None:
    flow(user, "approve", APPROVES)
    assert (await user.atomic("run", "approve", "--trust", await hash_of(user), "x")).exit_code == 5
    id = session(user)["id"]
    saved = await user.atomic("answer", id, "--no-resume", '{"approve": false, "note": "later"}')
    assert saved.exit_code == 0, saved.stderr
    done = await user.atomic("resume", id)
    assert done.exit_code == 0, done.stderr
