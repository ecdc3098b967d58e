"""What is written down of an item is the same item when it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.domain.event import Json
from fleet.records.collection import Codec
from fleet.records.runs import RUN_CODEC
from fleet.records.tasks import QUESTION_CODEC, TASK_CODEC
from fleet.records.trials import TRIAL_CODEC
from fleet.work.pair.records import PAIR_CODEC
from fleet.work.race.records import RACE_CODEC
from fleet.work.sprint.records import SPRINT_CODEC
from fleet.work.train.records import TRAIN_CODEC
from fleet.work.workflow.records import WORKFLOW_CODEC

CODECS: list[Codec[Any]] = [
    *(PAIR_CODEC, RACE_CODEC, RUN_CODEC, SPRINT_CODEC, QUESTION_CODEC),
    *(TASK_CODEC, TRAIN_CODEC, TRIAL_CODEC, WORKFLOW_CODEC),
]
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))  # JSON knows no others


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.kind)
# A workflow is large: many that are drawn are larger than may be, and are left out.
@settings(max_examples=40, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(data=st.data())
def test_an_item_is_read_as_it_was_written(codec: Codec[Any], data: st.DataObject) -> None:
    item = data.draw(st.from_type(codec.make))
    body: dict[str, Json] = json.loads(json.dumps(codec.encode(item)))
    assert codec.decode(body) == item
