"""What a newcomer is likely to get wrong, and what is said about it."""

import gymnasium as gym
import keras
import numpy as np
import pytest

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x.callbacks import Checkpoint
from keras_rl2x.callbacks import StopAtReturn
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration import GaussianNoise
from tests.cases.tools import SpaceEnv
from tests.cases.tools import compiled
from tests.cases.tools import fit
from tests.cases.tools import made
from tests.helpers import CounterEnv
from tests.helpers import FixedEnv
from tests.helpers import ScriptedEnv

BOX = gym.spaces.Box(-1, 1, (3,))


def continuous():
    return SpaceEnv(BOX, gym.spaces.Box(-2, 2, (1,)))


# ------------------------------------------------------------------- environments


def test_evaluating_in_a_wrapper_of_the_training_env_is_refused():
    env = CounterEnv()
    agent = made(env)
    with pytest.raises(ValueError, match="wrapper of it"):
        fit(agent, env, validation_data=gym.wrappers.TimeLimit(env, 5))
    assert agent.env_steps == 0


@pytest.mark.parametrize("argument", ["env", "validation_data"])
def test_a_name_or_a_class_is_no_environment(argument):
    agent = made(CounterEnv())
    for value, text in (("CartPole-v1", "gymnasium.make"), (CounterEnv, "class")):
        arguments = {"env": CounterEnv(), argument: value}
        with pytest.raises(TypeError, match=f"`{argument}` must be .*{text}"):
            fit(agent, **arguments)


def test_an_agent_of_an_env_is_made_by_from_env():
    with pytest.raises(TypeError, match=r"from_env\(env\)"):
        DQN(CounterEnv())


def test_a_reset_without_seed_is_explained():
    class Old(CounterEnv):
        def reset(self):
            return super().reset()

    with pytest.raises(TypeError, match="seed=None, options=None"):
        fit(made(Old()), Old())


def test_a_type_error_inside_reset_arrives_unchanged():
    class Broken(CounterEnv):
        def reset(self, *, seed=None, options=None):
            return len(3)

    with pytest.raises(TypeError, match="has no len"):
        fit(made(Broken()), Broken())


def test_an_observation_beyond_its_bounds_warns_once():
    space = gym.spaces.Box(np.float32([-1, -np.inf]), np.float32([1, np.inf]))
    env = FixedEnv(space, observation=np.array([3, 1e6], np.float32))
    text = r"returned 3 at index \(0,\).*bounds"
    with pytest.warns(UserWarning, match=text) as caught:
        fit(made(env), env)
    assert len(caught) == 1
    assert caught[0].filename == __file__.replace("test_first_mistakes", "tools")


def test_rounding_is_not_beyond_the_bounds():
    space = gym.spaces.Box(-1, 1, (2,))
    env = FixedEnv(space, observation=np.float32([1.0001, -1.0001]))
    fit(made(env), env)  # a warning would be an error


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (gym.spaces.Discrete(3, start=1), np.int64(4)),
        (gym.spaces.Discrete(3, start=1), np.int64(0)),
        (gym.spaces.MultiDiscrete([2, 3]), np.array([1, 3])),
        (gym.spaces.MultiBinary(2), np.array([1, 2], np.int8)),
    ],
)
def test_a_number_that_a_discrete_space_lacks_is_refused(space, value):
    class Env(SpaceEnv):
        def step(self, action):
            return value, *super().step(action)[1:]

    env = Env(space, gym.spaces.Discrete(2))
    agent = made(env)
    with pytest.raises(ValueError, match="outside of its space"):
        fit(agent, env)
    assert len(agent.memory) == 0


# ----------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("env", "exploration", "instead"),
    [
        (CounterEnv(), GaussianNoise(0.1), "EpsilonGreedy"),
        (continuous(), EpsilonGreedy(0.1), "GaussianNoise"),
    ],
)
def test_exploration_of_other_actions_is_refused_by_compile(env, exploration, instead):
    with pytest.raises(ValueError, match=f"0.1\\).*explores.*{instead}"):
        made(env, exploration=exploration)


@pytest.mark.parametrize("env", [CounterEnv(), continuous()], ids=["DQN", "DDPG"])
def test_a_learning_rate_is_pointed_to_the_optimizer(env):
    with pytest.raises(TypeError, match=r"`optimizer=keras\.optimizers\.Adam\(1e-3\)`"):
        made(env, learning_rate=1e-3)


def test_two_rules_of_the_targets_are_refused():
    env = CounterEnv()
    rules = [TargetUpdate(tau=0.1), TargetUpdate(period=5)]
    with pytest.raises(ValueError, match="more than one `TargetUpdate`"):
        fit(made(env), env, callbacks=rules)


def test_a_batch_larger_than_the_memory_is_refused():
    env = CounterEnv()
    agent = made(env, memory=ReplayMemory(20))
    with pytest.raises(ValueError, match="`batch_size` is 21 .*holds 20 steps"):
        fit(agent, env, batch_size=21)
    fit(agent, env, batch_size=20)


@pytest.mark.parametrize("hidden", [64, "64", (8, 0), (8.5,)])
def test_hidden_is_a_sequence_of_widths(hidden):
    with pytest.raises(ValueError, match="`hidden`"):
        DQN.from_env(CounterEnv(), hidden=hidden)


