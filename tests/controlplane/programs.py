"""The programs of the control plane: which version, where released, how built.

One entry per program. To move to another Kubernetes: change KUBERNETES here, the versions in
``build/kubernetes/go.mod`` (v1.N.P and staging v0.N.P), run ``go mod tidy`` there.
"""

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

KUBERNETES = "1.37.2"  # the minor of the pinned Python client `kubernetes`
ETCD = "3.7.3"  # the minor that Kubernetes 1.37 is released with
KWOK = "0.8.0"  # the first with jq expressions in the fields that stages.yaml uses
PROMETHEUS = "3.16.0"  # module version v0.316.0

Version = tuple[int, int, int]
Accepts = Callable[[Version], bool]


@dataclass(frozen=True)
class Release:
    """An official release file and the file that holds its SHA-256.

    Attributes:
        checksums: URL of a text of ``digest`` or ``digest  file`` lines, or of GitHub's JSON
            description of a release, whose assets carry a digest.
        member: path inside a tar archive; empty when the file is the program itself.
    """

    url: str
    checksums: str
    member: str = ""


@dataclass(frozen=True)
class GoBuild:
    """How to build with Go: the folder under ``build/`` and the package named by its go.mod."""

    folder: str
    package: str
    stamps: tuple[tuple[str, str], ...] = ()  # (variable, value) for the linker
    tags: str = ""


@dataclass(frozen=True)
class Program:
    name: str
    version: str  # without v
    accepts: Accepts  # which versions found on this machine serve as well
    build: GoBuild
    release: Release | None
    version_arguments: tuple[str, ...] = field(default=("--version",))

    @property
    def key(self) -> str:
        """Folder of this program in the user cache; changes with version and platform."""
        return f"{self.build.folder}-v{self.version}-{operating_system()}-{architecture()}"


def operating_system() -> str:
    """Go's name of this operating system, "linux" or "darwin"."""
    return sys.platform


def architecture() -> str:
    """Go's name of this processor architecture, "amd64" or "arm64"; others as Python names them."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def parse_version(text: str) -> Version:
    """(major, minor, patch) of "v1.37.2", "3.16.0" or "0.8.0"; a suffix such as -rc.0 is dropped.

    Raises:
        ValueError: the text is not a version of three numbers.
    """
    major, minor, patch = text.removeprefix("v").split("-")[0].split("+")[0].split(".")
    return int(major), int(minor), int(patch)


def within_minors(wanted: str, distance: int) -> Accepts:
    """Accepts the wanted major with a minor at most ``distance`` away."""
    major, minor, _ = parse_version(wanted)
    return lambda found: found[0] == major and abs(found[1] - minor) <= distance


def from_version(least: str) -> Accepts:
    """Accepts the same major from the given version on."""
    lowest = parse_version(least)
    return lambda found: found[0] == lowest[0] and found >= lowest


def _kubernetes(name: str, minors: int, version_arguments: tuple[str, ...]) -> Program:
    major, minor, _ = parse_version(KUBERNETES)
    values = {
        "gitVersion": f"v{KUBERNETES}",
        "gitMajor": str(major),
        "gitMinor": str(minor),
        "gitTreeState": "archive",
    }
    # Unstamped, the server reports v0.0.0-master, and clients and CEL version gates misbehave.
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    stamps = tuple(
        (f"{package}.{key}", value) for package in packages for key, value in values.items()
    )
    url = (
        f"https://dl.k8s.io/release/v{KUBERNETES}/bin/{operating_system()}/{architecture()}/{name}"
    )
    # Kubernetes releases its servers for Linux only, kubectl for every platform.
    released = operating_system() == "linux" or name == "kubectl"
    return Program(
        name=name,
        version=KUBERNETES,
        accepts=within_minors(KUBERNETES, minors),
        build=GoBuild("kubernetes", f"k8s.io/kubernetes/cmd/{name}", stamps),
        release=Release(url, f"{url}.sha256") if released else None,
        version_arguments=version_arguments,
    )


def _etcd() -> Program:
    base = f"https://github.com/etcd-io/etcd/releases/download/v{ETCD}"
    stem = f"etcd-v{ETCD}-{operating_system()}-{architecture()}"
    # Only the Linux archive is a tar; the others are zip files and are built instead.
    release = Release(f"{base}/{stem}.tar.gz", f"{base}/SHA256SUMS", f"{stem}/etcd")
    return Program(
        name="etcd",
        version=ETCD,
        accepts=from_version("3.5.0"),
        build=GoBuild("etcd", "go.etcd.io/etcd/server/v3"),
        release=release if operating_system() == "linux" else None,
    )


def _kwok() -> Program:
    repository = "kubernetes-sigs/kwok"
    asset = f"kwok-{operating_system()}-{architecture()}"
    return Program(
        name="kwok",
        version=KWOK,
        accepts=from_version(KWOK),
        build=GoBuild(
            "kwok",
            "sigs.k8s.io/kwok/cmd/kwok",
            (("sigs.k8s.io/kwok/pkg/consts.Version", f"v{KWOK}"),),
        ),
        release=Release(
            f"https://github.com/{repository}/releases/download/v{KWOK}/{asset}",
            f"https://api.github.com/repos/{repository}/releases/tags/v{KWOK}",
        ),
    )


def _prometheus() -> Program:
    base = f"https://github.com/prometheus/prometheus/releases/download/v{PROMETHEUS}"
    stem = f"prometheus-{PROMETHEUS}.{operating_system()}-{architecture()}"
    return Program(
        name="prometheus",
        version=PROMETHEUS,
        accepts=from_version("3.0.0"),
        build=GoBuild(
            "prometheus",
            "github.com/prometheus/prometheus/cmd/prometheus",
            (("github.com/prometheus/common/version.Version", PROMETHEUS),),
            # File and HTTP discovery stay; the clouds' client libraries are most of the build.
            tags="netgo,remove_all_sd",
        ),
        release=Release(f"{base}/{stem}.tar.gz", f"{base}/sha256sums.txt", f"{stem}/prometheus"),
    )


# Small builds first: a broken tool chain shows within a minute, not after ten.
PROGRAMS: tuple[Program, ...] = (
    _etcd(),
    _kubernetes("kube-apiserver", 0, ("--version",)),
    _kubernetes("kubectl", 1, ("version", "--client")),
    _kwok(),
    _kubernetes("kube-controller-manager", 0, ("--version",)),
    _kubernetes("kube-scheduler", 0, ("--version",)),
    _prometheus(),
)
