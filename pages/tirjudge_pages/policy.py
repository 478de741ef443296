"""Content security policies: what a browser may load and run on a page.

Only our own style sheet and script are allowed. Text of a stranger that became markup by a mistake of ours still could not
run a script, load a file, or send a form to another site.
"""

from __future__ import annotations

import base64
import hashlib

from tirjudge_pages.environment import SCRIPT, STYLE, asset

REPORT_PATH = "/ui/csp-report"
"""Path to which browsers report what a policy blocked."""


def _hash(name: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(asset(name)).digest()).decode()}'"


FILE_POLICY = (
    f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; img-src data:; base-uri 'none'"
)
"""Policy of a self-contained file: the style sheet and the script are allowed by their hashes."""

PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    f"report-uri {REPORT_PATH}"
)
"""Policy of a page of the server."""

PAGE_HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every page of the server. Pages have private texts, so browsers keep no copy."""
