"""The door to Prometheus: every way of going wrong is one error with a plain reason."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sojourn.errors import MetricsUnavailable
from sojourn.observe.evidence import Evidence, add_answer
from sojourn.observe.prometheus import PrometheusSource, QueryRefused, Series
from sojourn.observe.queries import Question
from sojourn.observe.settings import PrometheusSettings, ScrapeSettings
from tests.unit.observe.fake_prometheus import FakePrometheus, Reply, document, vector

CASES = json.loads(
    (Path(__file__).parents[2] / "data" / "metrics_samples" / "prom_api_cases.json").read_text()
)
AT_S = 1_790_000_005.0


@asynccontextmanager
async def source(url: str, **settings: Any) -> AsyncIterator[PrometheusSource]:
    door = PrometheusSource(PrometheusSettings(url, **settings))
    try:
        yield door
    finally:
        door.close()


async def ask(url: str, expression: str = "up", **settings: Any) -> list[Series]:
    async with source(url, **settings) as door:
        return await door.query(expression, AT_S)


def outcome(case: Any, prometheus: FakePrometheus) -> Any:
    """Values by pod as the evidence holds them, or the error, or the pods that are not usable."""
    text = case.get("text")
    prometheus.answer = lambda _: (
        Reply(case["http"], text.encode())
        if text is not None
        else document(case["body"], case["http"])
    )
    try:
        series = asyncio.run(ask(prometheus.url))
    except MetricsUnavailable as error:
        return error
    evidence = Evidence(case.get("now", CASES["now"]))
    add_answer(evidence, Question.KV_USAGE, series, ScrapeSettings())
    usable = {}
    for (namespace, pod), value in evidence.values(Question.KV_USAGE.value).items():
        fresh = not evidence.has("stale", (namespace, pod))
        if math.isfinite(value) and value >= 0 and fresh:
            usable[f"{namespace}/{pod}"] = value
    return usable


@pytest.mark.parametrize("case", CASES["cases"], ids=[c["name"] for c in CASES["cases"]])
def test_each_published_answer_is_a_value_unknown_or_an_error(
    case: Any, prometheus: FakePrometheus
) -> None:
    found, expected = outcome(case, prometheus), case["expect"]
    if isinstance(expected, dict):
        assert found == expected
    elif expected == "12 once, not 24":
        assert found == {"team-a/llm-0": 12.0}
    elif "partial" in expected or expected == "unavailable":
        assert isinstance(found, MetricsUnavailable)
        assert not isinstance(found, QueryRefused)
    elif expected.startswith(("error", "configuration error")):
        assert isinstance(found, MetricsUnavailable)
    else:
        # Unknown: nothing usable; a clamp of derived rates is the signals' business.
        assert found == {}


def test_a_refused_query_says_what_the_server_said(prometheus: FakePrometheus) -> None:
    body = {"status": "error", "errorType": "bad_data", "error": 'parse error near "rate"'}
    prometheus.answer = lambda _: document(body, 400)
    with pytest.raises(QueryRefused, match='answered 400: parse error near "rate"'):
        asyncio.run(ask(prometheus.url))


def test_each_query_carries_its_own_time_and_a_server_time_out(prometheus: FakePrometheus) -> None:
    """FC-031: nothing is frozen at import."""
    asyncio.run(ask(prometheus.url, timeout_s=5.0))
    asked = prometheus.asked[0]
    assert asked.path == "/api/v1/query"
    assert float(asked.parameters["time"]) == AT_S
    assert asked.parameters["timeout"] == "4000ms"


def test_a_path_in_the_address_and_a_trailing_slash_are_kept_and_dropped(
    prometheus: FakePrometheus,
) -> None:
    asyncio.run(ask(f"{prometheus.url}/select/0/prometheus/"))
    assert prometheus.asked[0].path == "/select/0/prometheus/api/v1/query"


def test_tenant_headers_and_parameters_are_sent(prometheus: FakePrometheus) -> None:
    headers, parameters = (("X-Scope-OrgID", "team"),), (("partial_response", "false"),)
    asyncio.run(ask(prometheus.url, headers=headers, parameters=parameters))
    assert prometheus.asked[0].headers["x-scope-orgid"] == "team"
    assert prometheus.asked[0].parameters["partial_response"] == "false"


def test_a_long_query_travels_in_the_body(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda _: vector(({"pod": "a"}, 1))
    expression = " or ".join(["up"] * 2000)
    assert len(asyncio.run(ask(prometheus.url, expression))) == 1
    assert prometheus.asked[0].method == "POST"
    assert prometheus.queries == [expression]


def test_a_rotated_token_is_used_at_the_next_query(
    prometheus: FakePrometheus, tmp_path: Path
) -> None:
    token = tmp_path / "token"

    async def twice() -> None:
        async with source(prometheus.url, bearer_token_file=token, threads=1) as door:
            token.write_text("first\n")
            await door.query("up", AT_S)
            token.write_text("second\n")
            await door.query("up", AT_S)

    asyncio.run(twice())
    assert [a.headers["authorization"] for a in prometheus.asked] == [
        "Bearer first",
        "Bearer second",
    ]


def test_a_missing_token_file_is_named_as_the_reason(
    prometheus: FakePrometheus, tmp_path: Path
) -> None:
    with pytest.raises(MetricsUnavailable, match="credentials cannot be read: No such file"):
        asyncio.run(ask(prometheus.url, bearer_token_file=tmp_path / "none"))
    assert prometheus.asked == []


def test_neither_netrc_nor_a_redirect_gets_our_credentials(
    prometheus: FakePrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password wrong\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "token").write_text("ours")
    elsewhere = (("Location", f"{prometheus.url}/elsewhere"),)
    prometheus.answer = lambda _: Reply(302, headers=elsewhere)
    with pytest.raises(MetricsUnavailable, match="302"):
        asyncio.run(ask(prometheus.url, bearer_token_file=tmp_path / "token"))
    assert [(a.path, a.headers["authorization"]) for a in prometheus.asked] == [
        ("/api/v1/query", "Bearer ours")
    ]


def test_no_text_of_an_error_holds_a_credential(prometheus: FakePrometheus, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret")
    token, headers = tmp_path / "token", (("X-Scope-OrgID", "s3cret-tenant"),)
    replies = iter((Reply(401, b"no"), Reply(200, b"<html>"), Reply(503, b"busy")))
    prometheus.answer = lambda _: next(replies)
    for _ in range(3):
        with pytest.raises(MetricsUnavailable) as caught:
            asyncio.run(ask(prometheus.url, bearer_token_file=token, headers=headers))
        assert "s3cret" not in f"{caught.value} {caught.value.__cause__!r}"


@pytest.mark.parametrize("url", ["http://user:pw@host:9090", "ftp://host", "prometheus:9090", ""])
def test_an_address_with_credentials_or_without_a_scheme_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"credentials|address") as caught:
        PrometheusSettings(url)
    assert "pw" not in str(caught.value)


def test_a_refused_connection_names_the_host_and_the_reason() -> None:
    """FC-032."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(MetricsUnavailable, match=rf"127.0.0.1:{port} .*: connection refused"):
        asyncio.run(ask(f"http://127.0.0.1:{port}"))