def test_a_finished_training_says_that_nothing_is_left(capsys):
    env = CounterEnv()
    agent = made(env)
    history = fit(agent, env, epochs=1, initial_epoch=1, verbose=2)
    assert history.epoch == []
    assert "Nothing to do: 1 of 1 epochs" in capsys.readouterr().out


def test_a_finished_run_is_not_trained_again(tmp_path):
    def run():
        agent = made(CounterEnv())
        arguments = {"callbacks": [Checkpoint(tmp_path, every=30)], "resume": tmp_path}
        fit(agent, CounterEnv(), steps=16, epochs=2, **arguments)
        return agent

    first, again = run(), run()
    assert first.env_steps == again.env_steps == 40  # 8 of them are the warm-up
    for one, other in zip(first.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_stopping_at_a_return_says_so(capsys):
    env = CounterEnv()
    agent = made(env)
    for verbose in (0, 2):
        stop = StopAtReturn(-5)
        fit(agent, env, epochs=2, callbacks=[stop], seed=None, verbose=verbose)
        said = "Stopped: episode_return" in capsys.readouterr().out
        assert said == bool(verbose)


def test_objects_say_what_they_are():
    decay = keras.optimizers.schedules.PolynomialDecay(1.0, 10, 0.1)
    assert repr(EpsilonGreedy(0.1)) == "EpsilonGreedy(epsilon=0.1)"
    assert repr(EpsilonGreedy(decay)) == "EpsilonGreedy(epsilon=PolynomialDecay)"
    assert repr(ReplayMemory(50)) == "ReplayMemory(capacity=50, steps=0)"


# ----------------------------------------------------------------------- networks


def layers(*activations, size=2):
    last = [keras.layers.Dense(size, activation=name) for name in activations]
    return keras.Sequential([keras.layers.Dense(4), *last])


def test_a_q_network_that_ends_in_relu_warns_at_the_users_line():
    env = CounterEnv(num_actions=2)
    agent = compiled(DQN(layers("relu")))
    with pytest.warns(UserWarning, match="ends in relu.*never negative") as caught:
        agent.fit(env, steps_per_epoch=8, batch_size=8, verbose=0)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("activation", [None, "sigmoid", "relu"])
def test_an_actor_without_tanh_warns(activation):
    critic = layers(None, size=1)
    critic_input = keras.Input((3,)), keras.Input((1,))
    value = critic(keras.layers.Concatenate()(critic_input))
    agent = DDPG(layers(activation, size=1), keras.Model(critic_input, value))
    name = activation or "linear"
    with pytest.warns(UserWarning, match=f"`actor` ends in {name}.*activation='tanh'"):
        agent.bind(BOX, gym.spaces.Box(-2, 2, (1,)))


def test_a_network_for_other_inputs_is_explained_in_one_paragraph():
    network = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError) as caught:
        DQN(network).bind(BOX, gym.spaces.Discrete(2))
    text = str(caught.value)
    assert text.startswith("`network` cannot be called with inputs of shape (None, 3)")
    assert "\x1b" not in text
    assert "\n" not in text


def test_weights_of_another_environment_name_the_spaces(tmp_path):
    other = made(SpaceEnv(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)))
    other.save_weights(tmp_path / "other.weights.h5")
    agent = made(SpaceEnv(BOX, gym.spaces.Discrete(2)))
    before = agent.get_weights()
    with pytest.raises(ValueError, match=r"another observation space.*\(2,\).*\(3,\)"):
        agent.load_weights(tmp_path / "other.weights.h5")
    for one, same in zip(before, agent.get_weights(), strict=True):
        np.testing.assert_array_equal(one, same)


def test_a_checkpoint_of_another_environment_names_the_spaces(tmp_path):
    small = SpaceEnv(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2))
    fit(made(small), small, callbacks=[Checkpoint(tmp_path, every=8)])
    env = SpaceEnv(BOX, gym.spaces.Discrete(2))
    agent = made(env)
    with pytest.raises(ValueError, match=r"another observation space.*\(2,\).*\(3,\)"):
        fit(agent, env, resume=tmp_path)
    assert len(agent.memory) == 0


# ------------------------------------------------------------------------- acting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((np.zeros(3), {}), r"observation, info = env.reset\(\)"),
        ((np.zeros(3), 0.0, False, False, {}), "unpack it"),
        (None, "dtype: object"),
        ([[1.0], [1.0, 2.0]], "Expected one observation of shape"),
        (np.array([0, np.nan, 0]), "NaN or infinite"),
        ({"a": 1}, "must be an array.*a dict with"),
    ],
)
def test_act_explains_what_is_no_observation(value, text):
    agent = made(SpaceEnv(BOX, gym.spaces.Discrete(2)))
    with pytest.raises(ValueError, match=text):
        agent.act(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros(3), "dict with .'place', 'time'.*Received: ndarray"),
        ({"place": np.zeros(2)}, r"Received one with \['place'\]"),
    ],
)
def test_act_names_the_parts_of_a_dict(value, text):
    with pytest.raises(ValueError, match=text):
        made(ScriptedEnv(as_dict=True)).act(value)
