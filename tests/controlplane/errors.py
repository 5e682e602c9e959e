"""What can go wrong around the control plane.

ControlPlaneError
|-- BinaryUnavailable     no look-up, download or build gave an acceptable program
|-- DownloadRefused       a release could not be fetched, or its checksum is wrong
|-- ComponentFailed       a program ended or never became ready
`-- KubectlFailed         kubectl with check=True ended with an error
"""

from collections.abc import Sequence


class ControlPlaneError(Exception):
    """Any failure of the test harness itself, never of the code under test."""


class BinaryUnavailable(ControlPlaneError):
    def __init__(self, name: str, version: str, tried: Sequence[str]) -> None:
        self.name, self.version, self.tried = name, version, tuple(tried)
        steps = "\n".join(f"  - {step}" for step in tried)
        super().__init__(
            f"{name} {version} is not available. Tried:\n{steps}\n"
            f"Install Go 1.26 or newer (it builds {name} from the module proxy), or put {name} "
            f"{version} into a directory named by SOJOURN_BIN."
        )


class DownloadRefused(ControlPlaneError):
    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(f"{url}: {why}")


class ComponentFailed(ControlPlaneError):
    def __init__(self, component: str, what: str, log_tail: str) -> None:
        self.component, self.what, self.log_tail = component, what, log_tail
        super().__init__(f"{component} {what}. Last lines of its log:\n{log_tail}")


class KubectlFailed(ControlPlaneError):
    def __init__(self, arguments: Sequence[str], returncode: int, stderr: str) -> None:
        self.arguments, self.returncode, self.stderr = tuple(arguments), returncode, stderr
        super().__init__(f"kubectl {' '.join(arguments)} ended with {returncode}: {stderr.strip()}")
