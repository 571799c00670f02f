"""Working memory on a real Redis-compatible server: nothing lost, nothing mixed up, everything ends."""

import asyncio
import json
import multiprocessing
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from local_stack import ports, redis
from local_stack.home import Home, open_home
from local_stack.processes import Child, spawn, wait_ready
from memory_service.domain import SHARED_USER, Caller
from memory_service.errors import (
    Forbidden,
    Gone,
    HindsightError,
    IdempotencyMismatch,
    InvalidFields,
    NotFound,
    StoreUnavailable,
    TooLarge,
)
from memory_service.settings import load_settings, load_tunables
from memory_service.stores.redis import TaskKey, WorkingStore
from memory_service.stores.redis_client import open_redis, ping
from memory_service.working.items import Fact, Patch, PendingItem, Step
from memory_service.working.service import RepeatableRequest, WorkingMemory
from memory_service.working.settings import Working

SETTINGS = load_tunables(load_settings()).section("working", Working)
WRITER = Caller("acme", "writer")
HOSTILE = ["a:b", "a/b", "{x}", "*", "a b", "%2F", "a%3Ab", "任务一", "👩‍💻", "..", "x:lock", "\\", '"', "'", "}:wm:{"]


class Server:
    """One server that can be killed and started again on its port and data."""

    def __init__(self, home: Home) -> None:
        self.home, self.port = home, ports.choose(None, frozenset())
        self.child: Child = self._start()

    @property
    def url(self) -> str:
        return redis.url(self.home, self.port)

    def _start(self) -> Child:
        child = spawn(redis.spec(self.home, self.port))
        wait_ready({"redis": (child, lambda: redis.is_ready(self.port, self.home.secret("redis")))}, 30)
        return child

    def kill(self) -> None:
        self.child._process.kill()
        self.child._process.wait()

    def start(self) -> None:
        self.child = self._start()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(open_home(tmp_path_factory.mktemp("redis")))
    yield running
    running.child.stop()


def count_words(text: str) -> int:
    return len(text.split())


def memory_on(client: Redis, **numbers: Any) -> WorkingMemory:
    store = WorkingStore(client, ttl_seconds_max=SETTINGS.ttl_seconds_max, once_seconds=86_400)
    return WorkingMemory(store, SETTINGS.model_copy(update=numbers), count_words)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Redis]:
    connected = open_redis(server.url, timeout_s=2.0, connections_max=32)
    await connected.flushall()
    yield connected
    await connected.aclose()


@pytest.fixture
def memory(client: Redis) -> WorkingMemory:
    return memory_on(client)


async def shown(memory: WorkingMemory, task: str = "t", user: str = "u", caller: Caller = WRITER) -> dict[str, Any]:
    return (await memory.get(caller, user, task)).to_json()


async def made(memory: WorkingMemory, task: str = "t", user: str = "u", caller: Caller = WRITER, **parts: Any) -> None:
    await memory.replace(caller, user, task, Patch(**parts))


# The object and its changes.


async def test_what_is_put_comes_back_exactly(memory: WorkingMemory) -> None:
    odd = {
        "big": 2**63 - 1,
        "neg": -(2**63),
        "empty": [],
        "object": {},
        "float": 1.0,
        "tiny": 5e-324,
        "null": None,
        "字": "𝄞",
    }
    await made(memory, fields={"task_goal": "目标"}, variables=odd, pending_items=["a", PendingItem("b", 1)])
    answer = await shown(memory)
    assert repr(answer["variables"]) == repr(odd)
    assert answer["task_goal"] == "目标"
    assert answer["pending_items"] == [{"item": "a", "priority": 3}, {"item": "b", "priority": 1}]
    assert answer["expires_at"].endswith("Z")


async def test_put_replaces_all_of_it(memory: WorkingMemory) -> None:
    await made(memory, constraints=["old"], variables={"old": 1})
    await made(memory, constraints=["new"])
    answer = await shown(memory)
    assert (answer["constraints"], answer["variables"]) == (["new"], {})


async def test_unknown_tasks_are_not_found_by_any_verb(memory: WorkingMemory) -> None:
    for attempt in (
        memory.get(WRITER, "u", "none"),
        memory.delete(WRITER, "u", "none"),
        memory.patch(WRITER, "u", "none", Patch(constraints=["x"])),
        memory.record_step(WRITER, "u", "none", Step("ls", "success")),
        memory.context(WRITER, "u", "none"),
    ):
        with pytest.raises(NotFound):
            await attempt


