"""The files of a source: those of a split on the Hugging Face hub, or files at URLs.

The hub is the one that `HF_ENDPOINT` names, and `HF_TOKEN` is sent to it. A branch is resolved to its commit, so that all
files are of one version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2

from tirjudge_harness.benchmark import HubSource
from tirjudge_harness.items import InputError

_HUB = "hf://datasets/"
"""Start of the address of a file of a data set: owner/name@revision/path follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file to download."""

    url: str
    path: PurePosixPath
    """Path below the folder of the part."""
    split: str | None = None
    """Name of the split, if the part has several."""
    size: int | None = None
    """Size in bytes. None: unknown."""
    sha256: str | None = None
    """Expected checksum. None: unknown."""
    git_sha1: str | None = None
    """Expected id of the file as a git blob. None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSource:
    """The files of a source at one revision."""

    files: tuple[RemoteFile, ...]
    revision: str
    license: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the requests, such as the token of the hub."""


def remote_source(source: HubSource) -> RemoteSource:
    """Return the files of a source.

    Raises:
        InputError: the hub cannot be reached, does not have the data set, or a package is missing.
    """
    given = (source.files,) if isinstance(source.files, str) else source.files or ()
    if given and all(file.startswith(("http://", "https://")) for file in given):
        return RemoteSource(files=tuple(_at_urls(given)), revision=source.revision, license=source.license)
    try:
        import huggingface_hub
        from datasets.exceptions import DatasetsError
    except ImportError:
        raise InputError("the Hugging Face hub needs datasets: pip install 'tirjudge[bench]'") from None
    try:
        return _on_hub(source, given, hub=huggingface_hub)
    except (OSError, ValueError, RuntimeError, DatasetsError, httpx2.HTTPError) as error:
        line = " ".join(str(error).split())[:300]
        raise InputError(
            f"{source.id}: cannot be read from the hub: {type(error).__name__}: {line}; check the network, "
            "HF_ENDPOINT (a mirror) and HF_TOKEN (for data sets with conditions)"
        ) from error


def _at_urls(urls: Sequence[str]) -> Iterator[RemoteFile]:
    """Yield files at URLs, with paths below the folder that all URLs share."""
    paths = [PurePosixPath(unquote(urlsplit(url).path)) for url in urls]
    columns = zip(*(path.parent.parts for path in paths), strict=False)
    shared = PurePosixPath(*(column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)))
    for url, path in zip(urls, paths, strict=True):
        yield RemoteFile(url=url, path=_safe(path.relative_to(shared).parts))


def _on_hub(source: HubSource, given: Sequence[str], *, hub: Any) -> RemoteSource:
    addresses = [_address(file, source=source) for file in given]
    repository, revision, _ = addresses[0] if addresses else (source.id, source.revision, "")
    api = hub.HfApi()
    info = api.dataset_info(repository, revision=revision)  # first, because it fails at once without a network
    paths = (
        {source.split: [path for *_, path in addresses]} if addresses else _paths_by_split(source, revision=info.sha)
    )
    names = [path for each in paths.values() for path in each]
    known = {one.path: one for one in api.get_paths_info(repository, names, revision=info.sha, repo_type="dataset")}
    missing = [path for path in names if path not in known]
    if missing:
        raise ValueError(f"{repository} at {info.sha} has no file {missing[0]}")
    several = source.split == "*"
    files = tuple(
        RemoteFile(
            url=hub.hf_hub_url(repository, path, repo_type="dataset", revision=info.sha),
            path=_safe(PurePosixPath(path).parts),
            split=split if several else None,
            size=known[path].size,
            sha256=None if known[path].lfs is None else known[path].lfs.sha256,
            git_sha1=known[path].blob_id if known[path].lfs is None else None,
        )
        for split, each in paths.items()
        for path in each
    )
    license = getattr(info.card_data, "license", None)
    return RemoteSource(
        files=files,
        revision=info.sha,
        license=", ".join(license) if isinstance(license, list) else license or source.license,
        headers={name: value for name, value in hub.utils.build_hf_headers().items() if name == "authorization"},
    )


def _address(file: str, *, source: HubSource) -> tuple[str, str, str]:
    """Return repository, revision and path of a file on the hub."""
    if not file.startswith(_HUB):
        return source.id, source.revision, file
    owner, name, path = file.removeprefix(_HUB).split("/", 2)
    name, _, revision = name.partition("@")
    return f"{owner}/{name}", revision or source.revision, path


def _paths_by_split(source: HubSource, *, revision: str) -> Mapping[str, Sequence[str]]:
    """Return the paths of the files of each requested split, as `datasets` finds them."""
    import datasets

    builder = datasets.load_dataset_builder(source.id, name=source.config, revision=revision)
    found = {split: [_address(file, source=source)[2] for file in files] for split, files in _files_of(builder)}
    if source.split == "*":
        return found
    if source.split not in found:
        raise ValueError(f"{source.id} has no split {source.split}, only {', '.join(found) or 'none'}")
    return {source.split: found[source.split]}


def _files_of(builder: Any) -> Iterator[tuple[str, Sequence[str]]]:
    yield from ((str(split), files) for split, files in (builder.config.data_files or {}).items())


def _safe(parts: Sequence[str]) -> PurePosixPath:
    """Return a relative path that stays below its folder.

    Raises:
        ValueError: the path has `..`, is absolute, or has a part that starts with a dot.
    """
    path = PurePosixPath(*parts)
    if path.is_absolute() or not path.parts or any(part.startswith(".") or "\\" in part for part in path.parts):
        raise ValueError(f"not a safe file name: {str(path)[:200]!r}")
    return path
