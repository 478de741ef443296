"""`/v1/files`: input and output files of batches, and rows of evals."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from tirjudge.http.protocol import invalid, shown
from tirjudge_server.openai.bodies import DeletedFile, FileObject, FilePage
from tirjudge_server.openai.filestore import BATCH_FILE_DAYS, FileStore, StoredFile, Upload
from tirjudge_server.openai.pages import FilesQuery, listed, page, query_parameters
from tirjudge_server.openai.wire import parsed
from tirjudge_server.openapi import error_responses
from tirjudge_web.errors import Refused

FILES_PATH = "/v1/files"
MAX_FILE_BYTES = 200 * 1024 * 1024
"""Maximum size of a file; OpenAI's limit for batches."""

_FORM_BYTES = 16 * 1024
"""Allowance for the multipart form around a file."""

MIN_LIFETIME_S, MAX_LIFETIME_S = 3600, 2_592_000
"""Shortest and longest lifetime of a file: one hour and thirty days."""

_FORM = {
    "type": "object",
    "properties": {
        "file": {
            "type": "string",
            "format": "binary",
            "description": f"The file: one JSON object per line. At most {MAX_FILE_BYTES // 1024**2} MiB.",
        },
        "purpose": {
            "type": "string",
            "enum": ["batch", "evals"],
            "description": "`batch`: requests of a batch. `evals`: rows of runs of evals.",
        },
        "expires_after[anchor]": {
            "type": "string",
            "enum": ["created_at"],
            "description": "The lifetime begins when the file is uploaded. Ignored without `expires_after[seconds]`.",
        },
        "expires_after[seconds]": {
            "type": "integer",
            "minimum": MIN_LIFETIME_S,
            "maximum": MAX_LIFETIME_S,
            "description": f"Seconds until the file is deleted. Default: {BATCH_FILE_DAYS} days.",
        },
    },
    "required": ["file", "purpose"],
}
"""OpenAPI schema of an upload."""

_CONTENT = {
    "description": "The bytes of the file.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
"""OpenAPI response with the content of a file."""


def router(store: FileStore, *, max_file_bytes: int = MAX_FILE_BYTES) -> APIRouter:
    """Return the endpoints.

    Args:
        store: Holds the files.
        max_file_bytes: Maximum size of a file. A larger one is refused with 413.
    """
    routes = APIRouter()

    @routes.post(
        FILES_PATH,
        response_model=FileObject,
        responses=error_responses({413: "The file is too large.", 429: "The caller has too many files."}),
        openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}},
    )
    async def upload(request: Request) -> dict[str, object]:
        """Upload a file for batches or evals."""
        owner = owner_of(request)
        with store.receiving(owner, num_bytes=_declared_bytes(request, max_bytes=max_file_bytes)) as held:
            form = await _form(request, max_bytes=max_file_bytes, held=held)
            try:
                # In a thread, because writing to the disk blocks.
                return (await asyncio.to_thread(_stored, form, store=store, owner=owner, upload=held)).shown()
            finally:
                await form.close()

    @routes.get(FILES_PATH, openapi_extra={"parameters": query_parameters(FilesQuery)}, response_model=FilePage)
    async def list_files(request: Request) -> dict[str, object]:
        """List the caller's files, newest first."""
        query = parsed(dict(request.query_params), FilesQuery)
        files = [file for file in store.of(owner_of(request)) if query.purpose in (None, file.purpose)]
        if query.order == "desc":
            files.reverse()
        found, has_more = page(files, after=query.after, limit=query.limit, id_of=lambda file: file.id)
        return listed([file.shown() for file in found], has_more=has_more)

    @routes.get(FILES_PATH + "/{file_id}", response_model=FileObject)
    async def retrieve(request: Request, file_id: str) -> dict[str, object]:
        """Return the metadata of a file."""
        return store.get(file_id, owner=owner_of(request)).shown()

    @routes.get(FILES_PATH + "/{file_id}/content", response_class=FileResponse, responses={200: _CONTENT})
    async def content(request: Request, file_id: str) -> Response:
        """Return the content of a file."""
        file = store.get(file_id, owner=owner_of(request))
        return FileResponse(store.path(file.id), media_type="application/octet-stream")

    @routes.delete(
        FILES_PATH + "/{file_id}",
        response_model=DeletedFile,
        responses=error_responses({409: "An unfinished batch or run reads the file."}),
    )
    async def delete(request: Request, file_id: str) -> dict[str, object]:
        """Delete a file. A file that an unfinished batch or run reads cannot be deleted."""
        file = store.get(file_id, owner=owner_of(request))
        if store.is_read(file):
            message = f"file: {shown(file_id)} is read by a batch or run that has not ended; cancel it first"
            raise Refused(invalid(message, param="file_id", code="file_in_use"))
        store.remove(file.id)
        return {"id": file.id, "object": "file", "deleted": True}

    return routes