async def test_a_refused_patch_changes_nothing(memory: WorkingMemory) -> None:
    await made(memory, constraints=["a"])
    with pytest.raises(InvalidFields):
        await memory.patch(WRITER, "u", "t", Patch(confirmed_facts=["f"], remove={"nope": ["x"]}))
    assert (await shown(memory))["confirmed_facts"] == []


async def test_a_state_above_the_bound_is_refused_and_the_old_one_stays(memory: WorkingMemory) -> None:
    await made(memory, variables={"a": "x" * 1_000_000})
    with pytest.raises(TooLarge):
        await memory.patch(WRITER, "u", "t", Patch(variables={"b": "x" * 100_000}))
    assert list((await shown(memory))["variables"]) == ["a"]


@pytest.mark.parametrize(
    "value", ["a\0b", "\ud800", float("nan"), float("inf"), 2**63, {"k\0": 1}, [[["\0"]]], object()]
)
async def test_what_can_not_be_stored_is_refused_naming_the_field(memory: WorkingMemory, value: Any) -> None:
    await made(memory)
    with pytest.raises(InvalidFields) as refused:
        await memory.patch(WRITER, "u", "t", Patch(variables={"v": value}))
    assert refused.value.errors[0].field == "variables"
    with pytest.raises(InvalidFields):
        await memory.record_step(WRITER, "u", "t", Step("ls", "success", result=value))


async def test_a_value_nested_thousands_deep_is_refused(memory: WorkingMemory) -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(InvalidFields):
        await made(memory, variables={"v": deep})


@pytest.mark.parametrize("bad", ["", " ", "\u200b", "a\0", "\ud800", "a\nb", "x" * 129])
async def test_ids_that_are_no_ids_are_refused_naming_the_field(memory: WorkingMemory, bad: str) -> None:
    with pytest.raises(InvalidFields) as refused:
        await memory.get(WRITER, "u", bad)
    assert refused.value.errors[0].field == "task_id"
    with pytest.raises(InvalidFields) as refused:
        await made(memory, user=bad)
    assert refused.value.errors[0].field == "user_id"


async def test_a_context_is_made_of_the_stored_task(memory: WorkingMemory) -> None:
    await made(memory, fields={"task_goal": "ship it"}, constraints=["no downtime"])
    built = await memory.context(WRITER, "u", "t", 100)
    assert '"ship it"' in built.text
    assert built.tokens == count_words(built.text)
    with pytest.raises(InvalidFields):
        await memory.context(WRITER, "u", "t", 0)


# Who may see what.


async def test_tasks_with_hostile_names_never_meet(memory: WorkingMemory) -> None:
    places = [(tenant, user, task) for tenant in HOSTILE[:5] for user in HOSTILE for task in HOSTILE]
    for tenant, user, task in places:
        await made(memory, task, user, Caller(tenant, "writer"), variables={"at": [tenant, user, task]})
    for tenant, user, task in places:
        answer = await shown(memory, task, user, Caller(tenant, "writer"))
        assert answer["variables"] == {"at": [tenant, user, task]}
        assert (answer["task_id"], answer["user_id"]) == (task, user)


async def test_erasing_a_user_with_a_hostile_name_takes_only_that_user(memory: WorkingMemory) -> None:
    for user in HOSTILE:
        for task in HOSTILE:
            await made(memory, task, user)
    assert await memory.delete_user("acme", "*") == len(HOSTILE)
    for user in HOSTILE:
        for task in HOSTILE:
            if user == "*":
                with pytest.raises(NotFound):
                    await shown(memory, task, user)
            else:
                assert (await shown(memory, task, user))["user_id"] == user


async def test_another_tenant_finds_nothing(memory: WorkingMemory) -> None:
    await made(memory)
    with pytest.raises(NotFound):
        await shown(memory, caller=Caller("other", "admin"))
    assert await memory.delete_user("other", "u") == 0
    await shown(memory)


