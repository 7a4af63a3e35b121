"""Steps that clean up after a failure: `atomic run deploy staging`.

A start that fails is tried again. If the deployment is broken for good, `roll-back` runs and the run is over. Each
command gets the id of its step, so that a service can tell a repeated request from a new one.
"""

from __future__ import annotations

from atomic.workflows import Flow, Retry, current_step, step, workflow

name = "deploy"
description = "Build, deploy and test; roll back if it fails"
argument_hint = "ENVIRONMENT"
node_descriptions = {"build": "Building", "start": "Deploying", "smoke": "Testing", "roll-back": "Rolling back"}


async def run_script(script: str, environment: str) -> None:
    """Run a script of the project. Raise RuntimeError if it fails."""
    context = current_step()
    assert context is not None, "only steps run scripts"
    done = await context.exec(f"scripts/{script}", environment, context.step_id)
    if done.exit_code:
        raise RuntimeError(f"{script}: {(done.stderr or done.stdout).strip()}")


@step(timeout="30m")
async def build(environment: str) -> None:
    await run_script("build", environment)


@step(retry=Retry(5, attempts=3))
async def start(environment: str) -> None:
    await run_script("deploy", environment)


@step
async def smoke(environment: str) -> None:
    await run_script("smoke-test", environment)


@step(name="roll-back")
async def roll_back(environment: str) -> None:
    await run_script("roll-back", environment)


@workflow
async def deploy(flow: Flow, environment: str) -> str:
    await build(environment)
    flow.compensate(roll_back, environment)
    await start(environment)
    await smoke(environment)
    return f"{environment} is up to date"
