"""Authors' own queries: escaped, enclosed, and harmless to each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn.observe import custom
from sojourn.observe.custom import TemplateRefused, Templates
from sojourn.observe.prometheus import Series
from tests.unit.observe.builders import declaration

GATEWAY = 'rate(gateway_requests_total{ns="{{namespace}}",svc="{{ name }}"}[1m])'


def test_placeholders_are_replaced() -> None:
    found = custom.render(GATEWAY, declaration("chat", "team-a"))
    assert found == 'rate(gateway_requests_total{ns="team-a",svc="chat"}[1m])'


@given(st.text(max_size=20))
def test_no_name_of_a_model_leaves_its_string(model: str) -> None:
    of = declaration(model=model)
    found = custom.render('up{model="{{model}}"}', of)
    inside = found.removeprefix('up{model="').removesuffix('"}')
    assert not set(inside) & set("\"'`\n")
    assert inside.replace("\\\\", "").count("\\") == inside.replace("\\\\", "").count("\\x")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("up) or (down", "closes nothing"),
        ("sum(up", "not closed"),
        ('up{a="b}', "not closed"),
        ("up # comment", "comment"),
        ("up{{team}}", "unknown placeholder"),
        ("  ", "empty"),
        ("u" * 3000, "longer than"),
        ("sum(up]", "closes nothing"),
    ],
)
def test_a_template_that_reaches_beyond_itself_is_refused(template: str, why: str) -> None:
    with pytest.raises(TemplateRefused, match=why):
        custom.render(template, declaration())


@pytest.mark.parametrize("template", ['up{a=")"}', "up{a='#'}", "up{a=`(`}", r'up{a="\")"}'])
def test_brackets_and_signs_inside_strings_are_text(template: str) -> None:
    assert custom.render(template, declaration()) == template


def test_a_new_template_is_tried_alone_and_then_asked_with_the_others() -> None:
    templates = Templates()
    asking = [declaration(f"s{i}", query=GATEWAY) for i in range(3)]
    first = custom.plan(asking, templates)
    assert first.alone is not None
    assert first.alone[0] == ("team-a", "s0")
    assert not first.together
    assert set(first.without) == {d.ref.key for d in asking}
    templates.passed.add(GATEWAY)
    second = custom.plan(asking, templates)
    assert second.alone is None
    assert set(second.together) == {d.ref.key for d in asking}


def test_one_new_template_is_tried_a_tick() -> None:
    asking = [declaration(f"s{i}", query=f"rate(a{i}[1m])") for i in range(3)]
    found = custom.plan(asking, Templates())
    assert found.alone is not None
    assert found.alone[0] == ("team-a", "s0")


def test_a_refused_template_is_not_sent_again_and_harms_nobody() -> None:
    templates = Templates(passed={GATEWAY}, refused={"rate(up)": "expected a range vector"})
    asking = [declaration("good", query=GATEWAY), declaration("bad", query="rate(up)")]
    found = custom.plan(asking, templates)
    assert set(found.together) == {("team-a", "good")}
    assert found.without == {("team-a", "bad"): "expected a range vector"}
    custom.plan(asking[:1], templates)
    assert not templates.refused, "a template nobody uses is forgotten"


def test_a_batch_is_bounded() -> None:
    templates = Templates(passed={GATEWAY})
    asking = [declaration(f"s{i}", query=GATEWAY) for i in range(5000)]
    found = custom.plan(asking, templates)
    size = sum(map(len, found.together.values()))
    assert custom.LARGEST_BATCH_CHARACTERS >= size > 0.9 * custom.LARGEST_BATCH_CHARACTERS
    assert len(found.together) + len(found.without) == 5000


def test_answers_are_told_apart_by_the_services_label() -> None:
    series = [
        Series({custom.SERVICE_LABEL: "team-a/chat"}, 5.0, 0.0),
        Series({custom.SERVICE_LABEL: "team-b/chat"}, 7.0, 0.0),
    ]
    assert custom.answers(series) == {("team-a", "chat"): 5.0, ("team-b", "chat"): 7.0}
