"""Does the language model's client get along with real servers, and distrust what they say?"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from memory_service.errors import LanguageModelBadAnswer, LanguageModelUnavailable, SetupRefused
from memory_service.models.language import ChatModel, open_language_model
from memory_service.models.language_answers import UnusableAnswer
from memory_service.models.language_endpoint import LanguageModelResting
from memory_service.models.language_settings import LanguageConfig, LanguageNumbers, language_config
from memory_service.settings import Settings
from tests.unit.models.language_server import Answer, Endpoint, language_server, saying

CONFIG = Path(__file__).parents[3] / "config" / "memory.toml"
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "weight": {"type": "number", "minimum": 0, "maximum": 1},
        "names": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    },
    "required": ["colour", "weight", "names"],
    "additionalProperties": False,
}
GOOD = {"colour": "red", "weight": 0.5, "names": ["a"]}
SECRET = "sk-very-secret"


def numbers(**changes: Any) -> LanguageNumbers:
    shipped = LanguageNumbers(**tomllib.loads(CONFIG.read_text(encoding="utf-8"))["language"])
    quick = {"attempt_timeout_s": 2.0, "deadline_s": 8.0, "retry_base_s": 0.01, "retry_s_max": 0.02}
    return shipped.model_copy(update={**quick, **changes})


@asynccontextmanager
async def chat(url: str, **changes: Any) -> AsyncIterator[ChatModel]:
    model = ChatModel(LanguageConfig(url, "some-model", SECRET), numbers(**changes))
    try:
        yield model
    finally:
        await model.close()


async def ask(
    model: ChatModel, purpose: str = "test", user: str = "say something", schema: dict[str, object] = SCHEMA
) -> dict[str, Any]:
    return await model.complete_json(system="You answer.", user=user, schema=schema, purpose=purpose)


async def answered(*script: Answer, **changes: Any) -> tuple[dict[str, Any], Endpoint]:
    async with language_server(*script) as endpoint, chat(endpoint.url, **changes) as model:
        return await ask(model), endpoint


async def refused(error: type[Exception], *script: Answer, **changes: Any) -> tuple[Any, Endpoint]:
    async with language_server(*script) as endpoint, chat(endpoint.url, **changes) as model:
        with pytest.raises(error) as caught:
            await ask(model)
        return caught.value, endpoint


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


# What is sent.


async def test_one_question_is_one_request_with_key_model_messages_and_schema() -> None:
    found, endpoint = await answered(saying(GOOD))
    assert found == GOOD
    (request,) = endpoint.requests
    assert endpoint.paths == ["/v1/chat/completions"]
    assert endpoint.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert request["model"] == "some-model"
    assert [m["role"] for m in request["messages"]] == ["system", "user"]
    assert request["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "test", "strict": True, "schema": SCHEMA},
    }
    assert (request["stream"], request["max_tokens"], request["temperature"]) == (False, 2048, 0.0)


async def test_a_base_url_may_be_the_whole_address_and_carry_a_query() -> None:
    async with language_server(saying(GOOD)) as endpoint:
        for tail in ("", "/", "/chat/completions"):
            async with chat(endpoint.url + tail) as model:
                assert await ask(model) == GOOD
        async with chat(endpoint.url + "?api-version=7") as model:
            assert await ask(model) == GOOD
    assert endpoint.paths == ["/v1/chat/completions"] * 3 + ["/v1/chat/completions?api-version=7"]


async def test_lone_surrogates_in_a_question_do_not_break_it() -> None:
    async with language_server(saying(GOOD)) as endpoint, chat(endpoint.url) as model:
        assert await ask(model, user="half \ud83d a pair") == GOOD
    assert endpoint.requests[0]["messages"][1]["content"] == "half ? a pair"


# Servers that take less.

NO_FORMAT = Answer(
    status=400, body=b'{"error": {"message": "response_format is not supported", "param": "response_format"}}'
)


async def test_a_server_without_json_schema_is_asked_more_simply_and_that_is_remembered() -> None:
    async with language_server(NO_FORMAT, NO_FORMAT, then=saying(GOOD)) as endpoint, chat(endpoint.url) as model:
        assert await ask(model) == GOOD
        assert await ask(model) == GOOD
    kinds = [r.get("response_format", {}).get("type") for r in endpoint.requests]
    assert kinds == ["json_schema", "json_schema", "json_object", "json_object"]
    bare = endpoint.requests[1]["response_format"]["json_schema"]["schema"]
    assert bare["properties"]["weight"] == {"type": "number"}
    assert '"colour"' in endpoint.requests[2]["messages"][0]["content"]  # the schema is told when it can't be enforced


async def test_a_server_without_any_response_format_is_asked_in_words() -> None:
    async with (
        language_server(NO_FORMAT, NO_FORMAT, NO_FORMAT, then=saying(GOOD)) as endpoint,
        chat(endpoint.url) as model,
    ):
        assert await ask(model) == GOOD
        assert await ask(model) == GOOD
    assert ["response_format" in r for r in endpoint.requests] == [True, True, True, False, False]


async def test_a_reasoning_model_that_refuses_max_tokens_and_temperature_is_asked_as_it_likes() -> None:
    async with (
        language_server(
            Answer(
                status=400,
                body=b'{"error": {"message": "Unsupported parameter: use max_completion_tokens", "param": "max_tokens"}}',
            ),
            Answer(status=400, body=b'{"error": {"message": "temperature does not support 0.0"}}'),
            then=saying(GOOD),
        ) as endpoint,
        chat(endpoint.url) as model,
    ):
        assert await ask(model) == GOOD
    last = endpoint.requests[-1]
    assert (last["max_completion_tokens"], "max_tokens" in last, "temperature" in last) == (2048, False, False)
    assert last["response_format"]["type"] == "json_schema"


async def test_a_request_that_is_refused_in_every_shape_is_unavailable_and_changes_nothing_for_the_next() -> None:
    async with (
        language_server(*[Answer(status=400, body=b"context too long")] * 4, then=saying(GOOD)) as endpoint,
        chat(endpoint.url) as model,
    ):
        with pytest.raises(LanguageModelUnavailable, match="400"):
            await ask(model)
        assert await ask(model) == GOOD
    assert endpoint.requests[-1]["response_format"]["type"] == "json_schema"


# What is said.


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"Sure! Here is the JSON you asked for:\n{json.dumps(GOOD)}\nLet me know if you need more.",
        f"```json\n{json.dumps(GOOD, indent=2)}\n```",
        f"Here:\n```\n{json.dumps(GOOD)}\n```\nDone.",
        f"<think>maybe {json.dumps({**GOOD, 'colour': 'blue'})}? no</think>\n{json.dumps(GOOD)}",
        f"Use {{braces}} like this: {json.dumps(GOOD)}",
        f'An example first: {{"colour": "green"}}, and now the answer: {json.dumps(GOOD)}',
        json.dumps({**GOOD, "extra": 1}),
        [{"type": "text", "text": json.dumps(GOOD)}],
    ],
    ids=["bare", "prose", "fence", "plain fence", "thoughts", "braces", "two objects", "extra key", "parts"],
)
async def test_the_object_is_found_in_whatever_the_model_wraps_it_in(text: Any) -> None:
    found, endpoint = await answered(Answer(text))
    assert found == GOOD
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "first",
    [
        Answer("I would rather not."),
        Answer(""),
        Answer(None),
        Answer(json.dumps(GOOD)[:-10]),
        Answer(json.dumps(GOOD), finish="length"),
        Answer("[1, 2]"),
        Answer("42"),
        saying({}),
        saying({**GOOD, "colour": "green"}),
        saying({**GOOD, "weight": "heavy"}),
        saying({**GOOD, "weight": True}),
        saying({**GOOD, "names": None}),
        Answer('{"colour": "red", "weight": NaN, "names": []}'),
        Answer('{"colour": "red", "weight": 1e999, "names": []}'),
        Answer('{"colour":' * 3000),
    ],
    ids=lambda a: str(a.text)[:30] + (a.finish or ""),
)
async def test_an_answer_that_does_not_fit_is_sent_back_once_with_what_is_wrong(first: Answer) -> None:
    found, endpoint = await answered(first, saying(GOOD))
    assert found == GOOD
    assert len(endpoint.requests) == 2
    roles = [m["role"] for m in endpoint.requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert "can't be used" in endpoint.requests[1]["messages"][3]["content"]


async def test_a_model_that_never_fits_is_given_up_after_one_repair_and_its_best_answer_is_kept() -> None:
    error, endpoint = await refused(UnusableAnswer, saying({**GOOD, "colour": "green"}), Answer("no idea"))
    assert isinstance(error, LanguageModelBadAnswer)
    assert len(endpoint.requests) == 2
    assert error.answer == {**GOOD, "colour": "green"}
    assert "green" not in error.detail


async def test_a_repair_that_fails_leaves_the_first_answer() -> None:
    error, _ = await refused(UnusableAnswer, saying({**GOOD, "colour": "green"}), Answer(status=500), attempts_max=1)
    assert error.answer["weight"] == 0.5


async def test_a_refusal_by_the_filter_is_not_argued_with() -> None:
    _, endpoint = await refused(UnusableAnswer, Answer("", finish="content_filter"))
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(("said", "kept"), [(1e15, 1), (-3, 0), (10**400, 1), (0.25, 0.25)])
async def test_numbers_are_clamped_because_grammars_do_not_bound_them(said: float, kept: float) -> None:
    found, _ = await answered(saying({**GOOD, "weight": said}))
    assert found["weight"] == kept


async def test_lists_are_cut_and_what_no_store_takes_is_replaced() -> None:
    found, _ = await answered(
        Answer('{"colour": "red", "weight": 0, "names": ["\\ud83d", "a\\u0000b", "\\ud83d\\ude00", "d", "e"]}')
    )
    assert found["names"] == ["\ufffd", "a\ufffdb", "😀"]


async def test_a_schema_that_can_not_be_checked_is_a_mistake_of_the_caller() -> None:
    async with language_server(saying(GOOD)) as endpoint, chat(endpoint.url) as model:
        with pytest.raises(ValueError, match="pattern"):
            await ask(model, schema={"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}})
    assert endpoint.requests == []


# Bad days.


@pytest.mark.parametrize(
    "broken",
    [
        *(Answer(status=status, body=b"<html>") for status in (408, 429, 500, 502, 503, 504)),
        Answer(json.dumps(GOOD), breaks_off_at=20), Answer(json.dumps(GOOD), breaks_off_at=0), Answer(hangs=True),
    ],
    ids=lambda a: f"{a.status} {a.breaks_off_at} {a.hangs}",
)  # fmt: skip
async def test_a_passing_failure_is_tried_again(broken: Answer) -> None:
    found, endpoint = await answered(broken, saying(GOOD), attempt_timeout_s=0.6)
    assert found == GOOD
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404])
async def test_a_refusal_is_not_tried_again_and_not_followed(status: int) -> None:
    _, endpoint = await refused(
        LanguageModelUnavailable, Answer(status=status, body=b"no", headers={"location": "/elsewhere"})
    )
    assert len(endpoint.requests) == 1


async def test_attempts_end_and_the_error_names_neither_address_nor_key() -> None:
    error, endpoint = await refused(LanguageModelUnavailable, Answer(status=503))
    assert len(endpoint.requests) == numbers().attempts_max
    assert "503" in error.detail
    assert "127.0.0.1" not in error.detail
    assert SECRET not in error.detail


async def test_retry_after_in_seconds_and_as_a_date_is_waited_for() -> None:
    for in_seconds in (True, False):
        date = format_datetime(
            datetime.now(UTC) + timedelta(seconds=3), usegmt=True
        )  # in whole seconds: 2 to 3 s from now
        header = "1" if in_seconds else date
        _, endpoint = await answered(Answer(status=429, headers={"retry-after": header}), saying(GOOD))
        assert 0.9 <= endpoint.at[1] - endpoint.at[0] < 4.0


async def test_a_retry_after_beyond_the_deadline_is_not_waited_for_and_the_endpoint_is_left_alone() -> None:
    started = time.monotonic()
    async with (
        language_server(Answer(status=429, headers={"retry-after": "3600"})) as endpoint,
        chat(endpoint.url) as model,
    ):
        with pytest.raises(LanguageModelUnavailable, match="429"):
            await ask(model)
        with pytest.raises(LanguageModelResting) as resting:
            await ask(model)
    assert len(endpoint.requests) == 1
    assert time.monotonic() - started < 1.0
    assert 100 < (resting.value.retry_after_s or 0) <= 120


@pytest.mark.parametrize("header", ["soon", "-5", "1e9", "9" * 40, "Mon, 99 Foo 2026"])
async def test_an_unreadable_retry_after_counts_as_none(header: str) -> None:
    found, _ = await answered(Answer(status=503, headers={"retry-after": header}), saying(GOOD))
    assert found == GOOD


@pytest.mark.parametrize("slow", [Answer(hangs=True), Answer(json.dumps(GOOD), drips=True)], ids=["silent", "dripping"])
async def test_a_slow_server_is_given_up_within_the_deadline(slow: Answer) -> None:
    started = time.monotonic()
    error, _ = await refused(LanguageModelUnavailable, slow, attempt_timeout_s=0.6, deadline_s=0.9)
    assert "in time" in error.detail
    assert time.monotonic() - started < 2.0


async def test_nobody_there_is_unavailable() -> None:
    async with language_server() as endpoint:
        pass
    async with chat(endpoint.url) as model:
        with pytest.raises(LanguageModelUnavailable, match="reached"):
            await ask(model)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"<html>login please</html>", headers={"content-type": "text/html"}),
        Answer(body=b""),
        Answer(body=b"null"),
        Answer(body=b'{"error": {"message": "overloaded"}}'),
        Answer(body=b'{"choices": []}'),
        Answer(body=b'{"choices": [{"message": "x"}]}'),
        Answer(body=b'{"choices": [{"text": "x"}]}'),
        Answer(body=b"\xff\xfe\x00"),
        Answer(body=b"[" * 200_000),
        Answer(body=b"x" * 2_000_000),
        Answer(json.dumps(GOOD), headers={"content-encoding": "gzip"}),
    ],
    ids=lambda a: str(a.body)[:30],
)
async def test_what_is_no_chat_completion_is_a_bad_answer_and_never_a_crash(answer: Answer) -> None:
    _, endpoint = await refused(LanguageModelBadAnswer, answer)
    assert len(endpoint.requests) == 1


async def test_json_under_a_wrong_content_type_is_taken() -> None:
    found, _ = await answered(saying(GOOD, headers={"content-type": "text/plain; charset=latin-1"}))
    assert found == GOOD


async def test_a_huge_answer_is_not_read_to_its_end() -> None:
    endless = Answer(body=b"y" * 1_100_000, headers={"content-length": "900000000000"})
    error, endpoint = await refused(LanguageModelBadAnswer, endless)
    assert "far more" in error.detail
    assert len(endpoint.requests) == 1


# Breaker, bounds, rate.


async def test_after_failures_in_a_row_a_dead_endpoint_is_left_alone_and_tried_again_later() -> None:
    async with (
        language_server(*[Answer(status=500)] * 4, then=saying(GOOD)) as endpoint,
        chat(endpoint.url, attempts_max=2, breaker_rest_s=0.3) as model,
    ):
        for _ in range(2):
            with pytest.raises(LanguageModelUnavailable):
                await ask(model)
        started = time.monotonic()
        with pytest.raises(LanguageModelResting):
            await ask(model)
        assert time.monotonic() - started < 0.1
        assert len(endpoint.requests) == 4
        await asyncio.sleep(0.35)
        assert await ask(model) == GOOD


async def test_after_the_rest_one_request_tries_while_the_others_are_turned_away() -> None:
    slow = saying(GOOD, slow_s=0.2)
    async with (
        language_server(Answer(status=500), then=slow) as endpoint,
        chat(endpoint.url, attempts_max=1, breaker_failures_max=1, breaker_rest_s=0.1) as model,
    ):
        with pytest.raises(LanguageModelUnavailable):
            await ask(model)
        await asyncio.sleep(0.15)
        results = await asyncio.gather(*(ask(model) for _ in range(5)), return_exceptions=True)
        assert results.count(GOOD) == 1
        assert sum(isinstance(r, LanguageModelResting) for r in results) == 4
        assert await ask(model) == GOOD


async def test_bad_answers_do_not_trip_the_breaker() -> None:
    async with (
        language_server(*[Answer("prose")] * 8, then=saying(GOOD)) as endpoint,
        chat(endpoint.url, breaker_failures_max=2) as model,
    ):
        for _ in range(4):
            with pytest.raises(UnusableAnswer):
                await ask(model)
        assert await ask(model) == GOOD


async def test_no_more_requests_than_slots_are_in_flight_and_a_full_queue_turns_away() -> None:
    async with (
        language_server(saying(GOOD, slow_s=0.1)) as endpoint,
        chat(endpoint.url, concurrent_requests_max=2, waiting_calls_max=4) as model,
    ):
        results = await asyncio.gather(*(ask(model) for _ in range(10)), return_exceptions=True)
    assert endpoint.most_at_once == 2
    assert results.count(GOOD) == 6
    assert sum(isinstance(r, LanguageModelUnavailable) for r in results) == 4


async def test_a_caller_who_walks_away_frees_the_slot_at_once() -> None:
    async with (
        language_server(Answer(hangs=True), then=saying(GOOD)) as endpoint,
        chat(
            endpoint.url, concurrent_requests_max=1, attempt_timeout_s=20.0, deadline_s=20.0, breaker_failures_max=1
        ) as model,
    ):
        waiting = asyncio.create_task(ask(model))
        while not endpoint.requests:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        started = time.monotonic()
        assert await ask(model) == GOOD
        assert time.monotonic() - started < 1.0


async def test_a_caller_who_walks_away_from_the_trying_request_does_not_keep_the_others_out() -> None:
    async with (
        language_server(Answer(status=500), Answer(hangs=True), then=saying(GOOD)) as endpoint,
        chat(endpoint.url, attempts_max=1, breaker_failures_max=1, breaker_rest_s=0.1) as model,
    ):
        with pytest.raises(LanguageModelUnavailable):
            await ask(model)
        await asyncio.sleep(0.15)
        trying = asyncio.create_task(ask(model))
        while len(endpoint.requests) < 2:
            await asyncio.sleep(0.01)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
        assert await ask(model) == GOOD


async def test_requests_per_minute_are_kept_and_a_turn_that_comes_too_late_is_refused() -> None:
    async with (
        language_server(saying(GOOD)) as endpoint,
        chat(
            endpoint.url, requests_per_minute=150, rate_burst_s=0.8, deadline_s=1.0, concurrent_requests_max=16
        ) as model,
    ):
        started = asyncio.get_running_loop().time()
        results = await asyncio.gather(*(ask(model) for _ in range(8)), return_exceptions=True)
    good = results.count(GOOD)
    assert 3 <= good <= 5
    assert sum(isinstance(r, LanguageModelUnavailable) for r in results) == 8 - good
    # Two go at once and each further one 0.4 s later; a busy machine only adds to that.
    for number, at in enumerate(sorted(endpoint.at)):
        assert at - started >= 0.4 * (number - 1) - 0.05


async def test_tokens_per_minute_are_counted_as_the_server_counts_them() -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": 100}
    async with (
        language_server(saying(GOOD, usage=usage)) as endpoint,
        chat(endpoint.url, tokens_per_minute=60_000, rate_burst_s=0.1) as model,
    ):
        for _ in range(2):
            await ask(model)
    assert endpoint.at[1] - endpoint.at[0] >= 0.7


# What operators see.


async def test_calls_tokens_cost_and_time_are_counted_by_purpose() -> None:
    async with (
        language_server(saying(GOOD), Answer("prose"), saying(GOOD), then=Answer(status=500)) as endpoint,
        chat(
            endpoint.url, price_in_per_million_tokens=2.0, price_out_per_million_tokens=10.0, breaker_failures_max=3
        ) as model,
    ):
        await ask(model, "counting")
        await ask(model, "counting")
        with pytest.raises(LanguageModelUnavailable):
            await ask(model, "counting")
        with pytest.raises(LanguageModelResting):
            await ask(model, "counting")
    outcomes = {
        o: counted("hindsight_language_calls_total", purpose="counting", outcome=o)
        for o in ("ok", "repaired", "unavailable", "skipped")
    }
    assert outcomes == {"ok": 1, "repaired": 1, "unavailable": 1, "skipped": 1}
    assert counted("hindsight_language_tokens_total", purpose="counting", direction="in") == 300
    assert counted("hindsight_language_tokens_total", purpose="counting", direction="out") == 60
    assert counted("hindsight_language_cost_total", purpose="counting") == pytest.approx((300 * 2 + 60 * 10) / 1e6)
    assert counted("hindsight_language_seconds_count", purpose="counting") == 3


@pytest.mark.parametrize(
    "usage", [None, "many", {"prompt_tokens": -5, "completion_tokens": 10**30}, {"prompt_tokens": True}, {}]
)
async def test_nonsense_in_usage_counts_as_nothing(usage: Any) -> None:
    before = counted("hindsight_language_tokens_total", purpose="test", direction="in")
    await answered(saying(GOOD, usage=usage))
    assert counted("hindsight_language_tokens_total", purpose="test", direction="in") == before


async def test_no_log_line_holds_contents_address_or_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "memory_service")
    async with (
        language_server(
            NO_FORMAT, Answer("the-said-word"), *[Answer(status=500, body=b"the-said-word")] * 9
        ) as endpoint,
        chat(endpoint.url) as model,
    ):
        for _ in range(3):
            with pytest.raises((LanguageModelUnavailable, LanguageModelBadAnswer)):
                await ask(model, user="the-asked-word")
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("memory_service")]
    assert lines
    for word in ("the-said-word", "the-asked-word", SECRET, "127.0.0.1"):
        assert not any(word in line for line in lines)


# Settings.


def settings(**values: str) -> Settings:
    return Settings(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [{}, {"llm_base_url": ""}, {"llm_base_url": "  ", "llm_model": "m"}])
def test_without_an_endpoint_there_is_no_language_model(values: dict[str, str]) -> None:
    assert open_language_model(language_config(settings(**values)), numbers()) is None


@pytest.mark.parametrize(
    "config",
    [
        LanguageConfig("http://localhost/v1", ""),
        LanguageConfig("localhost:11434", "m"),
        LanguageConfig("ftp://host/v1", "m"),
        LanguageConfig("http://", "m"),
        LanguageConfig("http://me:s3cret@host/v1", "m"),
        LanguageConfig("http://[nonsense-s3cret", "m"),
        LanguageConfig("http://host/v1", "m", "s3cret\nx"),
    ],
    ids=lambda c: c.base_url,
)
def test_settings_that_can_not_be_right_refuse_the_start_without_showing_secrets(config: LanguageConfig) -> None:
    with pytest.raises(SetupRefused, match="HINDSIGHT_LLM") as refusal:
        open_language_model(config, numbers())
    assert "s3cret" not in str(refusal.value)
    assert "s3cret" not in repr(LanguageConfig("http://host", "m", "s3cret"))


def test_the_shipped_deadline_ends_before_the_gateway_gives_up() -> None:
    tables = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    assert (
        tables["language"]["attempt_timeout_s"]
        <= tables["language"]["deadline_s"]
        <= tables["reading"]["deadline_s"]
        < 30
    )
