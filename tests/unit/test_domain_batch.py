"""Names of a fan-out, and pairs of a multi."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.batch import MOST_AGENTS, Wish, fanout_branches, parse_pair
from fleet.domain.ids import BatchId, new_batch_id
from fleet.errors import InvalidInput

BATCH = BatchId("b1234567")


def test_branches_are_lettered_and_go_on_after_z() -> None:
    branches = fanout_branches(28, "fix", BATCH)
    assert branches[:3] == ["fix-A", "fix-B", "fix-C"]
    assert branches[25:] == ["fix-Z", "fix-AA", "fix-AB"]


def test_without_a_prefix_the_batch_names_the_branches() -> None:
    assert fanout_branches(2, "", BATCH) == ["fanout-b1234567-A", "fanout-b1234567-B"]


@given(count=st.integers(1, MOST_AGENTS), prefix=st.text())
def test_every_agent_has_a_branch_of_its_own(count: int, prefix: str) -> None:
    branches = fanout_branches(count, prefix, new_batch_id())
    assert len(set(branches)) == len(branches) == count
    assert fanout_branches(MOST_AGENTS, prefix or "p", BATCH)[:count] == fanout_branches(
        count, prefix or "p", BATCH
    )


@pytest.mark.parametrize("count", [0, -1, MOST_AGENTS + 1])
def test_a_fan_out_of_none_or_too_many_is_refused(count: int) -> None:
    with pytest.raises(InvalidInput, match=f"1 to 100 agents, not {count}"):
        fanout_branches(count, "p", BATCH)


@given(branch=st.text(min_size=1).filter(lambda text: ":" not in text), prompt=st.text().filter(str.strip))
def test_a_pair_is_split_at_its_first_colon(branch: str, prompt: str) -> None:
    assert parse_pair(f"{branch}:{prompt}") == Wish(branch, prompt)


@pytest.mark.parametrize("text", ["", ":", "branch", "branch:", ":prompt", "branch: \n"])
def test_half_a_pair_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not BRANCH:PROMPT"):
        parse_pair(text)
