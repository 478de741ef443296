"""HTTP client of the server of a model: vLLM, and servers with similar errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from tirjudge.errors import CheckpointError, EngineUnavailable, PromptTooLong, TirjudgeError, TurnRefused
from tirjudge.http.exchange import CONNECT_S, KEEPALIVE_S, is_refused
from tirjudge.http.trace_context import trace_headers
from tirjudge.http.workers import is_this_machine


class ServerClient:
    """HTTP client of one base URL that raises errors of this project.

    Args:
        url: URL such as `http://host:8000`.
        api_key: key for the header `Authorization`. None: no key is sent.
        timeout_s: maximum time to wait for one answer, in seconds.
        transport: httpx transport, for tests. None: the network.

    All methods raise CheckpointError for 404 and 501, PromptTooLong for a text that exceeds the context, TurnRefused for
    another request that the server rejects, and EngineUnavailable for a server that cannot be reached or fails.
    """

    def __init__(
        self, url: str, *, api_key: str | None, timeout_s: float, transport: httpx2.AsyncBaseTransport | None
    ) -> None:
        self.url = url.rstrip("/")
        self._client = httpx2.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx2.Timeout(timeout_s, connect=CONNECT_S, pool=None),
            trust_env=not is_this_machine(self.url),
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_S),
            transport=transport,
        )

    async def get(self, path: str) -> Any:
        """Return the JSON at a path; {} for an empty body."""
        return await self._send("GET", path)

    async def get_text(self, path: str) -> str:
        """Return the text at a path."""
        return (await self._response("GET", path)).text

    async def post(self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Any:
        """Post a body and return the JSON of the response; {} for an empty body."""
        return await self._send("POST", path, json=body, headers=headers)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _send(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **content: Any) -> Any:
        """Send a request and return the JSON of the response; {} for an empty body."""
        response = await self._response(method, path, headers=headers, **content)
        try:
            return response.json() if response.content else {}
        except ValueError as error:
            raise EngineUnavailable(f"{self.url}{path}: {type(error).__name__}: {error}") from error

    async def _response(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **content: Any
    ) -> httpx2.Response:
        headers = {**trace_headers(), **(headers or {})}
        try:
            response = await self._client.request(method, path, headers=headers, **content)
        except (httpx2.HTTPError, ValueError) as error:
            message = f"{self.url}{path}: {type(error).__name__}: {error}"
            if is_refused(error):
                message = f"{self.url} cannot be reached: connection refused; start the server there, or check the URL"
            failure = EngineUnavailable(message)
            raise failure.logged_as(f"{self.url}{path}: {type(error).__name__}") from error
        if not response.is_success:
            raise _error_of(response, url=f"{self.url}{path}")
        return response


@contextmanager
def reading_answer(url: str, *, server: str = "vLLM") -> Iterator[None]:
    """Raise EngineUnavailable if a response lacks a field or has one of the wrong type.

    Args:
        url: URL of the request, for the message.
        server: name of the server software, for the message.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError) as error:
        failure = EngineUnavailable(f"{url}: not {server}'s answer: {error!r}")
        raise failure.logged_as(f"{url}: not {server}'s answer: {type(error).__name__}") from error


def _error_of(response: httpx2.Response, *, url: str) -> TirjudgeError:
    """Convert an error response. The body from vLLM is {"error": {"message", "type", "param", "code"}}."""
    try:
        error = response.json()["error"]
        message, param = str(error["message"]), error.get("param")
    except (ValueError, KeyError, TypeError):
        message, param = " ".join(response.text[:500].split()), None
    said = f"{url}: HTTP {response.status_code}"
    if response.status_code == 400 and (param in ("input_tokens", "input_text") or "context length" in message):
        return PromptTooLong(f"{url}: {message}").logged_as(said)
    if response.status_code in (404, 501):
        return CheckpointError(f"{url}: {message}").logged_as(said)
    if response.status_code == 413:
        return PromptTooLong(f"{url}: HTTP 413: {message}").logged_as(said)
    if response.status_code in (400, 422):
        return TurnRefused(f"{url}: HTTP {response.status_code}: {message}").logged_as(said)
    return EngineUnavailable(f"{url}: HTTP {response.status_code}: {message}").logged_as(said)
