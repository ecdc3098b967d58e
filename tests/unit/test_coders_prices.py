"""What tokens cost, and that nothing is guessed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleet.adapters.coders.prices import price, price_table
from fleet.domain.usage import Meter, Usage

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "cost"),
    [
        ("gpt-5.5", 5.0),
        ("GPT-5.5-2026-04-01", 5.0),
        ("openai/gpt-5.4-mini", 0.75),
        ("gemini-2.5-flash-lite", 0.10),
        ("gemini-2.5-flash", 0.30),
        ("gemini-2.5-pro", 1.25),
    ],
)
def test_the_first_pattern_that_fits_is_the_price(model: str, cost: float) -> None:
    assert price(model, Usage(input_tokens=MILLION)) == pytest.approx(cost)


def test_cached_tokens_and_output_have_prices_of_their_own() -> None:
    usage = Usage(input_tokens=MILLION, cached_tokens=MILLION, output_tokens=MILLION)
    assert price("gpt-5.5", usage) == pytest.approx(5 + 0.5 + 30)


@pytest.mark.parametrize(
    "model", ["", "auto", "my-model-1", "gpt-6-astra", "gpt-55", "gpt-5.5x/other", "claude"]
)
def test_a_model_without_a_known_price_has_no_cost(model: str) -> None:
    assert price(model, Usage(input_tokens=MILLION)) is None


def test_no_price_is_absurd() -> None:
    for row in price_table():
        assert 0 < row.cached <= row.input <= row.output < 1000


def test_a_cost_for_the_session_and_tokens_for_the_turn_add_up_over_turns() -> None:
    meter = Meter()
    for tokens, cost in ((100, 0.5), (200, 0.8)):
        meter = meter.count({"scope": "call", "context": 9})
        meter = meter.count({"scope": "run", "input": tokens, "output": 1})
        meter = meter.count({"scope": "session", "cost_usd": cost}).next_turn()
    assert meter.total == Usage(input_tokens=300, output_tokens=2, cost_usd=0.8)


def test_the_facts_of_all_coders_are_to_be_had_without_loading_a_json_library() -> None:
    names = ("agy", "claude", "codex", "copilot", "custom", "gemini", "opencode", "scripted", "prices")
    code = "; ".join(f"import fleet.adapters.coders.{name}" for name in names)
    code += "; import sys; print('msgspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
