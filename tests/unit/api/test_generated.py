"""What ``make generate`` writes and ``make verify`` compares."""

import shutil
from pathlib import Path

import pytest
import yaml

from deploy import generate, rbac
from deploy.chart_webhook import chart_webhook
from deploy.runtime_lock import runtime_lock

ROOT = Path(__file__).parents[3]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with nothing generated in it."""
    shutil.copytree(ROOT / "deploy/examples", tmp_path / "deploy/examples")
    shutil.copytree(ROOT / "deploy/base", tmp_path / "deploy/base")
    shutil.copytree(ROOT / "deploy/overlays", tmp_path / "deploy/overlays")
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    return tmp_path


def test_the_first_line_names_the_command() -> None:
    for path, text in generate.files().items():
        assert "`make generate`" in text.splitlines()[0], path


def test_writing_twice_changes_nothing_the_second_time(copy: Path) -> None:
    assert copy.exists()
    assert generate.write() > 0
    assert generate.write() == 0
    assert generate.differences() == ""


def test_an_edited_or_missing_file_is_shown_as_a_diff(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generate.write()
    crd = copy / "crds/serving.sojourn.dev_inferenceservices.yaml"
    crd.write_text(crd.read_text().replace("infsvc", "isvc"))
    (copy / "docs/reference/reasons.md").unlink()
    monkeypatch.setattr("sys.argv", ["generate.py", "--check"])
    assert generate.main() == 1
    shown = capsys.readouterr().out
    assert "-      - isvc" in shown or "-    - isvc" in shown
    assert "+# Reasons" in shown


def test_the_chart_and_the_base_carry_the_same_definitions() -> None:
    files = generate.files()
    for path in files:
        if path.startswith("crds/serving"):
            template = files[f"charts/sojourn/templates/{path}"].splitlines()
            bare = [one for one in template if not one.startswith(("{{", "#"))]
            chart, base = yaml.safe_load("\n".join(bare)), yaml.safe_load(files[path])
            assert chart["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
            assert chart == base


def test_a_name_the_chart_cannot_replace_is_refused() -> None:
    base = (ROOT / "deploy/base/webhook.yaml").read_text()
    with pytest.raises(ValueError, match="no template for 'path: /sojourn-webhook'"):
        chart_webhook(base.replace("path: /validate\n", "path: /sojourn-webhook\n"), "true")


def roles() -> list[dict[str, object]]:
    return [r for r in yaml.safe_load_all(rbac.render(generate.BASE_NAMES)) if "rules" in r]


def test_no_right_is_a_wildcard() -> None:
    text = rbac.render(generate.BASE_NAMES)
    assert "*" not in text
    assert len(roles()) == 4


def test_the_only_secrets_it_may_read_are_its_certificate() -> None:
    rights = [*rbac.cluster_rights(generate.BASE_NAMES), *rbac.own_rights(generate.BASE_NAMES)]
    reading = [r for r in rights if "secrets" in r.resources and set(r.verbs) != {"create"}]
    assert [r.names for r in reading] == [("sojourn-webhook-tls",)]
    assert not [r for r in rbac.cluster_rights(generate.BASE_NAMES) if "secrets" in r.resources]


def test_replicas_are_written_through_the_scale_subresource_only() -> None:
    rights = rbac.cluster_rights(generate.BASE_NAMES)
    assert not [r for r in rights if "update" in r.verbs or "delete" in r.verbs]
    scale = [r for r in rights if "deployments/scale" in r.resources]
    assert [r.verbs for r in scale] == [("get", "patch")]


LOCK = """\
# header
kopf==1.0 \\
    --hash=sha256:aa
    # via sojourn (pyproject.toml)
aiohttp==3.0 \\
    --hash=sha256:bb
    # via
    #   kopf
    #   sojourn (pyproject.toml:dev)
pytest==9.0 \\
    --hash=sha256:cc
    # via sojourn (pyproject.toml:dev)
matplotlib==3.0 \\
    --hash=sha256:dd
    # via sojourn (pyproject.toml)
pillow==1.0 \\
    --hash=sha256:ee
    # via matplotlib
"""


def test_the_image_gets_what_runs_and_neither_tests_nor_figures() -> None:
    kept = runtime_lock(LOCK)
    assert [line.split("==")[0] for line in kept.splitlines() if "==" in line] == [
        "kopf",
        "aiohttp",
    ]
    assert "sha256:bb" in kept