async def test_a_bound_key_may_act_for_its_own_user_only(memory: WorkingMemory) -> None:
    await made(memory)
    bound = Caller("acme", "writer", user_id="v")
    for attempt in (
        memory.get(bound, "u", "t"),
        memory.delete(bound, "u", "t"),
        memory.replace(bound, "u", "t", Patch()),
        memory.patch(bound, "u", "t", Patch()),
        memory.record_step(bound, "u", "t", Step("ls", "success")),
        memory.context(bound, "u", "t"),
    ):
        with pytest.raises(Forbidden):
            await attempt
    await made(memory, user="v", caller=bound)


async def test_a_reader_reads_and_may_not_write(memory: WorkingMemory) -> None:
    reader = Caller("acme", "reader")
    await made(memory)
    assert (await shown(memory, caller=reader))["task_id"] == "t"
    for attempt in (
        memory.delete(reader, "u", "t"),
        memory.replace(reader, "u", "t", Patch()),
        memory.patch(reader, "u", "t", Patch()),
        memory.record_step(reader, "u", "t", Step("ls", "success")),
    ):
        with pytest.raises(Forbidden):
            await attempt


# Life.


async def left_ms(client: Redis, task: str = "t") -> int:
    return int(await client.pttl(TaskKey("acme", "u", task).task))


async def test_each_read_and_write_renews_the_life_that_was_chosen(memory: WorkingMemory, client: Redis) -> None:
    await made(memory, ttl_seconds=600)
    key = TaskKey("acme", "u", "t").task
    for touch in (
        lambda: memory.get(WRITER, "u", "t"),
        lambda: memory.patch(WRITER, "u", "t", Patch(constraints=["x"])),
        lambda: memory.record_step(WRITER, "u", "t", Step("ls", "success")),
        lambda: memory.context(WRITER, "u", "t"),
    ):
        await client.pexpire(key, 5_000)
        await touch()
        assert 595_000 < await left_ms(client) <= 600_000


async def test_the_answer_says_when_the_task_ends(memory: WorkingMemory, client: Redis) -> None:
    await made(memory)
    for task in (await memory.get(WRITER, "u", "t"), await memory.patch(WRITER, "u", "t", Patch(ttl_seconds=60))):
        real = (
            await left_ms(client) / 1000
            if task.state.constraints
            else (task.expires_at - datetime.now(UTC)).total_seconds()
        )
        assert abs((task.expires_at - datetime.now(UTC)).total_seconds() - real) < 2
    assert 58_000 < await left_ms(client) <= 60_000


@pytest.mark.parametrize("ttl", [0, 59, 86_401, -1])
async def test_a_life_outside_the_bounds_is_refused(memory: WorkingMemory, ttl: int) -> None:
    with pytest.raises(InvalidFields) as refused:
        await made(memory, ttl_seconds=ttl)
    assert refused.value.errors[0].field == "ttl_seconds"


async def test_a_task_whose_time_ran_out_is_gone_and_leaves_the_index(memory: WorkingMemory, client: Redis) -> None:
    await made(memory, "old")
    await made(memory, "new")
    await client.pexpire(TaskKey("acme", "u", "old").task, 1)
    await asyncio.sleep(0.05)
    with pytest.raises(NotFound):
        await shown(memory, "old")
    await client.zadd("hs:{acme:u}:wm-tasks", {"old": int(time.time() * 1000) - 1})
    await made(memory, "new")
    assert await client.zrange("hs:{acme:u}:wm-tasks", 0, -1) == [b"new"]


async def test_every_key_ends_by_itself(memory: WorkingMemory, client: Redis) -> None:
    await made(memory, confirmed_facts=[Fact("f", "memory:m1")])
    await memory.record_step(WRITER, "u", "t", Step("ls", "success"), RepeatableRequest("k", b"1"))
    keys = await client.keys("*")
    assert len(keys) == 5
    for key in keys:
        assert 0 < await client.pttl(key) <= 2 * 86_400_000


# Parallel writers.


def append_many(url: str, start: int, count: int) -> None:
    async def work() -> None:
        client = open_redis(url, timeout_s=5.0, connections_max=16)
        memory = memory_on(client)
        patches = [Patch(confirmed_facts=[f"fact {i}"], variables={f"v{i}": i}) for i in range(start, start + count)]
        await asyncio.gather(*(memory.patch(WRITER, "u", "t", patch) for patch in patches))
        await client.aclose()

    asyncio.run(work())


