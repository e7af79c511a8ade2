"""Every fault of the zoo gets its name first; healthy runs get none.

A third runs each time, the whole with `pytest -m soak`.
"""

import keras
import pytest

from keras_rl2x.diagnostics import explain_gradients
from tests.diagnostics import zoo

CURABLE = [each for each in zoo.FAULTS if each.check is not None]
ALWAYS_CURED = ("a tau of one",)


def marked(each, quick):
    return pytest.param(each, id=each.name, marks=() if quick else pytest.mark.soak)


@pytest.fixture(autouse=True)
def clear():
    yield
    keras.backend.clear_session()


@pytest.mark.parametrize("each", [marked(each, each.quick) for each in zoo.FAULTS])
def test_the_first_finding_is_the_root_cause(each):
    _, findings = zoo.run(each)
    assert [finding.code for finding in findings[:1]] == [each.code]
    assert findings[0].first_step <= zoo.STEPS
    for finding in findings:
        lines = str(finding).split("\n")
        assert len(lines) <= 3
        assert max(map(len, lines)) <= 250
        assert "`" in finding.where or "reward" in finding.where
        assert finding.evidence
        assert finding.remedy


@pytest.mark.parametrize(
    "each", [marked(each, each.name in ALWAYS_CURED) for each in CURABLE]
)
def test_with_the_remedy_the_agent_learns(each):
    agent, findings = zoo.run(each, cured=True)
    each.check(agent)
    assert [finding for finding in findings if finding.severity == "error"] == []


@pytest.mark.parametrize("each", zoo.PROGRAMS, ids=lambda each: each.name)
def test_programs_without_our_agents_are_explained(each):
    report = explain_gradients(*each.make())
    assert report.unreached[0].cause == each.cause


@pytest.mark.parametrize(
    "each", [marked(each, True) for each in zoo.HEALTHY if each.quick]
)
def test_a_healthy_run_has_no_findings(each):
    assert zoo.run_healthy(each) == []


@pytest.mark.soak
def test_all_healthy_runs_have_no_error_and_at_most_one_warning():
    assert len(zoo.HEALTHY) >= 8
    findings = []
    for each in zoo.HEALTHY:
        findings += zoo.run_healthy(each)
        keras.backend.clear_session()
    assert [each for each in findings if each.severity == "error"] == []
    assert len(findings) <= 1


def test_the_zoo_is_large_enough():
    assert len(zoo.FAULTS) + len(zoo.PROGRAMS) >= 32
    assert len(CURABLE) >= 10
    quick = sum(each.quick for each in zoo.FAULTS) + len(zoo.PROGRAMS)
    assert quick >= (len(zoo.FAULTS) + len(zoo.PROGRAMS)) / 3
