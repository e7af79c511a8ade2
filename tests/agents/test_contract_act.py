"""`act`, calling, `predict`, `summary`, `train_on_batch`, `gradient_norms`."""

import threading

import keras
import numpy as np
import pytest

from keras_rl2x import ReplayMemory
from keras_rl2x.types import Transition
from tests.agents.contract import digest
from tests.agents.contract import online
from tests.agents.contract import values


@pytest.fixture(scope="module")
def agent(case):
    return case.compiled()


@pytest.fixture(scope="module")
def observations():
    return np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


# --------------------------------------------------------------------------- act


def test_one_observation_gives_one_action_of_the_space(case, agent, observations):
    space = case.env().action_space
    for observation in observations:
        action = agent.act(observation)
        assert space.contains(action)
        if case.actions == "discrete":
            assert type(action) is int
        else:
            assert action.shape == space.shape
            assert action.dtype == space.dtype


def test_a_batch_gives_the_same_actions_with_a_leading_axis(case, agent, observations):
    space = case.env().action_space
    actions = agent.act(observations)
    assert actions.shape == (7, *space.shape)
    assert actions.dtype == space.dtype
    one_by_one = [agent.act(observation) for observation in observations]
    np.testing.assert_allclose(actions, one_by_one, rtol=1e-6)
    np.testing.assert_allclose(agent.act(observations[:1])[0], actions[0], rtol=1e-6)


def test_lists_and_wider_floats_are_taken(agent, observations):
    expected = agent.act(observations[0])
    for given in (observations[0].tolist(), observations[0].astype(np.float64)):
        np.testing.assert_allclose(agent.act(given), expected, rtol=1e-6)


def test_acting_changes_nothing_and_repeats(agent, observations):
    before = digest(agent)
    first = agent.act(observations)
    assert np.array_equal(agent.act(observations), first)
    assert digest(agent) == before


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((1, 1, 3)),
        np.zeros(4),
        np.zeros((2, 4)),
        np.zeros((3, 1)),
        np.float32(0.0),
        "left",
        None,
        {"observation": np.zeros(3)},
        np.array(["a", "b", "c"]),
    ],
    ids=lambda value: str(getattr(value, "shape", value))[:12],
)
def test_a_wrong_observation_is_described(agent, wrong):
    with pytest.raises(ValueError, match=r"shape \(3,\)|Box"):
        agent.act(wrong)


def test_before_the_spaces_are_known_act_says_what_to_do(case):
    agent = case.from_networks(_dense)
    for method in (agent.act, lambda x: agent.export("never")):
        with pytest.raises(ValueError, match=r"from_env\(env\).*fit\(env\)"):
            method(np.zeros(3, np.float32))


