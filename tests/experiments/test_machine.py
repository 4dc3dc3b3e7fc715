from __future__ import annotations

import json
import platform

from experiments.machine import machine_facts, machine_sentence


def test_facts_are_json_and_make_a_sentence() -> None:
    facts = machine_facts(kafka="4.3.1")
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpus"] >= 1
    sentence = machine_sentence(facts)
    assert f"Python {platform.python_version()}" in sentence
    assert sentence.endswith("Kafka 4.3.1")


def test_what_a_system_does_not_tell_is_left_out() -> None:
    facts = machine_facts() | {"cpu_model": None, "memory_gb": None}
    assert "None" not in machine_sentence(facts)