def owner_of(request: Request) -> str | None:
    """Return the name of the caller's API key. None: no key."""
    return getattr(request.state, "caller", None)


def _declared_bytes(request: Request, *, max_bytes: int) -> int:
    """Return the Content-Length of an upload. 0: unknown.

    Raises:
        Refused: 413, the upload is too large.
    """
    declared = request.headers.get("content-length", "")
    num_bytes = int(declared) if declared.isdecimal() else 0
    if num_bytes > max_bytes + _FORM_BYTES:
        raise _too_large(f"{num_bytes}", max_bytes=max_bytes)
    return num_bytes


def _too_large(given: str, *, max_bytes: int) -> Refused:
    message = f"file: {given} bytes exceed the limit of {max_bytes}; split the file"
    return Refused(invalid(message, param="file", code="file_too_large"), status=413)


async def _form(request: Request, *, max_bytes: int, held: Upload) -> FormData:
    """Parse the multipart form of an upload. Files are spooled to disk.

    Raises:
        Refused: The upload is too large (413), or is not a form.
    """
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise _malformed("expected: multipart/form-data with the parts `file` and `purpose`")
    stream = _bounded(request, max_bytes=max_bytes, held=held)
    try:
        return await MultiPartParser(request.headers, stream, max_files=1, max_fields=16).parse()
    except _Broken as error:
        raise error.cause from None
    except (MultiPartException, KeyError) as error:
        raise _malformed(f"invalid multipart/form-data: {error}") from error


class _Broken(MultiPartException):
    """The stream of an upload broke. Derived from the parser's error type, so that the parser closes its temporary files."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def _bounded(request: Request, *, max_bytes: int, held: Upload) -> AsyncGenerator[bytes, None]:
    num_bytes = 0
    try:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > max_bytes:
                raise _too_large(f"more than {max_bytes}", max_bytes=max_bytes)
            held.hold(num_bytes)
            yield chunk
    except (Refused, ClientDisconnect) as error:
        raise _Broken(error) from error


def _stored(form: FormData, *, store: FileStore, owner: str | None, upload: Upload) -> StoredFile:
    """Store the file of an upload.

    Raises:
        Refused: A part of the form is missing or invalid.
    """
    given, purpose = form.get("file"), form.get("purpose")
    if not isinstance(given, UploadFile):
        raise Refused(invalid("file: not given", param="file", code="missing"))
    if isinstance(purpose, UploadFile) or (purpose != "batch" and purpose != "evals"):
        message = f'purpose: {shown(purpose)} given; expected: "batch" or "evals"'
        raise Refused(invalid(message, param="purpose", code="invalid_value"))
    anchor, seconds = form.get("expires_after[anchor]"), form.get("expires_after[seconds]")
    if anchor not in (None, "created_at"):
        message = f'expires_after.anchor: {shown(anchor)} given; expected: "created_at"'
        raise Refused(invalid(message, param="expires_after.anchor", code="invalid_value"))
    lifetime_s = None if seconds is None else lifetime(seconds, param="expires_after")
    file_id = store.new_id()
    try:
        with store.open_new(file_id) as target:
            shutil.copyfileobj(given.file, target)
    except OSError:
        store.remove(file_id)
        raise
    name = given.filename or "upload.jsonl"
    return store.add(file_id, filename=name, purpose=purpose, owner=owner, lifetime_s=lifetime_s, upload=upload)


def lifetime(seconds: object, *, param: str) -> int:
    """Parse the lifetime of a file in seconds.

    Args:
        seconds: The value as given.
        param: Field that holds it, for error messages.

    Raises:
        Refused: The value is not an integer between `MIN_LIFETIME_S` and `MAX_LIFETIME_S`.
    """
    text = str(seconds)
    if (
        not text.isdecimal()
        or len(text) > len(str(MAX_LIFETIME_S))
        or not MIN_LIFETIME_S <= int(text) <= MAX_LIFETIME_S
    ):
        message = f"{param}.seconds: {shown(seconds)} given; expected: {MIN_LIFETIME_S} to {MAX_LIFETIME_S}"
        raise Refused(invalid(message, param=param, code="invalid_value"))
    return int(text)


def _malformed(why: str) -> Refused:
    return Refused(invalid(f"body: {why}", param="body", code="invalid_body"))
