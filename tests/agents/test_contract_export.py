"""Exported policies equal `act`, run without this package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from gymnasium import spaces

from keras_rl2x import DDPG
from keras_rl2x import DQN
from tests.agents.contract import online
from tests.helpers import FixedEnv

BOX = spaces.Box(-10.0, 10.0, (3,), np.float32)
DICT = spaces.Dict(place=spaces.Box(-1, 1, (2,), np.float32), key=spaces.Discrete(4))
UNEVEN = spaces.Box(np.array([2.0, -1.0], np.float32), np.array([6.0, 0.0], np.float32))
# name: agent, observations, actions
POLICIES = {
    "vector": (DQN, BOX, spaces.Discrete(3)),
    "image": (DQN, spaces.Box(0, 255, (4, 12, 12), np.uint8), spaces.Discrete(3)),
    "dict": (DQN, DICT, spaces.Discrete(3)),
    "state": (DQN, spaces.Discrete(5, start=2), spaces.Discrete(3)),
    "start": (DQN, BOX, spaces.Discrete(3, start=5)),
    "continuous": (DDPG, BOX, UNEVEN),
    "continuous-dict": (DDPG, DICT, UNEVEN),
    "continuous-matrix": (DDPG, BOX, spaces.Box(-2, 1, (2, 2), np.float64)),
}
BATCHES = (1, 7)


def make(name, seed=1):
    """An agent whose last layer is large enough for actions to differ."""
    cls, observations, actions = POLICIES[name]
    agent = cls.from_env(FixedEnv(observations, actions), hidden=(16,), seed=seed)
    rng = np.random.default_rng(0)
    for network in online(agent).values():
        for variable in network.layers[-1].trainable_variables:
            variable.assign(rng.normal(size=variable.shape))
    return agent


def observe(space, size, seed):
    """`size` observations as a batch, within and at the bounds."""
    space.seed(seed)
    rows = [space.sample() for _ in range(size)]
    if isinstance(space, spaces.Dict):
        return {key: np.stack([row[key] for row in rows]) for key in space.spaces}
    return np.stack(rows)


def named(observation, space):
    if isinstance(space, spaces.Dict):
        return observation
    return {"observation": observation}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """What each policy gives in a process that has only TensorFlow."""
    root, policies = tmp_path_factory.mktemp("policies"), {}
    for name, (_, space, _) in POLICIES.items():
        agent, directory = make(name), root / name
        agent.export(directory / "policy")
        batches = [observe(space, size, seed=size) for size in BATCHES]
        np.savez(
            directory / "inputs.npz",
            **{
                f"{i}/{key}": value
                for i, batch in enumerate(batches)
                for key, value in named(batch, space).items()
            },
        )
        policies[name] = SimpleNamespace(agent=agent, batches=batches)
    script = Path(__file__).with_name("export_run.py")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    process = subprocess.run(
        [sys.executable, "-P", str(script), *(str(root / name) for name in POLICIES)],
        capture_output=True, text=True, env=environment, cwd=root, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    for name, policy in policies.items():
        policy.signature = report["signatures"][name]
        policy.foreign = report["foreign"]
        with np.load(root / name / "outputs.npz") as outputs:
            policy.outputs = [
                {
                    key.split("/")[1]: outputs[key]
                    for key in outputs.files
                    if key.startswith(f"{i}/")
                }
                for i in range(len(BATCHES))
            ]
    return policies


def check(agent, observation, outputs):
    """Outputs are those of the agent, and nothing else."""
    expected = agent.act(observation)
    if agent.action_units.is_discrete:
        assert set(outputs) == {"action", "q_values"}
        assert np.array_equal(outputs["action"], expected)
        assert len(expected) == 1 or len(set(expected.tolist())) > 1, (
            "a constant policy"
        )
        q_values = agent.predict(observation, verbose=0)
        np.testing.assert_allclose(outputs["q_values"], q_values, rtol=1e-4, atol=1e-5)
    else:
        assert set(outputs) == {"action"}
        assert outputs["action"].shape == expected.shape
        np.testing.assert_allclose(outputs["action"], expected, rtol=1e-4, atol=1e-5)
        space = agent.action_space
        assert (outputs["action"] >= space.low).all()
        assert (outputs["action"] <= space.high).all()


@pytest.mark.parametrize("name", POLICIES)
def test_a_saved_model_equals_act_without_this_package(served, name):
    policy = served[name]
    assert policy.foreign == []
    for observation, outputs in zip(policy.batches, policy.outputs, strict=True):
        check(policy.agent, observation, outputs)


@pytest.mark.parametrize("name", POLICIES)
def test_the_signature_takes_raw_observations_of_any_batch_size(served, name):
    _, space, _ = POLICIES[name]
    parts = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
    assert served[name].signature["inputs"] == {
        key: [np.dtype(part.dtype).name, [None, *part.shape]]
        for key, part in parts.items()
    }


def test_no_optimizer_critic_or_target_is_exported(served):
    for policy in served.values():
        network = getattr(policy.agent, "actor", None) or policy.agent.network
        assert policy.signature["variables"] == len(network.variables)


@pytest.mark.filterwarnings("ignore:In the future `np.:FutureWarning")  # of Keras
@pytest.mark.parametrize("name", ["image", "dict", "continuous"])
def test_onnx_equals_act(tmp_path, name):
    onnxruntime = pytest.importorskip("onnxruntime")
    agent, (_, space, _) = make(name), POLICIES[name]
    agent.export(tmp_path / "policy.onnx", format="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    names = [output.name for output in session.get_outputs()]
    for size in BATCHES:
        observation = observe(space, size, seed=size)
        outputs = session.run(None, named(observation, space))
        check(agent, observation, dict(zip(names, outputs, strict=True)))


@pytest.mark.parametrize("name", ["image", "start", "continuous-dict"])
def test_litert_equals_act(tmp_path, name):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    agent, (_, space, _) = make(name), POLICIES[name]
    path = tmp_path / "policy.tflite"
    agent.export(path, format="litert")
    interpreter = litert.Interpreter(str(path))
    runner = interpreter.get_signature_runner()
    for size in BATCHES:
        observation = observe(space, size, seed=size)
        check(agent, observation, runner(**named(observation, space)))


def test_a_mask_input_forbids_actions(tmp_path):
    import tensorflow as tf

    agent = make("start")
    agent.export(tmp_path / "policy", action_mask=True)
    function = tf.saved_model.load(tmp_path / "policy").signatures["serving_default"]
    observation = observe(BOX, 20, seed=1)
    mask = np.random.default_rng(0).random((20, 3)) < 0.5
    mask[np.arange(20), np.arange(20) % 3] = True
    outputs = function(
        observation=tf.constant(observation), action_mask=tf.constant(mask)
    )
    chosen = outputs["action"].numpy()
    assert mask[np.arange(20), chosen - 5].all()
    assert np.array_equal(chosen, agent.act(observation, action_mask=mask))
    assert not np.array_equal(chosen, agent.act(observation))


def test_the_policy_of_now_is_exported_also_after_training(case, tmp_path):
    import tensorflow as tf

    agent = case.compiled(rate=0.1)
    observation = case.transitions(20).observation
    outputs = []
    for number in range(2):
        path = tmp_path / str(number)
        agent.export(path)
        function = tf.saved_model.load(path).signatures["serving_default"]
        outputs.append(function(observation=tf.constant(observation)))
        np.testing.assert_allclose(
            outputs[-1]["action"], agent.act(observation), rtol=1e-4, atol=1e-5
        )
        agent.fit(case.env(), steps_per_epoch=8, batch_size=8, seed=1, verbose=0)
    name = "q_values" if "q_values" in outputs[0] else "action"
    assert not np.allclose(outputs[0][name], outputs[1][name])
    # And exporting leaves the agent able to train and to be saved.
    agent.save(tmp_path / "agent.keras")
    assert np.array_equal(
        keras.saving.load_model(tmp_path / "agent.keras").act(observation),
        agent.act(observation),
    )


def test_exporting_prints_nothing_unless_asked(case, tmp_path, capfd):
    capfd.readouterr()
    case.make().export(tmp_path / "policy")
    assert capfd.readouterr().out == ""


def test_an_unknown_format_is_named(case, tmp_path):
    with pytest.raises(ValueError, match="`format`.*onnx.*'torch'"):
        case.make().export(tmp_path / "policy", format="torch")


def test_a_missing_package_names_the_extra(case, tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setattr("keras_rl2x.export.find_spec", lambda name: None)
    assert importlib.util.find_spec("keras") is not None
    with pytest.raises(ImportError, match=r"pip install keras-rl2x\[onnx\]"):
        case.make().export(tmp_path / "policy.onnx", format="onnx")


def test_a_mask_for_continuous_actions_is_refused(tmp_path):
    with pytest.raises(ValueError, match="discrete actions"):
        make("continuous").export(tmp_path / "policy", action_mask=True)
