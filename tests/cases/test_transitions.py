"""Replay, frame stacks, ends and targets: sections C and D."""

import gymnasium as gym
import keras
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector import SyncVectorEnv

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x.exploration import Boltzmann
from keras_rl2x.layers import DuelingHead
from tests.cases.tools import SpaceEnv
from tests.cases.tools import compiled
from tests.cases.tools import fit
from tests.cases.tools import made
from tests.cases.tools import rows
from tests.helpers import CounterEnv
from tests.helpers import ScriptedEnv

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def test_every_row_holds_what_happened_together():  # B032
    class Echo(CounterEnv):
        """The reward tells the time and the action."""

        def step(self, action):
            observation, _, terminated, truncated, info = super().step(action)
            return observation, 10.0 * self.total + action, terminated, truncated, info

    agent = made(Echo())
    fit(agent, Echo(), steps=80)
    batch = rows(agent)
    before, after = batch.observation[:, 0], batch.next_observation[:, 0]
    assert len(set(before)) > 60
    assert (after == before + 1).all()
    assert (batch.reward == 10 * after + batch.action).all()


class Frames(gym.Env):
    """An image of 8×8 pixels that all show the time; episodes of 6 steps."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(0, 255, (8, 8), np.uint8)
        self.action_space = gym.spaces.Discrete(2)
        self.time = -1

    def _frame(self):
        self.time += 1
        return np.full((8, 8), self.time, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._frame(), {}

    def step(self, action):
        self.steps += 1
        return self._frame(), 0.0, self.steps == 6, False, {}


def test_stacks_grow_at_the_right_end_and_stay_in_their_episode():  # B034
    acted_on = []

    class Looking(DQN):
        def explore(self, observation, step, action_mask=None):
            acted_on.extend(observation[:, :, 0, 0].astype(int))
            return super().explore(observation, step, action_mask)

    env = gym.wrappers.FrameStackObservation(Frames(), 4)
    # A small ring: it is overwritten several times.
    agent = compiled(Looking.from_env(env, hidden=(), seed=1), capacity=20)
    fit(agent, env, steps=80)
    batch = rows(agent)
    stored = batch.observation[:, :, 0, 0].astype(int)
    after = batch.next_observation[:, :, 0, 0].astype(int)
    for stack in [*acted_on, *stored, *after]:
        newest = stack[-1]
        first = newest - newest % 7  # an episode shows 7 frames
        # At the start of an episode its first frame is repeated.
        expected = np.maximum([newest - 3, newest - 2, newest - 1, newest], first)
        assert np.array_equal(stack, expected), stack
    assert (after[:, -1] == stored[:, -1] + 1).all()
    assert len(agent.memory) == 20


def test_a_frame_of_a_stack_is_stored_once_in_its_own_dtype():  # B035
    env = gym.wrappers.FrameStackObservation(Frames(), 4)
    agent = made(env, hidden=(), capacity=1_000)
    fit(agent, env)
    per_step = agent.memory.nbytes / 1_000
    # 64 bytes of pixels; whole stacks, twice, would take 512 (2 048 as floats).
    assert 64 <= per_step < 200


def test_a_memory_that_cannot_fit_says_its_size_before_any_step():  # B035, B036
    pixels = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    env = SpaceEnv(pixels, gym.spaces.Discrete(2))
    agent = made(env, hidden=(), capacity=10**9)
    with pytest.raises(MemoryError, match=r"1,000,000,000 steps needs [\d.,]+ GiB"):
        fit(agent, env)
    assert env.taken == []


def test_the_memory_stays_in_main_memory():  # B037
    agent = made(CounterEnv(), capacity=777)
    fit(agent, CounterEnv())
    for leaf in agent.memory.sample(4, 2):
        assert leaf is None or type(leaf) is np.ndarray
    assert not [v for v in agent.variables if 777 in tuple(v.shape)]


@pytest.mark.parametrize(("warmup", "starts"), [(10, 32), (0, 32), (50, 50)])
def test_learning_starts_at_the_warm_up_or_a_batch_without_a_warning(warmup, starts):
    # B039
    agent = made(CounterEnv(), warmup_steps=warmup)
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: seen.append(len(agent.memory))
    )
    fit(agent, CounterEnv(), batch_size=32, callbacks=[watch])
    assert seen == [starts]


# ----------------------------------------------------------------------- ends


@pytest.mark.parametrize("mode", [None, *MODES])
def test_only_a_termination_stops_the_bootstrap(mode):  # B047, B049, B050
    """A truncated step counts the value of its own final observation."""

    def make():
        return ScriptedEnv(lengths=(3,), endings=("terminated", "truncated", "both"))

    env = make() if mode is None else SyncVectorEnv([make] * 2, autoreset_mode=mode)
    agent = made(env)
    fit(agent, env, steps=60)
    batch = rows(agent)
    episode, time = batch.observation[:, 1].astype(int), batch.observation[:, 2]
    # Both flags, as TimeLimit gives them where the task ends on the limit, mean that
    # it is over.
    over = (time == 2) & (episode % 3 != 1)
    assert set(batch.discount[over]) == {0.0}
    assert set(batch.discount[~over]) == {np.float32(0.99)}
    assert (batch.next_observation[:, 1] == episode).all()
    assert (batch.next_observation[:, 2] == time + 1).all()


def test_a_time_limit_of_gymnasium_is_no_end_of_the_task():  # B047
    env = gym.wrappers.TimeLimit(CounterEnv(length=10**9), 5)
    agent = made(env)
    history = fit(agent, env, steps=40).history
    assert history["episode_length"] == [5.0]
    assert set(rows(agent).discount) == {np.float32(0.99)}


@pytest.mark.parametrize(("cls", "reward"), [(DQN, 5.0), (DDPG, 1.0)])
def test_the_value_of_a_last_step_is_its_reward(cls, reward):  # B051, B052, B040
    class OneStep(SpaceEnv):
        def step(self, action):
            observation, _, terminated, truncated, info = super().step(action)
            return observation, reward, terminated, truncated, info

    actions = gym.spaces.Discrete(1) if cls is DQN else gym.spaces.Box(-1, 1, (1,))
    env = OneStep(gym.spaces.Box(0.9, 1.0, (1,)), actions, length=1)
    agent = compiled(
        cls.from_env(env, hidden=(16,), seed=1),
        rate=0.05,
        loss="mse",
        updates_per_step=1,
        run_eagerly=False,
        jit_compile=False,
    )
    fit(agent, env, steps=200)
    observation = np.array([[0.95]], np.float32)
    if cls is DQN:
        value = agent(observation).numpy()[0, 0]
    else:
        value = agent.critic([observation, np.zeros((1, 1))]).numpy()[0, 0]
    assert value == pytest.approx(reward, abs=0.1 * reward)


def test_a_dueling_head_is_a_layer_and_networks_are_left_as_they_are():  # B057
    class Odd(keras.layers.Layer):
        def call(self, x):
            return keras.ops.sin(x) * 3.0

    network = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2), Odd()], name="mine"
    )
    layers = list(network.layers)
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    said = network(x).numpy()
    agent = DQN(network)
    agent.bind(gym.spaces.Box(-9, 9, (3,)), gym.spaces.Discrete(2))
    assert agent.network is network
    assert network.layers == layers
    np.testing.assert_array_equal(agent(x), said)
    head = DuelingHead(3)
    head.build((None, 2))
    features = x[:, :2]
    value = head.value(features).numpy()
    advantage = head.advantage(features).numpy()
    np.testing.assert_allclose(
        head(features), value + advantage - advantage.mean(1, keepdims=True), rtol=1e-5
    )


def test_a_network_that_ends_in_a_softmax_is_warned_of():  # B059
    network = keras.Sequential([keras.Input((1,)), keras.layers.Dense(3, "softmax")])
    with pytest.warns(UserWarning, match="ends in softmax"):
        fit(compiled(DQN(network)), CounterEnv())


# ------------------------------------------------------------------- odd numbers


def test_huge_rewards_stay_finite_with_the_default_loss():  # B060
    class Huge(CounterEnv):
        def step(self, action):
            observation, _, terminated, truncated, info = super().step(action)
            return observation / 100, 1e4, terminated, truncated, info

    env = Huge()
    agent = DQN.from_env(env, hidden=(8,), seed=1)
    agent.compile(warmup_steps=8, steps_per_execution=8, jit_compile=False)
    history = fit(agent, env, steps=40).history
    for name in ("loss", "q_value"):
        assert np.isfinite(history[name]).all()
    assert all(np.isfinite(v.numpy()).all() for v in agent.network.variables)


@pytest.mark.parametrize(
    ("observation", "reward"), [(np.nan, 1.0), (np.inf, 1.0), (0.0, np.nan)]
)
def test_a_nan_of_the_env_stops_with_its_step_before_it_is_learned(observation, reward):
    # B060
    class Sick(CounterEnv):
        def step(self, action):
            _, _, terminated, truncated, info = super().step(action)
            sick = self.total > 20
            seen = np.array([observation if sick else 0.0], np.float32)
            return seen, reward if sick else 1.0, terminated, truncated, info

    env = Sick(length=10**9)
    agent = made(env)
    with pytest.raises(ValueError, match=r"Sick returned .*(nan|inf).* at step 20"):
        fit(agent, env, steps=40)
    assert len(agent.memory) == agent.env_steps == 19
    assert np.isfinite(rows(agent).observation).all()
    assert np.isfinite(rows(agent).reward).all()
    assert all(np.isfinite(v.numpy()).all() for v in agent.variables)


def test_boltzmann_exploration_survives_values_of_a_hundred_thousand():  # B060
    agent = made(CounterEnv(), exploration=Boltzmann(1.0))
    for variable in agent.network.trainable_variables[-2:]:
        variable.assign(variable * 0.0 + 1e5)
    fit(agent, CounterEnv())
    rng = np.random.default_rng(0)
    values = np.array([[1e5, 1e5 - 1.0, 0.0]] * 4_000)
    chosen = agent.exploration(lambda: values, 0, rng)
    share = np.bincount(chosen, minlength=3) / 4_000
    e = np.exp(1.0)
    np.testing.assert_allclose(share, [e / (1 + e), 1 / (1 + e), 0.0], atol=0.03)


def test_a_critic_that_ignores_the_action_is_the_reason_that_is_given():  # B076
    class Deaf(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.last = keras.layers.Dense(1)

        def call(self, observation, action):
            return self.last(observation)

        def get_config(self):
            return {}

    actor = keras.Sequential([keras.layers.Dense(1, "tanh")])
    agent = compiled(DDPG(actor, Deaf()))
    env = SpaceEnv(gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-1, 1, (1,)))
    with pytest.raises(
        ValueError, match="critic whose output does not depend on the ac"
    ):
        fit(agent, env)
    assert agent.gradient_steps == 0


def test_an_actor_that_is_frozen_is_named():  # B076
    env = SpaceEnv(gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-1, 1, (1,)))
    actor = keras.Sequential([keras.layers.Dense(1, "tanh")])
    actor.trainable = False
    critic = DDPG.from_env(env, hidden=(4,)).critic
    with pytest.raises(ValueError, match="`actor` has no trainable variable"):
        fit(compiled(DDPG(actor, critic)), env)
    assert env.taken == []


def test_two_agents_do_not_share_a_memory():  # C062
    one, other = made(CounterEnv(), memory=ReplayMemory(50)), made(CounterEnv())
    fit(one, CounterEnv())
    assert (len(one.memory), len(other.memory)) == (24, 0)
