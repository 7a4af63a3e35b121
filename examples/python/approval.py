"""Build, ask, deploy. The answer may come days later and in another process."""

from atomic.workflows import Flow, step, workflow


@step
async def build(version: str) -> str:
    return f"app-{version}.tar.gz"


@step
async def deploy(package: str) -> str:
    return f"{package} is live"


@workflow
async def ship(flow: Flow, version: str) -> str:
    package = await build(version)
    if await flow.ask(f"Deploy {package}?", id="go", options=["yes", "no"]) != "yes":
        return f"{package} is kept back"
    return await deploy(package)
