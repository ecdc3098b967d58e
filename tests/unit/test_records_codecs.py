"""What is written down of an item is the same item when it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.adapters.stores.memory import MemoryStore
from fleet.domain.event import Json
from fleet.records.collection import Collection, decode_item, encode_item
from fleet.records.runs import Runs
from fleet.records.spawns import Spawns
from fleet.records.tasks import Questions, Tasks
from fleet.records.trials import Trials
from fleet.work.pair.records import Pairs
from fleet.work.race.records import Races
from fleet.work.sprint.records import Sprints
from fleet.work.train.records import Trains
from fleet.work.workflow.records import Workflows

KINDS = (Pairs, Questions, Races, Runs, Spawns, Sprints, Tasks, Trains, Trials, Workflows)
COLLECTIONS: list[Collection[Any]] = [kind(MemoryStore()) for kind in KINDS]
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))  # JSON knows no others


@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda one: one.kind)
# A workflow is large: many that are drawn are larger than may be, and are left out.
@settings(max_examples=40, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(data=st.data())
def test_an_item_is_read_as_it_was_written(collection: Collection[Any], data: st.DataObject) -> None:
    item = data.draw(st.from_type(collection.make))
    body: dict[str, Json] = json.loads(json.dumps(encode_item(item)))
    assert decode_item(collection.make, body) == item
