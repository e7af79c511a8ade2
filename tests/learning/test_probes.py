"""DQN and DDPG reach the exact values of probe environments.

Each in a single environment and in a vector environment of both autoreset modes: the
values are the same. The settings are those of `examples/benchmarks/probe_matrix.py`,
which runs all probes with more seeds.
"""

import importlib.util
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_rl2x import DDPG
from keras_rl2x.envs import probes


def load_matrix():
    path = Path(__file__).parents[2] / "examples" / "benchmarks" / "probe_matrix.py"
    spec = importlib.util.spec_from_file_location("probe_matrix", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


matrix = load_matrix()

CASES = (
    matrix.Case(probes.TruncationProbe),
    matrix.Case(probes.GhostRowProbe, steps=1_000),
    matrix.Case(probes.CorridorProbe),
    matrix.Case(probes.OffsetActionProbe, steps=1_000),
    matrix.Case(probes.NoisyRewardProbe, loss="huber", steps=1_000),
    matrix.Case(probes.ChainProbe, n_step=3),
    matrix.Case(probes.TimeLimitProbe, DDPG, steps=2_500),
    matrix.Case(probes.BothFlagsProbe, DDPG),
    matrix.Case(probes.AsymmetricActionProbe, DDPG, steps=2_500),
)


@pytest.mark.parametrize("mode", ["single", "NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.agent.__name__} {case.name}" for case in CASES]
)
def test_probe_reaches_its_exact_values(case, mode):
    env = matrix.make_env(case, mode)
    agent = matrix.train(case, env, seed=0)
    learned, expected = np.array(matrix.compare(case, agent), float).T
    np.testing.assert_allclose(learned, expected, rtol=0, atol=case.probe.tolerance)
    if case.probe is probes.AsymmetricActionProbe:
        actions = actions_of_the_warm_up(env)
        assert np.mean(actions) == pytest.approx(4.0, abs=0.2)
        assert np.ptp(actions) > 0.95 * 4.0
    keras.backend.clear_session()


def actions_of_the_warm_up(env, steps=500):
    envs = getattr(env, "envs", [env])
    return [action for each in envs for action in each.actions[: steps // len(envs)]]
