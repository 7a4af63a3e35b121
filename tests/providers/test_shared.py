"""Test shared servers: the first user starts one, and the last user ends it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomic.providers.shared_server import Shared


class Servers:
    """Starts servers and counts them."""

    def __init__(self, *, fails: int = 0, fails_to_end: bool = False) -> None:
        self.started = 0
        self.ended = 0
        self.alive = 0
        self.most = 0
        self.fails = fails
        self.fails_to_end = fails_to_end
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.shared: Shared[int] = Shared(self.server)

    @asynccontextmanager
    async def server(self) -> AsyncGenerator[int]:
        await self.may_start.wait()
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise OSError("no port is free")
        self.started += 1
        self.alive += 1
        self.most = max(self.most, self.alive)
        try:
            yield self.started
        finally:
            await self.may_end.wait()
            for _ in range(10 * self.started):  # a later server takes longer
                await asyncio.sleep(0)
            self.alive -= 1
            self.ended += 1
        if self.fails_to_end:
            raise OSError("it does not end")


async def test_all_users_share_a_server_that_ends_with_the_last() -> None:
    servers = Servers()
    async with servers.shared.use() as one, servers.shared.use() as other:
        assert one == other == 1
    assert (servers.started, servers.alive) == (1, 0)
    async with servers.shared.use() as third:
        assert third == 2


async def test_the_first_user_may_leave_first() -> None:
    servers = Servers()
    leave = asyncio.Event()

    async def first() -> None:
        async with servers.shared.use():
            await leave.wait()

    task = asyncio.create_task(first())
    async with servers.shared.use() as value:
        leave.set()
        await task
        assert servers.alive == value == 1
    assert servers.alive == 0


async def test_a_failed_start_is_raised_for_all_waiting_users_and_retried_by_the_next() -> None:
    servers = Servers(fails=1)
    servers.may_start.clear()

    async def user() -> int:
        async with servers.shared.use() as value:
            return value

    users = [asyncio.create_task(user()) for _ in range(3)]
    await asyncio.sleep(0)
    servers.may_start.set()
    results = await asyncio.gather(*users, return_exceptions=True)
    assert [str(result) for result in results] == ["no port is free"] * 3
    assert await user() == 1
    assert servers.alive == 0


async def test_an_immediate_retry_does_not_get_the_old_error() -> None:
    servers = Servers(fails=1)

    async def user() -> int:
        try:
            async with servers.shared.use() as value:
                return value
        except OSError:
            async with servers.shared.use() as value:
                return value

    assert await asyncio.gather(user(), user()) == [1, 1]
    assert servers.alive == 0


async def test_a_start_without_waiting_users_is_cancelled() -> None:
    servers = Servers()
    servers.may_start.clear()

    async def user() -> None:
        async with servers.shared.use():
            pass

    task = asyncio.create_task(user())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert servers.started == 0
    servers.may_start.set()
    await user()
    assert (servers.started, servers.alive) == (1, 0)


async def test_a_user_cancelled_during_the_start_does_not_affect_others() -> None:
    servers = Servers()
    servers.may_start.clear()

    async def user() -> int:
        async with servers.shared.use() as value:
            return value

    leaver = asyncio.create_task(user())
    stayer = asyncio.create_task(user())
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.sleep(0)
    servers.may_start.set()
    assert await stayer == 1
    assert servers.alive == 0


async def test_the_next_user_of_a_dropped_server_gets_a_new_one() -> None:
    servers = Servers()
    async with servers.shared.use() as dead:
        servers.shared.drop(dead)
        async with servers.shared.use() as new:
            assert (dead, new) == (1, 2)
            servers.shared.drop(dead)  # a repeated drop does not affect the new server
            async with servers.shared.use() as same:
                assert same == new
    assert servers.alive == 0


async def test_a_server_dropped_during_its_start_ends() -> None:
    servers = Servers()
    servers.may_start.clear()

    async def user() -> int:
        async with servers.shared.use() as value:
            return value

    first = asyncio.create_task(user())
    await asyncio.sleep(0)
    servers.shared.drop()
    second = asyncio.create_task(user())
    await asyncio.sleep(0)
    servers.may_start.set()
    assert sorted(await asyncio.gather(first, second)) == [1, 2]
    assert servers.alive == 0


async def test_the_last_user_waits_for_all_servers_to_end_even_if_cancelled() -> None:
    servers = Servers()
    servers.may_end.clear()

    async def user() -> None:
        async with servers.shared.use() as value:
            servers.shared.drop(value)
            async with servers.shared.use():
                pass

    task = asyncio.create_task(user())
    while servers.started < 2:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    servers.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (servers.started, servers.alive) == (2, 0)


async def test_a_failed_end_is_raised_for_the_last_user_after_all_have_ended() -> None:
    servers = Servers(fails_to_end=True)

    async def user() -> None:
        async with servers.shared.use() as value:
            servers.shared.drop(value)
            async with servers.shared.use():
                pass

    with pytest.raises(OSError, match="does not end"):
        await user()
    assert (servers.ended, servers.alive) == (2, 0)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 12))
async def test_no_server_is_alive_without_users(seed: int, number: int) -> None:
    chance = random.Random(seed)
    servers = Servers(fails=seed % 3)

    async def user() -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        async with servers.shared.use() as value:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                servers.shared.drop(value)
            if chance.random() < 0.2:
                raise RuntimeError("its own trouble")

    tasks = [asyncio.create_task(user()) for _ in range(number)]
    for task in tasks:
        await asyncio.sleep(0)
        if chance.random() < 0.3:
            task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    allowed = (type(None), asyncio.CancelledError, OSError, RuntimeError)
    assert all(isinstance(result, allowed) for result in results)
    assert servers.alive == 0
    assert servers.started == servers.ended
