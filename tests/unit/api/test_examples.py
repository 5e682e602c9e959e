"""The examples people apply get the verdicts their comments promise."""

from pathlib import Path

import pytest
import yaml

from sojourn.catalogue import Catalogue
from sojourn.controller.registry import Registry
from sojourn.controller.review import Reviewer

EXAMPLES = Path(__file__).parents[3] / "deploy/examples"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("chat", None),
        ("gpt3", None),
        ("unstable", "Unstable: max batch 4 cannot keep up with 100/s"),
        ("oom", "WontStart: the weights of meta-llama/Llama-2-70b-hf in fp16 need"),
    ],
)
def test_an_example_gets_the_verdict_its_comment_promises(name: str, verdict: str | None) -> None:
    names = Catalogue()
    registry = Registry(names)
    profile = yaml.safe_load((EXAMPLES / "profile.yaml").read_text())
    registry.put_profile({**profile, "metadata": {**profile["metadata"], "namespace": "default"}})
    body = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    body["metadata"]["namespace"] = "default"
    reviewer = Reviewer(registry, names.gpus(), owners_of=lambda _: (), rate_of=lambda _: None)
    denial = reviewer.review(body, None).denial
    assert (denial or "").startswith(verdict or "")
    assert (denial is None) == (verdict is None)
