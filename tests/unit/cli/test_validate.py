"""``sojourn validate`` as a shell or a pipeline calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sojourn.cli.main import app
from tests.integration.operators import service, unstable

PROGRAM = str(Path(sys.executable).parent / "sojourn")
EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"

DEPLOYMENT = """
# Source: chart/templates/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
spec:
  template:
    spec:
      containers:
        - name: engine
          image: vllm/vllm-openai:v0.17.0
          args: [--max-model-len=$(LENGTH)]
          envFrom:
            - configMapRef: {name: engine}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: engine}
data: {LENGTH: "131072"}
---
---
apiVersion: serving.sojourn.dev/v1alpha1
kind: InferenceService
metadata: {name: chat}
spec:
  model: {name: meta-llama/Llama-3.1-8B-Instruct, maxLength: 4096}
  gpu: {type: A10G}
  slo: {latency: 30s}
  traffic: {peakRate: 1}
  scaleTargetRef: {name: chat}
  scaling: {minReplicas: 1, maxReplicas: 2}
"""


@dataclass(frozen=True)
class Answer:
    """What a shell sees."""

    returncode: int
    stdout: str
    stderr: str


def shell(*arguments: str, given: str = "") -> Answer:
    """The installed program; half a second a call."""
    command = [PROGRAM, "validate", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


def validated(*arguments: str, given: str = "") -> Answer:
    """The same command inside this process."""
    result = CliRunner().invoke(app, ["validate", *arguments], input=given)
    return Answer(result.exit_code, result.stdout, result.stderr)


def piped(*bodies: dict[str, Any], form: str = "text") -> Answer:
    text = yaml.safe_dump_all(bodies, sort_keys=False)
    return validated("-f", "-", "-o", form, given=text)


def test_good_manifests_exit_with_0_bad_ones_with_1_unreadable_ones_with_2(tmp_path: Path) -> None:
    good, bad = EXAMPLES / "gpt3.yaml", EXAMPLES / "unstable.yaml"
    assert shell("-f", str(good)).returncode == 0
    assert shell("-f", str(good), "-f", str(bad)).returncode == 1
    missing = shell("-f", str(tmp_path / "nowhere.yaml"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "does not exist" in missing.stderr
    template = shell("-f", "-", given="a: {{ .Values.x }}\n b")
    assert template.returncode == 2
    assert "helm template" in template.stderr


def test_people_see_object_place_field_and_message() -> None:
    answer = validated("-f", str(EXAMPLES / "unstable.yaml"))
    lines = answer.stdout.splitlines()
    assert lines[0].startswith("REJECT   InferenceService default/unstable")
    assert "unstable.yaml:" in lines[0]
    assert "REJECT Unstable  spec.engine.maxBatchSize.max (line " in lines[1]
    assert lines[2].strip().startswith("max batch 4 cannot keep up with 100/s")
    assert lines[-1] == "1 object: 1 rejected"


def test_a_line_number_is_the_field_s_own() -> None:
    text = (EXAMPLES / "unstable.yaml").read_text()
    answer = validated("-f", str(EXAMPLES / "unstable.yaml"), "-o", "json")
    (one,) = json.loads(answer.stdout)["objects"]
    line = text.splitlines()[one["findings"][0]["line"] - 1]
    assert "max" in line


def test_programs_get_numbers_apart_from_words() -> None:
    (one,) = json.loads(piped(unstable("bad"), form="json").stdout)["objects"]
    numbers = one["findings"][0]["numbers"]
    assert numbers["utilisation"] == pytest.approx(1.3)
    assert yaml.safe_load(piped(unstable("bad"), form="yaml").stdout)["objects"] == [one]


def test_code_scanning_gets_sarif() -> None:
    content = json.loads(piped(unstable("bad"), service("good"), form="sarif").stdout)
    (run,) = content["runs"]
    (result,) = run["results"]
    assert (content["version"], result["level"], result["ruleId"]) == (
        "2.1.0",
        "error",
        "Unstable",
    )
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["Unstable"]


def test_a_pull_request_gets_annotations() -> None:
    (line,) = piped(unstable("bad"), form="github").stdout.splitlines()
    assert line.startswith("::error file=<standard input>,line=")
    assert "title=Unstable%3A InferenceService default/bad::max batch 4" in line


def test_warnings_fail_only_when_asked(tmp_path: Path) -> None:
    body = service("quiet")
    del body["spec"]["traffic"]
    file = tmp_path / "quiet.json"
    file.write_text(json.dumps(body))
    assert validated("-f", str(file)).returncode == 0
    assert validated("-f", str(tmp_path), "--strict").returncode == 1


def test_the_example_of_the_readme_would_be_stored() -> None:
    blocks = (EXAMPLES.parents[1] / "README.md").read_text().split("```yaml\n")[1:]
    bodies = [block.partition("```")[0] for block in blocks if "kind: InferenceService" in block]
    assert bodies
    answer = validated("-f", "-", given="---\n".join(bodies))
    assert answer.returncode == 0, answer.stdout


def test_a_list_is_opened() -> None:
    answer = piped({"apiVersion": "v1", "kind": "List", "items": [service("a"), unstable("b")]})
    assert answer.returncode == 1
    assert "2 objects: 1 rejected, 1 good" in answer.stdout


def test_a_deployment_in_the_same_stream_is_read_for_its_flags() -> None:
    answer = validated("-f", "-", given=DEPLOYMENT)
    assert answer.returncode == 1
    assert "REJECT   Deployment default/chat" in answer.stdout
    assert "one request of 131072 tokens" in answer.stdout
    assert "InferenceService default/chat" in answer.stdout


MOUNTED = DEPLOYMENT.replace(
    "args: [--max-model-len=$(LENGTH)]",
    "args: [--config, /etc/v.yaml]\n"
    "          volumeMounts: [{name: v, mountPath: /etc/v.yaml, subPath: v.yaml}]",
).replace(
    "      containers:", "      volumes: [{name: v, configMap: {name: engine}}]\n      containers:"
)


def test_a_config_file_in_a_config_map_of_the_same_stream_is_read() -> None:
    given = MOUNTED.replace('{LENGTH: "131072"}', '{v.yaml: "max-model-len: 128K"}')
    answer = validated("-f", "-", given=given)
    assert answer.returncode == 1
    assert "one request of 131072 tokens" in answer.stdout


def test_a_config_map_that_is_not_among_the_files_is_named() -> None:
    answer = validated("-f", "-", given=MOUNTED.replace("metadata: {name: engine}", "metadata: {}"))
    assert "OK       Deployment default/chat" in answer.stdout
    assert "NOTE ArgumentUnreadable" in answer.stdout
    assert "set by the ConfigMap engine, which is not among the files" in answer.stdout


@pytest.mark.parametrize(("grace", "warned"), [(None, True), (60, True), (3600, False)])
def test_the_grace_of_a_deployment_in_the_same_stream_is_compared_with_the_longest_answers(
    grace: int | None, warned: bool
) -> None:
    line = f"      terminationGracePeriodSeconds: {grace}\n" if grace else ""
    answer = validated("-f", "-", given=MOUNTED.replace("      volumes:", f"{line}      volumes:"))
    assert ("WARN GraceTooShort" in answer.stdout) is warned, answer.stdout


def test_the_younger_of_two_services_on_one_target_is_warned() -> None:
    second = service("other")
    second["spec"]["scaleTargetRef"] = {"name": "good"}
    answer = piped(service("good"), second)
    assert answer.returncode == 0
    assert answer.stdout.count("WARN TargetConflict") == 1  # the older one keeps its target


def test_a_bypassed_object_passes_and_is_called_so() -> None:
    body = unstable("known")
    body["metadata"]["annotations"] = {"serving.sojourn.dev/admission-bypass": "trial"}
    answer = piped(body)
    assert answer.returncode == 0
    assert answer.stdout.startswith("BYPASSED InferenceService default/known")


def test_other_kinds_are_passed_over() -> None:
    answer = piped({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}})
    assert answer.returncode == 0
    assert answer.stdout.startswith("No InferenceService")