def test_a_name_that_does_not_resolve_says_so() -> None:
    with pytest.raises(MetricsUnavailable, match="its name does not resolve"):
        asyncio.run(ask("http://prometheus.invalid:9090"))


def test_a_server_error_costs_one_request_and_no_pause(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda _: Reply(503, b"busy", (("Retry-After", "30"),))
    started_s = time.monotonic()
    with pytest.raises(MetricsUnavailable, match="answered 503"):
        asyncio.run(ask(prometheus.url))
    assert time.monotonic() - started_s < 2
    assert len(prometheus.asked) == 1


def test_a_server_that_drips_bytes_ends_at_the_time_limit(prometheus: FakePrometheus) -> None:
    prometheus.answer = lambda _: Reply(body=b" " * 2000, drip_s=0.05)
    started_s = time.monotonic()
    with pytest.raises(MetricsUnavailable, match=r"did not answer within 0\.3 s"):
        asyncio.run(ask(prometheus.url, timeout_s=0.3))
    assert time.monotonic() - started_s < 3


def test_a_hanging_server_blocks_neither_the_loop_nor_later_queries_for_ever(
    prometheus: FakePrometheus,
) -> None:
    let_go = threading.Event()
    prometheus.answer = lambda _: Reply(body=b"{}", hang=let_go)

    async def scenario() -> tuple[list[str], int, list[Series]]:
        async with source(prometheus.url, timeout_s=0.4, threads=2) as door:
            beats = 0

            async def beat() -> None:
                nonlocal beats
                while True:
                    await asyncio.sleep(0.02)
                    beats += 1

            heart = asyncio.create_task(beat())
            results = await asyncio.gather(
                *(door.query("up", AT_S) for _ in range(6)), return_exceptions=True
            )
            heart.cancel()
            assert len(prometheus.asked) <= 6, "a silence is not asked again"
            let_go.set()
            prometheus.answer = lambda _: vector(({"pod": "a"}, 1))
            for _ in range(200):
                try:
                    answer = await door.query("up", AT_S)
                    break
                except MetricsUnavailable:
                    await asyncio.sleep(0.02)
            return [str(r) for r in results], beats, answer

    reasons, beats, answer = asyncio.run(scenario())
    assert all("did not answer" in r or "owes answers" in r for r in reasons)
    assert beats > 20, "the loop kept running while the server hung"
    assert len(answer) == 1


def test_a_cancelled_query_leaves_the_door_usable(prometheus: FakePrometheus) -> None:
    let_go = threading.Event()
    prometheus.answer = lambda _: Reply(body=b"{}", hang=let_go)

    async def scenario() -> int:
        async with source(prometheus.url, timeout_s=5, threads=2) as door:
            task = asyncio.create_task(door.query("up", AT_S))
            while not prometheus.asked:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            prometheus.answer = lambda _: vector(({"pod": "a"}, 1))
            answer = await door.query("up", AT_S)
            let_go.set()
            return len(answer)

    assert asyncio.run(scenario()) == 1


def test_the_servers_clock_is_compared_with_ours(prometheus: FakePrometheus) -> None:
    """FC-141: ages of samples mean nothing between clocks that disagree."""

    async def skew_s() -> float:
        async with source(prometheus.url) as door:
            await door.query("up", AT_S)
            return door.clock_skew_s

    assert abs(asyncio.run(skew_s())) < 3
    prometheus.shift_s = 90
    assert asyncio.run(skew_s()) == pytest.approx(90, abs=3)


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "1e400", "-3", "abc", ""])
def test_no_value_that_is_no_number_passes_as_one(prometheus: FakePrometheus, text: str) -> None:
    """FC-003."""
    prometheus.answer = lambda _: vector(({"pod": "a"}, text))
    (series,) = asyncio.run(ask(prometheus.url))
    assert not math.isfinite(series.value) or series.value < 0