async def test_fifty_parallel_patches_from_two_processes_lose_nothing(memory: WorkingMemory, server: Server) -> None:
    await made(memory)
    spawner = multiprocessing.get_context("spawn")
    workers = [spawner.Process(target=append_many, args=(server.url, start, 25)) for start in (0, 25)]
    for worker in workers:
        worker.start()
    for worker in workers:
        await asyncio.to_thread(worker.join, 60)
        assert worker.exitcode == 0
    answer = await shown(memory)
    assert sorted(fact["fact"] for fact in answer["confirmed_facts"]) == sorted(f"fact {i}" for i in range(50))
    assert answer["variables"] == {f"v{i}": i for i in range(50)}


async def test_writers_that_share_no_queue_all_get_in(server: Server, client: Redis) -> None:
    """Every writer as if it were a process of its own: all meet at the compare-and-set and at the lock."""
    writers = [memory_on(client, write_attempts_max=2) for _ in range(40)]
    await made(writers[0])
    await asyncio.gather(*(w.patch(WRITER, "u", "t", Patch(constraints=[f"c{i}"])) for i, w in enumerate(writers)))
    assert len((await shown(writers[0]))["constraints"]) == 40
    assert await client.exists(TaskKey("acme", "u", "t").lock) == 0


async def test_a_writer_that_died_with_the_lock_blocks_only_for_its_lease(memory: WorkingMemory, client: Redis) -> None:
    await made(memory)
    await client.set(TaskKey("acme", "u", "t").lock, "someone who died", px=500)
    started = time.monotonic()
    await memory.patch(WRITER, "u", "t", Patch(constraints=["x"]))
    assert 0.3 < time.monotonic() - started < 3


async def test_a_writer_that_can_not_get_in_is_told_so_in_time(client: Redis) -> None:
    memory = memory_on(client, write_wait_s=0.3)
    await made(memory)
    await client.set(TaskKey("acme", "u", "t").lock, "someone else")
    with pytest.raises(StoreUnavailable):
        await memory.patch(WRITER, "u", "t", Patch(constraints=["x"]))


async def test_a_task_made_anew_is_not_taken_for_the_old_one(client: Redis) -> None:
    """A patch that read the old task must not overwrite the new one of the same name."""
    first, second = memory_on(client), memory_on(client)
    await made(first, variables={"old": 1})
    read = first._writer._store.read
    raced = False

    async def read_then_lose(*args: Any, **options: Any) -> Any:
        nonlocal raced
        answer = await read(*args, **options)
        if not raced:
            raced = True
            await second.delete(WRITER, "u", "t")
            await made(second, variables={"new": 1})
        return answer

    first._writer._store.read = read_then_lose  # type: ignore[method-assign]
    await first.patch(WRITER, "u", "t", Patch(variables={"patched": 1}))
    assert raced
    assert (await shown(second))["variables"] == {"new": 1, "patched": 1}


# Idempotency.


async def test_the_same_step_sent_twice_is_noted_once_and_answered_the_same(memory: WorkingMemory) -> None:
    await made(memory)
    step, request = Step("ls", "error", error="no"), RepeatableRequest("k", b'{"a":1}')
    first = await memory.record_step(WRITER, "u", "t", step, request)
    await memory.patch(WRITER, "u", "t", Patch(constraints=["later"]))
    again = await memory.record_step(WRITER, "u", "t", step, request)
    assert again.to_json() == first.to_json()
    assert (first.replayed, again.replayed) == (False, True)
    assert len((await shown(memory))["recent_steps"]) == 1


async def test_the_same_step_sent_many_times_at_once_is_noted_once(client: Redis) -> None:
    writers = [memory_on(client) for _ in range(20)]
    await made(writers[0])
    request = RepeatableRequest("k", b"{}")
    answers = await asyncio.gather(*(w.record_step(WRITER, "u", "t", Step("ls", "success"), request) for w in writers))
    assert len({json.dumps(answer.to_json()) for answer in answers}) == 1
    assert sum(not answer.replayed for answer in answers) == 1
    assert len((await shown(writers[0]))["tool_call_history"]) == 1


