"""Wait for a payment for two weeks, then send a reminder."""

from datetime import timedelta

import msgspec

from atomic.workflows import Flow, step, workflow

sent: list[str] = []  # instead of a mail server


class Payment(msgspec.Struct):
    amount: int


@step
async def send(mail: str) -> None:
    sent.append(mail)


@workflow
async def invoice(flow: Flow, number: str, patience: timedelta = timedelta(days=14)) -> str:
    await send(f"invoice {number}")
    try:
        payment = await flow.signal("paid", timeout=patience, returns=Payment)
    except TimeoutError:
        await send(f"reminder for {number}")
        return "reminded"
    await flow.sleep(seconds=1)  # or minutes=, hours=, days=
    await send(f"thanks for {payment.amount}")
    return "paid"
