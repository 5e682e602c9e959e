"""Fetch an official release into the cache, trusted only after its SHA-256 was checked."""

import hashlib
import json
import shutil
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tests.controlplane.errors import DownloadRefused
from tests.controlplane.programs import Release

CONNECT_TIMEOUT_S = 5.0  # a host that is silent for longer is treated as unreachable
CHUNK_BYTES = 1 << 20

Open = Callable[[str], IO[bytes]]


def open_url(url: str) -> IO[bytes]:
    """Body of an HTTPS resource.

    Raises:
        OSError: no connection within CONNECT_TIMEOUT_S, or an HTTP error status.
    """
    response: IO[bytes] = urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT_S)
    return response


class Downloader:
    """Downloads releases; a host that did not answer once is not asked again."""

    def __init__(self, opener: Open = open_url) -> None:
        self._open = opener
        self._unreachable: set[str] = set()

    def fetch(self, release: Release, target: Path) -> float:
        """Place the released program at ``target``, executable; returns the seconds it took.

        Args:
            target: its folder must exist; replaced atomically, so it is never half written.

        Raises:
            DownloadRefused: unreachable, or the file does not match the published checksum.
        """
        began_s = time.monotonic()
        file_name = release.url.rsplit("/", 1)[1]
        published = find_digest(self._read(release.checksums), file_name)
        if published is None:
            raise DownloadRefused(release.checksums, f"names no SHA-256 of {file_name}")
        # The archive and the program lie beside the target: a rename is atomic on one file system.
        archive = target.with_name(f".{target.name}.download")
        unpacked = target.with_name(f".{target.name}.unpacked")
        try:
            digest = self._save(release.url, archive)
            if digest != published:
                raise DownloadRefused(release.url, f"SHA-256 is {digest}, published {published}")
            if release.member:
                _extract(archive, release.member, unpacked)
            else:
                archive.replace(unpacked)
            unpacked.chmod(0o755)
            unpacked.replace(target)
        finally:
            archive.unlink(missing_ok=True)
            unpacked.unlink(missing_ok=True)
        return time.monotonic() - began_s

    def _connect(self, url: str) -> IO[bytes]:
        host = urllib.parse.urlsplit(url).netloc
        if host in self._unreachable:
            raise DownloadRefused(url, f"{host} did not answer before")
        try:
            return self._open(url)
        except urllib.error.HTTPError as error:
            error.close()
            raise DownloadRefused(url, f"HTTP {error.code}") from error
        except OSError as error:
            self._unreachable.add(host)
            raise DownloadRefused(url, f"no answer ({error})") from error

    def _read(self, url: str) -> bytes:
        with self._connect(url) as body:
            return body.read()

    def _save(self, url: str, path: Path) -> str:
        digest = hashlib.sha256()
        try:
            with self._connect(url) as body, path.open("wb") as file:
                while chunk := body.read(CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
        except OSError as error:
            raise DownloadRefused(url, f"the transfer broke ({error})") from error
        return digest.hexdigest()


def find_digest(published: bytes, file_name: str) -> str | None:
    """SHA-256 of a file in a checksum text or in GitHub's JSON of a release; None if not named.

    >>> find_digest(b"aa  other\\n0f  kwok", "kwok")
    '0f'
    >>> find_digest(b"0f", "kube-apiserver")
    '0f'
    """
    text = published.decode()
    if text.lstrip().startswith("{"):
        for asset in json.loads(text).get("assets", ()):
            if asset["name"] == file_name and (asset.get("digest") or "").startswith("sha256:"):
                return str(asset["digest"]).removeprefix("sha256:")
        return None
    rows = [line.split() for line in text.splitlines() if line.strip()]
    if len(rows) == 1 and len(rows[0]) == 1:
        return rows[0][0]
    named = [row[0] for row in rows if len(row) == 2 and row[1].lstrip("*") == file_name]
    return named[0] if named else None


def _extract(archive: Path, member: str, target: Path) -> None:
    with tarfile.open(archive) as tar:
        source = tar.extractfile(member)
        if source is None:
            raise DownloadRefused(archive.name, f"{member} in the archive is not a file")
        with source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