async def test_a_key_with_another_request_is_refused(memory: WorkingMemory) -> None:
    await made(memory)
    await made(memory, "other")
    await memory.record_step(WRITER, "u", "t", Step("ls", "success"), RepeatableRequest("k", b"1"))
    with pytest.raises(IdempotencyMismatch):
        await memory.record_step(WRITER, "u", "t", Step("ls", "success"), RepeatableRequest("k", b"2"))
    with pytest.raises(IdempotencyMismatch):
        await memory.record_step(WRITER, "u", "other", Step("ls", "success"), RepeatableRequest("k", b"1"))
    other_key = replace(WRITER, key_id="another API key")
    await memory.record_step(other_key, "u", "t", Step("ls", "success"), RepeatableRequest("k", b"2"))
    assert len((await shown(memory))["recent_steps"]) == 2


async def test_a_refused_step_leaves_its_key_unused(memory: WorkingMemory) -> None:
    request = RepeatableRequest("k", b"1")
    with pytest.raises(NotFound):
        await memory.record_step(WRITER, "u", "t", Step("ls", "success"), request)
    await made(memory)
    assert not (await memory.record_step(WRITER, "u", "t", Step("ls", "success"), request)).replayed


async def test_deleting_a_task_erases_kept_answers_but_a_repeat_still_does_nothing(
    memory: WorkingMemory, client: Redis
) -> None:
    request = RepeatableRequest("k", b"1")
    await made(memory, variables={"secret": "s3cret"})
    await memory.record_step(WRITER, "u", "t", Step("ls", "success"), request)
    await memory.delete(WRITER, "u", "t")
    (record,) = await client.keys("hs:{acme:u}:wm-once:*")
    assert await client.hget(record, "answer") == b""
    await made(memory)
    with pytest.raises(Gone):
        await memory.record_step(WRITER, "u", "t", Step("ls", "success"), request)
    assert (await shown(memory))["recent_steps"] == []


async def test_a_write_whose_reply_was_lost_is_not_applied_again(memory: WorkingMemory) -> None:
    """The client library repeats a command when a connection breaks; the server may have done it already."""
    await made(memory)
    script = memory._writer._store._scripts["commit"]
    calls = 0

    async def twice(**arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        await script(**arguments)
        return await script(**arguments)

    memory._writer._store._scripts["commit"] = twice  # type: ignore[assignment]
    answer = await memory.record_step(WRITER, "u", "t", Step("ls", "success"))
    assert calls == 1
    assert len(answer.state.recent_steps) == len((await shown(memory))["recent_steps"]) == 1


# Erasing.


async def test_erasing_a_user_leaves_no_key_of_it(memory: WorkingMemory, client: Redis) -> None:
    for task in ("a", "b"):
        await made(memory, task)
        await memory.record_step(WRITER, "u", task, Step("ls", "success"), RepeatableRequest(task, b"1"))
    await made(memory, user="v")
    await client.set(TaskKey("acme", "u", "a").lock, "x", px=60_000)
    assert await memory.delete_user("acme", "u") == 2
    assert await client.keys("hs:{acme:u}*") == []
    assert await memory.delete_user("acme", "u") == 0
    await shown(memory, user="v")


async def test_copies_of_a_deleted_memory_leave_all_tasks_of_its_user(memory: WorkingMemory, client: Redis) -> None:
    copied = [Fact("kept"), Fact("copied secret", "memory:ABC-1")]
    for task in ("a", "b"):
        await made(memory, task, confirmed_facts=copied)
    await made(memory, "c")
    await made(memory, user="v", confirmed_facts=copied)
    await memory.record_step(WRITER, "u", "a", Step("ls", "success"), RepeatableRequest("k", b"1"))
    await client.pexpire(TaskKey("acme", "u", "a").task, 5_000)

    assert await memory.erase_copies("acme", "u", "abc-1") == 2

    assert await left_ms(client, "a") <= 5_000
    assert [fact["fact"] for fact in (await shown(memory, "a"))["confirmed_facts"]] == ["kept"]
    assert len((await shown(memory, user="v"))["confirmed_facts"]) == 2
    with pytest.raises(Gone):
        await memory.record_step(WRITER, "u", "a", Step("ls", "success"), RepeatableRequest("k", b"1"))
    assert await memory.erase_copies("acme", "u", "abc-1") == 0


async def test_copies_of_a_shared_memory_leave_the_tasks_of_every_user(memory: WorkingMemory) -> None:
    for user in ("u", "a:b", "用户"):
        await made(memory, "t:1", user, confirmed_facts=[Fact("copied", "memory:s1")])
    await made(memory, "t:1", "u", Caller("other", "writer"), confirmed_facts=[Fact("copied", "memory:s1")])
    assert await memory.erase_copies("acme", SHARED_USER, "s1") == 3
    for user in ("u", "a:b", "用户"):
        assert (await shown(memory, "t:1", user))["confirmed_facts"] == []
    assert len((await shown(memory, "t:1", "u", Caller("other", "writer")))["confirmed_facts"]) == 1


# Faults.


async def test_a_server_without_our_scripts_gets_them(memory: WorkingMemory, client: Redis) -> None:
    await made(memory)
    await client.script_flush()
    assert (await shown(memory))["task_id"] == "t"


async def test_a_full_server_refuses_and_keeps_what_it_has(memory: WorkingMemory, client: Redis) -> None:
    await made(memory, constraints=["kept"])
    await client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable):
            await memory.patch(WRITER, "u", "t", Patch(constraints=["x"]))
        assert (await shown(memory))["constraints"] == ["kept"]
    finally:
        await client.config_set("maxmemory", 0)
    await memory.patch(WRITER, "u", "t", Patch(constraints=["x"]))