def test_a_worker_thread_can_act_and_predict(agent, observations):
    results = []

    def work():
        results.append(agent.act(observations))
        results.append(agent.predict(observations, verbose=0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert np.array_equal(results[0], agent.act(observations))
    np.testing.assert_allclose(results[1], agent(observations), rtol=1e-6)


# ------------------------------------------------------- calling, predict, summary


def test_calling_gives_what_the_policy_says_in_env_units(case, agent, observations):
    said = agent(observations).numpy()
    if case.actions == "discrete":
        assert said.shape == (7, 3)
        assert np.array_equal(said.argmax(axis=1), agent.act(observations))
    else:
        np.testing.assert_allclose(said, agent.act(observations), rtol=1e-5)


def test_predict_does_the_same_in_batches(agent, observations):
    np.testing.assert_allclose(
        agent.predict(observations, batch_size=2, verbose=0),
        agent(observations),
        rtol=1e-5,
        atol=1e-6,
    )


def test_summary_shows_every_network_and_the_parameters_that_learn(case, agent):
    lines = []
    agent.summary(print_fn=lambda text, **kwargs: lines.append(text))
    text = "\n".join(lines)
    for network in online(agent).values():
        assert network.name in text
        assert f"{network.count_params():,}" in text
    learn = sum(
        int(np.prod(variable.shape))
        for network in online(agent).values()
        for variable in network.trainable_variables
    )
    assert f"Trainable params: {learn:,} " in text


# ---------------------------------------------------------------- train_on_batch


def test_train_on_batch_returns_this_batches_numbers_and_no_running_mean(case):
    agent = case.compiled(rate=0.0, run_eagerly=True)
    agent.target_update = type(agent.target_update)(period=10**9)
    batches = [case.transitions(seed=seed) for seed in range(2)]
    first, second, again = (agent.train_on_batch(batches[i]) for i in (0, 1, 0))
    assert all(type(value) is float for value in first.values())
    assert again == pytest.approx(first)
    assert second["loss"] != pytest.approx(first["loss"])
    # Also after `fit`, whose means it does not continue.
    agent.fit(case.env(), steps_per_epoch=8, batch_size=16, seed=1, verbose=0)
    assert agent.train_on_batch(batches[0]) == pytest.approx(first)


def test_train_on_batch_counts_gradient_steps_and_not_env_steps(case):
    agent = case.compiled()
    for seed in range(3):
        agent.train_on_batch(case.transitions(seed=seed))
    assert (agent.gradient_steps, agent.env_steps) == (3, 0)
    assert int(agent.optimizer.iterations.numpy()) == 3


def test_what_a_memory_samples_can_be_learned_from(case):
    agent, memory = case.compiled(run_eagerly=True), ReplayMemory(100)
    env = case.env()
    rng = np.random.default_rng(0)
    memory.add_episode(
        rng.normal(size=(21, 3)).astype(np.float32),
        np.array([env.action_space.sample() for _ in range(20)]),
        rng.normal(size=20),
        terminated=True,
    )
    before = values(agent)
    agent.train_on_batch(memory.sample(16))
    assert agent.gradient_steps == 1
    agent.train_on_batch(memory.sample(16, 3))
    assert agent.gradient_steps == 4
    assert not all(map(np.array_equal, values(agent), before))


def test_train_on_batch_before_bind_and_before_compile_says_so(case):
    batch = case.transitions()
    with pytest.raises(ValueError, match="from_env"):
        case.from_networks(_dense).train_on_batch(batch)
    with pytest.raises(ValueError, match=r"`compile\(\)` before `train_on_batch`"):
        case.make().train_on_batch(batch)


@pytest.mark.parametrize("wrong", [None, 3, (np.zeros(3), 1), {"observation": 1}])
def test_what_is_no_transition_is_named(agent, wrong):
    with pytest.raises(TypeError, match="Transition"):
        agent.train_on_batch(wrong)


def test_a_batch_of_other_shapes_is_refused_and_nothing_changes(case, agent):
    batch, before = case.transitions(), digest(agent)
    for wrong in (
        batch._replace(reward=batch.reward[:5]),
        batch._replace(observation=batch.observation[:, :2]),
        batch._replace(next_observation=batch.next_observation[:3]),
        batch._replace(discount=batch.discount[:, None]),
        batch._replace(action=batch.action[:4]),
    ):
        with pytest.raises((ValueError, TypeError)):
            agent.train_on_batch(wrong)
        assert digest(agent) == before


# ---------------------------------------------------------------- gradient_norms


def test_gradient_norms_are_the_lengths_of_the_steps_of_plain_sgd(case):
    agent, batch = case.compiled(rate=1.0), case.transitions()
    before = digest(agent)
    norms = agent.gradient_norms(batch)
    assert digest(agent) == before
    trained = [
        f"{name}/{variable.path}"
        for name, network in online(agent).items()
        for variable in network.trainable_variables
    ]
    assert list(norms) == trained
    first = getattr(agent, next(iter(agent.trained)))
    old = values(first)
    agent.train_on_batch(batch)
    steps = [np.linalg.norm(new - was) for new, was in zip(values(first), old)]
    assert list(norms.values())[: len(steps)] == pytest.approx(steps, rel=1e-4)
    assert min(norms.values()) > 0


def _dense(name, outputs, activation, is_pair):
    inputs = [keras.Input((3,)), keras.Input((2,))] if is_pair else keras.Input((3,))
    x = keras.layers.Concatenate()(inputs) if is_pair else inputs
    return keras.Model(inputs, keras.layers.Dense(outputs, activation)(x))


# --------------------------------------------------------------- sample weights


def weighted(batch, weight):
    return batch._replace(weight=np.full(len(batch.reward), weight, np.float32))


def test_a_weight_of_zero_teaches_nothing_and_two_counts_twice(case):
    name = next(iter(case.cls.trained))
    steps = {}
    for weight in (0.0, 1.0, 2.0):
        agent = case.compiled(rate=1.0, run_eagerly=True)
        network = getattr(agent, name)
        old = values(network)
        agent.train_on_batch(weighted(case.transitions(), weight))
        steps[weight] = [new - was for new, was in zip(values(network), old)]
    assert not any(step.any() for step in steps[0.0])
    for one, two in zip(steps[1.0], steps[2.0], strict=True):
        np.testing.assert_allclose(2 * one, two, rtol=1e-3, atol=1e-6)


def test_rows_of_weight_zero_are_left_out(case):
    """With rank-1 targets Keras would average before it weighs."""
    name = next(iter(case.cls.trained))
    full = case.transitions(16)
    half = Transition(*(leaf if leaf is None else leaf[:8] for leaf in full))
    weight = np.repeat([2.0, 0.0], 8).astype(np.float32)
    weights = []
    for batch in (half, full._replace(weight=weight)):
        agent = case.compiled(run_eagerly=True)
        agent.train_on_batch(batch)
        weights.append(values(getattr(agent, name)))
    for one, two in zip(*weights, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-7)


def test_weights_are_read_anew_whenever_they_may_have_changed(case):
    agent = case.compiled()
    network = agent.network if case.actions == "discrete" else agent.actor
    observation = case.transitions(4).observation
    with agent.weights_held():
        before = agent.infer(observation)
    network.set_weights([weight + 0.1 for weight in network.get_weights()])
    expected = network(observation).numpy()
    assert not np.allclose(before, expected, atol=1e-3)
    np.testing.assert_allclose(agent.infer(observation), expected, atol=1e-5)
    with agent.weights_held():
        np.testing.assert_allclose(agent.infer(observation), expected, atol=1e-5)
        # What is read once is what makes acting fast, so nothing may change here.
        network.set_weights([weight * 0.0 for weight in network.get_weights()])
        np.testing.assert_allclose(agent.infer(observation), expected, atol=1e-5)
