"""What is written down of an item is the same item when it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.domain.event import Json
from fleet.ports.pairs import PAIR_FORM
from fleet.ports.races import RACE_FORM
from fleet.ports.records import RUN_FORM
from fleet.ports.shelf import Form
from fleet.ports.sprints import SPRINT_FORM
from fleet.ports.tasks import QUESTION_FORM, TASK_FORM
from fleet.ports.trains import TRAIN_FORM
from fleet.ports.trials import TRIAL_FORM
from fleet.ports.workflows import WORKFLOW_FORM

FORMS: list[Form[Any]] = [
    *(PAIR_FORM, RACE_FORM, RUN_FORM, SPRINT_FORM, QUESTION_FORM),
    *(TASK_FORM, TRAIN_FORM, TRIAL_FORM, WORKFLOW_FORM),
]
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))  # JSON knows no others


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
# A workflow is large: many that are drawn are larger than may be, and are left out.
@settings(max_examples=40, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(data=st.data())
def test_an_item_is_read_as_it_was_written(form: Form[Any], data: st.DataObject) -> None:
    item = data.draw(st.from_type(form.make))
    body: dict[str, Json] = json.loads(json.dumps(form.encode(item)))
    assert form.decode(body) == item
