"""Names of folders and tmux sessions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.ids import new_run_id
from fleet.domain.naming import slug, tmux_name, workspace_name

SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("fix-auth", "fix-auth"),
        ("feature/login page", "feature-login-page"),
        ("../../etc/passwd", "etc-passwd"),
        ("v1.2:x", "v1-2-x"),
        ("--force", "force"),
        ("grün", "gr-n"),
        ("日本", "x"),
        ("", "x"),
        ("a" * 100, "a" * 40),
        ("a" * 39 + "/b", "a" * 39),
    ],
)
def test_a_slug_keeps_what_is_safe(text: str, short: str) -> None:
    assert slug(text) == short


@given(st.text())
def test_a_slug_of_anything_is_short_safe_and_its_own_slug(text: str) -> None:
    short = slug(text)
    assert SAFE.fullmatch(short)
    assert len(short) <= 40
    assert slug(short) == short


@given(branch=st.text(), other=st.text())
def test_no_two_runs_share_a_workspace_whatever_their_branches(branch: str, other: str) -> None:
    one, two = (workspace_name(name, new_run_id()) for name in (branch, other))
    assert one != two
    assert SAFE.fullmatch(one)


@given(prefix=st.text(), branch=st.text())
def test_a_tmux_name_is_one_that_tmux_takes_as_it_is(prefix: str, branch: str) -> None:
    run = new_run_id()
    name = tmux_name(prefix, branch, run)
    assert SAFE.fullmatch(name)
    assert name.endswith(run[-6:])


def test_a_tmux_name_shows_prefix_and_branch() -> None:
    run = new_run_id()
    assert tmux_name("fleet", "fix/auth", run) == f"fleet_fix-auth_{run[-6:]}"
