"""The Forge port on GitHub's REST API."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, cast

from fleet.errors import Failed, InvalidInput, Unavailable
from fleet.ports.forge import Draft, PullRequest

SECONDS = 30.0
MOST_BYTES = 4 << 20
_REMOTE = re.compile(
    r"^(?:[\w+.-]+://(?:[^@/]*@)?[^/:]+(?::\d+)?/|[^@/:]+@[^:/]+:)(.+?)/([^/]+?)(?:\.git)?/?$"
)
_HERE = ("localhost", "127.0.0.1", "::1")


class GithubForge:
    def __init__(self, *, api_url: str, token: str) -> None:
        parts = urllib.parse.urlsplit(api_url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _HERE):
            raise InvalidInput(f"merge.api_url is {api_url!r}, and a token is sent over https only")
        self._api_url = api_url.rstrip("/")
        self._token = token
        self._opener = urllib.request.build_opener(_NoRedirects())

    def ensure_request(self, draft: Draft) -> PullRequest:
        remote = _REMOTE.match(draft.remote_url)
        if not remote:
            problem = "the remote is no repository of a forge: its URL has no owner and name"
            raise InvalidInput(problem, hint="name another one with `fleet config set merge.remote NAME`")
        owner, name = remote[1], remote[2]
        path = f"/repos/{urllib.parse.quote(owner)}/{urllib.parse.quote(name)}/pulls"
        asked = {"head": f"{owner}:{draft.branch}", "base": draft.into, "state": "open"}
        listing = f"{path}?{urllib.parse.urlencode(asked)}"
        if url := self._first_url(listing):
            return PullRequest(branch=draft.branch, url=url, is_new=False)
        wanted = {"title": draft.title, "body": draft.body, "head": draft.branch, "base": draft.into}
        try:
            made = self._call("POST", path, wanted)
        except Failed:
            if url := self._first_url(listing):  # somebody else has just opened it
                return PullRequest(branch=draft.branch, url=url, is_new=False)
            raise
        return PullRequest(branch=draft.branch, url=_url_of(made), is_new=True)

    def _first_url(self, listing: str) -> str:
        found = self._call("GET", listing)
        listed = cast("list[object]", found) if isinstance(found, list) else []
        return _url_of(listed[0]) if listed else ""

    def _call(self, method: str, path: str, body: Mapping[str, str] | None = None) -> object:
        request = urllib.request.Request(
            self._api_url + path,
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={
                "Authorization": f"Bearer {self._token}",
                "Accept": "application/vnd.github+json",
                "Content-Type": "application/json",
                "User-Agent": "fleet",
            },
        )
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                return json.loads(answer.read(MOST_BYTES))
        except urllib.error.HTTPError as exc:
            raise self._refusal(method, exc) from exc
        except (OSError, HTTPException) as exc:
            raise Unavailable(f"cannot reach {self._api_url}: {exc}", hint="try again later") from exc
        except ValueError as exc:
            raise Failed(f"{self._api_url} said something else than JSON: {exc}") from exc

    def _refusal(self, method: str, error: urllib.error.HTTPError) -> Failed | Unavailable:
        said = _message_in(error)
        told = f"{self._api_url} answered {error.code} to {method}" + (f": {said}" if said else "")
        if error.code in (401, 403, 404):
            hint = "see that the token of merge.token_variable may write pull requests"
            return Unavailable(told, hint=hint)
        return Failed(told) if error.code < 500 else Unavailable(told, hint="try again later")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows nobody elsewhere: the token is for this host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _url_of(body: object) -> str:
    url = cast("dict[str, Any]", body).get("html_url") if isinstance(body, dict) else None
    if not isinstance(url, str):
        raise Failed("the forge told of a pull request without its html_url")
    return url


def _message_in(error: urllib.error.HTTPError) -> str:
    """Return what the forge says about a refusal, errors of single fields included."""
    try:
        body: object = json.loads(error.read(MOST_BYTES))
    except (OSError, ValueError):
        return ""
    facts = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    details = facts.get("errors")
    listed = cast("list[object]", details) if isinstance(details, list) else []
    inner = [cast("dict[str, Any]", one).get("message", "") for one in listed if isinstance(one, dict)]
    return "; ".join(str(text) for text in (facts.get("message", ""), *inner) if text)
