"""Where the control plane's programs come from. No network and no Go: fakes at both doors."""

import hashlib
import io
import re
import tarfile
from pathlib import Path

import pytest

from tests.controlplane import binaries, gobuild, programs
from tests.controlplane.download import Downloader
from tests.controlplane.errors import BinaryUnavailable, DownloadRefused
from tests.controlplane.programs import PROGRAMS, Program, Release, parse_version

BY_NAME = {program.name: program for program in PROGRAMS}
ETCD = BY_NAME["etcd"]
RELEASE = Release("https://releases.test/v1/tool", "https://releases.test/v1/sums")


class FakeHost:
    """Answers from a table of URLs and remembers what it was asked."""

    def __init__(self, **files: bytes) -> None:
        self.files = {f"https://releases.test/v1/{name}": body for name, body in files.items()}
        self.asked: list[str] = []

    def open(self, url: str) -> io.BytesIO:
        self.asked.append(url)
        if not self.files:
            raise OSError("unreachable")
        return io.BytesIO(self.files[url])


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def install(folder: Path, name: str, version: str) -> Path:
    """A program that only tells its version."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{name} Version: {version}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it: no cache, no network, no Go; PATH is ``<it>/path``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    for variable in binaries.DIRECTORY_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(binaries, "Downloader", lambda: Downloader(FakeHost().open))
    return tmp_path


def source_of_etcd(said: list[str] | None = None) -> str:
    return binaries.ensure(["etcd"], (said if said is not None else []).append)["etcd"].source


def test_directories_come_before_the_cache_and_the_cache_before_path(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(places / "path", "etcd", "3.6.0")
    assert source_of_etcd() == "PATH"
    install(binaries.cache_folder() / ETCD.key, "etcd", ETCD.version)
    assert source_of_etcd() == "cache"
    install(places / "mine", "etcd", "3.5.9")
    monkeypatch.setenv("SOJOURN_BIN", f"{places / 'empty'}:{places / 'mine'}")
    assert source_of_etcd() == "SOJOURN_BIN"
    install(places / "assets", "etcd", "3.5.8")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(places / "assets"))
    assert source_of_etcd() == "KUBEBUILDER_ASSETS"


def test_a_program_of_the_wrong_version_is_passed_over_with_a_note(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = install(places / "mine", "etcd", "3.4.2")
    install(places / "path", "etcd", "3.6.0")
    monkeypatch.setenv("SOJOURN_BIN", str(old.parent))
    said: list[str] = []
    assert source_of_etcd(said) == "PATH"
    assert said == [f"etcd: passing over {old}: version 3.4.2"]


@pytest.mark.usefixtures("places")
def test_a_program_that_cannot_be_had_names_every_attempt_and_the_remedy() -> None:
    with pytest.raises(BinaryUnavailable) as failure:
        source_of_etcd()
    text = str(failure.value)
    assert "no answer (unreachable)" in text
    assert "no `go` on PATH" in text
    assert "Install Go 1.26 or newer" in text
    assert "SOJOURN_BIN" in text


@pytest.mark.usefixtures("places")
def test_a_program_is_built_once_and_then_found(monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[str] = []

    def build(program: Program, target: Path, _say: gobuild.Say) -> float:
        builds.append(program.name)
        install(target.parent, program.name, program.version)
        return 7.0

    monkeypatch.setattr(gobuild, "build", build)
    assert [source_of_etcd() for _ in range(2)] == ["built in 7 s", "cache"]
    assert builds == ["etcd"]


@pytest.mark.usefixtures("places")
def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError, match="no such program: kubelet"):
        binaries.ensure(["etcd", "kubelet"])


@pytest.mark.parametrize(
    ("name", "found", "accepted"),
    [
        ("kube-apiserver", "1.37.0", True),
        ("kube-apiserver", "1.36.9", False),
        ("kubectl", "1.36.9", True),
        ("kubectl", "1.38.0", True),
        ("kubectl", "1.35.0", False),
        ("prometheus", "2.53.3", False),
        ("prometheus", "3.4.0", True),
        ("kwok", "0.7.0", False),
        ("etcd", "4.0.0", False),
    ],
)
def test_versions_that_serve(name: str, found: str, accepted: bool) -> None:
    assert BY_NAME[name].accepts(parse_version(found)) is accepted


@pytest.mark.parametrize(
    ("module", "version"),
    [
        ("kubernetes", f"k8s.io/kubernetes v{programs.KUBERNETES}"),
        ("etcd", f"go.etcd.io/etcd/server/v3 v{programs.ETCD}"),
        ("kwok", f"sigs.k8s.io/kwok v{programs.KWOK}"),
        (
            "prometheus",
            "github.com/prometheus/prometheus v0.{}{:02}.{}".format(
                *parse_version(programs.PROMETHEUS)
            ),
        ),
    ],
)
def test_the_go_modules_build_the_versions_that_are_stamped(module: str, version: str) -> None:
    text = (gobuild.BUILD_FOLDER / module / "go.mod").read_text()
    assert re.search(rf"^\s*(require )?{re.escape(version)}\b", text, re.MULTILINE)
    tools = re.findall(r"^(?:tool |\t)([^\s(]+)$", text, re.MULTILINE)
    assert {one.build.package for one in PROGRAMS if one.build.folder == module} == set(tools)


@pytest.mark.parametrize("sums", ["{digest}", "beef  other\n{digest} *tool\n"])
def test_a_release_with_the_published_checksum_is_installed(tmp_path: Path, sums: str) -> None:
    body = b"#!/bin/sh\n"
    host = FakeHost(tool=body, sums=sums.format(digest=sha256(body)).encode())
    Downloader(host.open).fetch(RELEASE, tmp_path / "tool")
    assert (tmp_path / "tool").read_bytes() == body
    assert (tmp_path / "tool").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["tool"]


def test_a_release_with_another_checksum_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    host = FakeHost(tool=b"tampered", sums=sha256(b"released").encode())
    with pytest.raises(DownloadRefused, match="SHA-256 is"):
        Downloader(host.open).fetch(RELEASE, tmp_path / "tool")
    assert list(tmp_path.iterdir()) == []


def test_a_release_without_a_published_checksum_is_not_even_fetched(tmp_path: Path) -> None:
    host = FakeHost(tool=b"anything", sums=b'{"assets": [{"name": "tool", "digest": null}]}')
    with pytest.raises(DownloadRefused, match="names no SHA-256 of tool"):
        Downloader(host.open).fetch(RELEASE, tmp_path / "tool")
    assert host.asked == [RELEASE.checksums]


def test_one_program_is_taken_out_of_an_archive(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, body in (("v1/readme", b"text"), ("v1/tool", b"program")):
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    archive = packed.getvalue()
    digest = f'{{"assets": [{{"name": "tool", "digest": "sha256:{sha256(archive)}"}}]}}'
    host = FakeHost(tool=archive, sums=digest.encode())
    release = Release(RELEASE.url, RELEASE.checksums, member="v1/tool")
    Downloader(host.open).fetch(release, tmp_path / "tool")
    assert (tmp_path / "tool").read_bytes() == b"program"


def test_a_silent_host_is_asked_once(tmp_path: Path) -> None:
    host = FakeHost()
    downloader = Downloader(host.open)
    for _ in range(3):
        with pytest.raises(DownloadRefused):
            downloader.fetch(RELEASE, tmp_path / "tool")
    assert len(host.asked) == 1
