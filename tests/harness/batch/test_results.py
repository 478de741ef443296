from __future__ import annotations

import pytest

from tirjudge.errors import DeadlineExceeded, EngineUnavailable, PromptTooLong, SandboxBusy, TirjudgeError
from tirjudge.http.exchange import RequestRefused, ServerUnavailable
from tirjudge.http.protocol import invalid
from tirjudge_harness.batch.results import ErrorKind, RequestImpossible, kind_of


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PromptTooLong("9"), ErrorKind.REFUSED),
        (RequestImpossible("no sandbox"), ErrorKind.REFUSED),
        (RequestRefused(invalid("model: x", param="model", code="model_not_found")), ErrorKind.REFUSED),
        (DeadlineExceeded("late"), ErrorKind.DEADLINE),
        (EngineUnavailable("gone"), ErrorKind.UNAVAILABLE),
        (SandboxBusy("full", retry_after_s=1.0), ErrorKind.UNAVAILABLE),
        (ServerUnavailable("gone"), ErrorKind.UNAVAILABLE),
        (TirjudgeError("something new"), ErrorKind.UNAVAILABLE),
    ],
)
def test_only_refused_requests_are_not_retried(error: TirjudgeError, kind: ErrorKind) -> None:
    assert kind_of(error) is kind
    assert kind.may_pass == (kind is not ErrorKind.REFUSED)
