"""The Forge port on the `gh` program, which knows by itself who its user is."""

from __future__ import annotations

import json
import subprocess

from fleet.errors import Failed, Unavailable
from fleet.ports.forge import Draft, PullRequest

SECONDS = 120.0


class GhForge:
    def ensure_request(self, draft: Draft) -> PullRequest:
        if url := self._open_request(draft):
            return PullRequest(branch=draft.branch, url=url, is_new=False)
        wanted = ("pr", "create", f"--head={draft.branch}", f"--base={draft.into}", f"--title={draft.title}")
        done = _gh(draft, *wanted, "--body-file=-", text=draft.body)
        if done.returncode == 0 and (url := _last_line(done.stdout)):
            return PullRequest(branch=draft.branch, url=url, is_new=True)
        if url := self._open_request(draft):  # somebody else has just opened it
            return PullRequest(branch=draft.branch, url=url, is_new=False)
        problem = f"`gh pr create` opened no pull request for {draft.branch!r}: {_last_line(done.stderr)}"
        raise Failed(problem, hint="run `gh auth status`, or `gh pr create` by hand to see more")

    def _open_request(self, draft: Draft) -> str:
        asked = ("pr", "list", f"--head={draft.branch}", f"--base={draft.into}", "--state=open")
        done = _gh(draft, *asked, "--json=url", "--limit=1")
        if done.returncode:
            raise Unavailable(f"`gh pr list` failed: {_last_line(done.stderr)}", hint="run `gh auth status`")
        try:
            found = json.loads(done.stdout or "[]")
            return str(found[0]["url"]) if found else ""
        except (ValueError, LookupError, TypeError) as exc:
            raise Failed(f"`gh pr list` said something else than JSON: {exc}") from exc


def _gh(draft: Draft, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ("gh", *words),
            cwd=draft.repository,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            start_new_session=True,  # nobody is there to be asked for a password
        )
    except FileNotFoundError as exc:
        raise Unavailable("`gh` is not on PATH", hint="install it from https://cli.github.com") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"`gh {words[0]} {words[1]}` could not be run: {exc}") from exc


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