async def test_a_killed_server_is_an_error_and_comes_back_with_everything(
    memory: WorkingMemory, server: Server
) -> None:
    await made(memory, constraints=["before"])
    await asyncio.gather(*(memory.patch(WRITER, "u", "t", Patch(constraints=[f"c{i}"])) for i in range(8)))
    await asyncio.gather(*(shown(memory) for _ in range(16)))  # leaves many pooled connections to go stale
    server.kill()
    try:
        for attempt in (memory.get(WRITER, "u", "t"), memory.patch(WRITER, "u", "t", Patch(constraints=["no"]))):
            with pytest.raises(StoreUnavailable) as down:
                await attempt
            assert down.value.store == "redis"
            assert str(server.port) not in down.value.detail
    finally:
        server.start()
    answers = await asyncio.gather(*(shown(memory) for _ in range(16)))
    assert all(answer["constraints"] == ["before", *(f"c{i}" for i in range(8))] for answer in answers)


async def test_connections_that_went_stale_unnoticed_are_replaced(memory: WorkingMemory, server: Server) -> None:
    await made(memory)
    await asyncio.gather(*(shown(memory) for _ in range(16)))
    server.kill()
    server.start()
    answers = await asyncio.gather(*(memory.record_step(WRITER, "u", "t", Step("ls", "success")) for _ in range(16)))
    assert len(answers) == 16
    assert len((await shown(memory))["tool_call_history"]) == 16


async def test_acknowledged_writes_survive_a_kill_in_the_middle(memory: WorkingMemory, server: Server) -> None:
    await made(memory)
    acknowledged: list[int] = []
    refused: list[HindsightError] = []

    async def write(number: int) -> None:
        try:
            await memory.patch(WRITER, "u", "t", Patch(variables={f"v{number}": number}))
            acknowledged.append(number)
        except StoreUnavailable as error:
            refused.append(error)

    writes = [asyncio.create_task(write(i)) for i in range(300)]
    while len(acknowledged) < 50:
        await asyncio.sleep(0.001)
    server.kill()
    await asyncio.gather(*writes)
    server.start()
    kept = (await shown(memory))["variables"]
    assert refused, "the kill came too late to meet a write"
    assert {f"v{number}" for number in acknowledged} <= set(kept)


async def test_ping_tells_up_from_down(server: Server, client: Redis) -> None:
    await ping(client)
    lost = open_redis(
        f"redis://127.0.0.1:{ports.choose(None, frozenset({server.port}))}/0", timeout_s=0.5, connections_max=2
    )
    with pytest.raises(StoreUnavailable):
        await ping(lost)
    await lost.aclose()


async def test_a_server_that_hangs_is_given_up_in_time(tmp_path: Path) -> None:
    async def swallow(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        while await reader.read(1_024):
            pass

    hanging = await asyncio.start_server(swallow, "127.0.0.1", 0)
    lost = open_redis(f"redis://127.0.0.1:{hanging.sockets[0].getsockname()[1]}/0", timeout_s=0.3, connections_max=2)
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await memory_on(lost).get(WRITER, "u", "t")
    assert time.monotonic() - started < 1.5
    await lost.aclose()
    hanging.close()
