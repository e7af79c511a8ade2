"""A zoo of faulty set-ups, each with the code of the finding that is its cause.

A `Fault` makes a compiled agent and an environment, with the fault or cured of it;
`check` says whether the cured agent has learned its probe. A `Program` is training
code that does not use our agents, for `explain_gradients`. `HEALTHY` are runs in which
nothing is wrong.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf
from keras import layers

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x import ops
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.diagnostics import Health
from keras_rl2x.envs import probes
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration import Exploration
from keras_rl2x.exploration import GaussianNoise

STEPS = 2_000
Adam = keras.optimizers.Adam


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        name: what was done wrong.
        code: of the first finding.
        make: `cured -> (agent, env)`; the agent is compiled.
        quick: whether it is cheap enough for every run of the tests.
        check: `agent -> None`, raises unless the cured agent has learned; `None` where
            the task is no probe.
        evaluated: whether the finding needs `validation_data`.
        before: whether `agent.diagnose(env)` is to find it.
    """

    name: str
    code: str
    make: Callable[[bool], tuple[Any, gym.Env]]
    quick: bool = False
    check: Callable[[Any], None] | None = None
    evaluated: bool = False
    before: bool = False


FAULTS: list[Fault] = []


def fault(code: str, **options: Any) -> Callable:
    """Adds a function `cured -> (agent, env)` to the zoo."""

    def add(make: Callable) -> Callable:
        name = make.__name__.replace("_", " ")
        FAULTS.append(Fault(name, code, make, **options))
        return make

    return add


def run(each: Fault, cured: bool = False, steps: int = STEPS) -> tuple[Any, list]:
    """Trains for some steps, or until something is found.

    Returns:
        The agent, and the findings.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what `bind` says already
        keras.utils.set_random_seed(0)
        agent, env = each.make(cured)
        if each.before and not cured:
            return agent, list(agent.diagnose(env).findings)
        health = Health(stop_on=None if cured else "warning", verbose=False)
        evaluation = {}
        if each.evaluated:
            evaluation = {"validation_data": each.make(cured)[1]}
        try:
            agent.fit(
                env,
                epochs=4,
                steps_per_epoch=steps // 4,
                batch_size=32,
                callbacks=[health],
                seed=0,
                verbose=0,
                **evaluation,
            )
        except (ValueError, FloatingPointError):
            # What is found is, at times, an error of `fit` as well.
            if not health.findings:
                raise
        assert health.problem is None, health.problem
        return agent, health.findings


# ----------------------------------------------------------------------- parts


def q_network(env, *hidden, activation="relu", last=None, first=(), **kwargs):
    shape, count = env.observation_space.shape, int(env.action_space.n)
    return keras.Sequential(
        [
            keras.Input(shape),
            *first,
            layers.Flatten(),
            *(layers.Dense(n, activation, **kwargs) for n in hidden or (32,)),
            layers.Dense(count, last, name="q_values"),
        ]
    )


def dqn(env, network=None, kind=DQN, gamma=0.9, rule=None, **kwargs):
    agent = kind(network or q_network(env), gamma=gamma)
    settings = {
        "optimizer": Adam(3e-3),
        "loss": "mse",
        "exploration": EpsilonGreedy(0.4),
        "memory": ReplayMemory(5_000),
        "warmup_steps": 300,
        "jit_compile": False,
    }
    agent.compile(**settings | kwargs)
    agent.target_update = rule or TargetUpdate(tau=0.05)
    return agent


def small(limit):
    return keras.initializers.RandomUniform(-limit, limit)


def actor_of(*hidden, size=3, activation="relu", before=(), after=(), bias=0.0):
    last = layers.Dense(
        1,
        kernel_initializer=small(3e-3),
        bias_initializer=keras.initializers.Constant(bias),
    )
    return keras.Sequential(
        [
            keras.Input((size,)),
            *(layers.Dense(n, activation) for n in hidden or (32,)),
            last,
            *before,
            layers.Activation("tanh"),
            *after,
        ]
    )


def critic_of(size=3, action_scale=1.0, last=None, action_used=True):
    observation, action = keras.Input((size,)), keras.Input((1,))
    parts = [observation]
    if action_used:
        parts.append(layers.Rescaling(action_scale)(action))
    x = layers.Concatenate()(parts) if action_used else observation
    x = layers.Dense(64, "relu")(x)
    x = layers.Dense(64, "relu")(x)
    return keras.Model([observation, action], layers.Dense(1, last)(x))


def ddpg(actor=None, critic=None, kind=DDPG, gamma=0.9, rule=None, size=3, **kwargs):
    agent = kind(actor or actor_of(size=size), critic or critic_of(size), gamma=gamma)
    settings = {
        "optimizer": Adam(3e-3),
        "actor_optimizer": Adam(1e-3),
        "loss": "mse",
        "exploration": GaussianNoise(0.3),
        "memory": ReplayMemory(5_000),
        "warmup_steps": 300,
        "jit_compile": False,
    }
    agent.compile(**settings | kwargs)
    agent.target_update = rule or TargetUpdate(tau=0.05)
    return agent


def pendulum():
    """The pendulum, with observations in [-1, 1] and rewards of size 1."""
    env = gym.wrappers.RescaleObservation(
        gym.make("Pendulum-v1"), np.float32(-1.0), np.float32(1.0)
    )
    return gym.wrappers.TransformReward(env, lambda reward: 0.2 * reward)


def learned(probe, atol=None):
    """A check: values as the probe's docstring works them out."""

    def check(agent):
        q_values = np.asarray(agent(probe().observations()))
        for state, expected in probe.expected.items():
            atol_ = atol or 2 * probe.tolerance
            np.testing.assert_allclose(q_values[state], expected, rtol=0, atol=atol_)

    return check


def found_three(agent):
    """A check for `AsymmetricActionProbe`: the best action is 3."""
    assert abs(float(agent.act(np.ones(1, np.float32))[0]) - 3.0) < 0.4


CORRIDOR = learned(probes.CorridorProbe)
XOR = learned(probes.XorProbe)


# ------------------------------------------------------------------------ data


class CarelessMemory(ReplayMemory):
    """Stores the observation in the place of the next one."""

    def add(self, step, columns=None):
        super().add(step._replace(next_observation=step.observation), columns)


class Endless(gym.Env):
    """A walk that nobody ends; actions push it."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(2, np.float32)
        return self.place.copy(), {}

    def step(self, action):
        self.place[0] += 0.1 * (2 * action - 1)
        self.place[1] += self.np_random.normal(0.0, 0.1)
        self.place = np.clip(self.place, -1.0, 1.0)
        return self.place.copy(), -abs(float(self.place[0])), False, False, {}


@fault("observations_unchanged", quick=True, check=CORRIDOR)
def observation_stored_as_next_observation(cured):
    env = probes.CorridorProbe()
    return dqn(env, memory=(ReplayMemory if cured else CarelessMemory)(5_000)), env


@fault("learning_too_early", quick=True, check=CORRIDOR)
def nearly_empty_memory(cured):
    env = probes.CorridorProbe()
    return dqn(env, warmup_steps=500 if cured else 32), env


@fault("reward_constant", before=True)
def reward_is_always_zero(cured):
    env = gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: 0.0)
    return dqn(env), env


@fault("reward_constant")
def constant_reward_without_an_end(cured):
    env = probes.NeverEndsProbe()
    return dqn(env), env


@fault("episodes_never_end")
def an_episode_that_never_ends(cured):
    env = Endless()
    return dqn(env), env


@fault("endless_without_discount", before=True)
def no_discount_on_a_task_without_end(cured):
    return ddpg(gamma=1.0), pendulum()


@fault("reward_scale", quick=True, check=learned(probes.ActionProbe))
def rewards_of_a_thousand(cured):
    env = probes.RewardScaleProbe()
    if cured:
        env = gym.wrappers.TransformReward(env, lambda reward: 1e-3 * reward)
    return dqn(env), env


@fault("reward_scale")
def rewards_of_a_millionth(cured):
    env = gym.wrappers.TransformReward(pendulum(), lambda reward: 1e-6 * reward)
    return ddpg(), env


# -------------------------------------------------------------------- networks


@fault("inputs_unscaled", check=learned(probes.ImageScaleProbe))
def pixels_of_0_to_255(cured):
    env = probes.ImageScaleProbe()
    first = [layers.Rescaling(1 / 255 if cured else 1.0)]
    return dqn(env, q_network(env, first=first)), env


@fault("inputs_unscaled", quick=True)
def dimensions_four_orders_apart(cured):
    env = gym.wrappers.TransformObservation(
        gym.make("CartPole-v1"),
        lambda x: np.float32(x * [10.0, 1e-4, 1.0, 1.0]),
        gym.spaces.Box(-np.inf, np.inf, (4,), np.float32),
    )
    return dqn(env), env


@fault("inputs_tiny", quick=True, check=learned(probes.ImageScaleProbe))
def pixels_divided_by_255_twice(cured):
    env = probes.ImageScaleProbe()
    first = [layers.Rescaling(1 / 255)] * (1 if cured else 2)
    first = [layers.Rescaling.from_config(layer.get_config()) for layer in first]
    for i, layer in enumerate(first):
        layer.name = f"rescaling_{i}"
    return dqn(env, q_network(env, first=first)), env


@fault("values_squashed", quick=True, check=CORRIDOR)
def q_network_ends_in_softmax(cured):
    env = probes.CorridorProbe()
    return dqn(env, q_network(env, last=None if cured else "softmax")), env


@fault("values_squashed", before=True)
def critic_ends_in_sigmoid(cured):
    return ddpg(critic=critic_of(last="sigmoid")), pendulum()


@fault("layouts_mixed", before=True, quick=True)
def data_format_in_the_first_layer_only(cured):
    env = gym.wrappers.TransformObservation(
        probes.ImageScaleProbe((3, 16, 16)), np.asarray,
        gym.spaces.Box(0, 255, (3, 16, 16), np.uint8),
    )  # fmt: skip
    network = keras.Sequential(
        [
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 4, 2, "valid", data_format="channels_first"),
            layers.Conv2D(8, 3, 1, activation="relu"),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    return dqn(env, network), env


@fault("dead_units", quick=True, check=CORRIDOR)
def relu_units_that_begin_dead(cured):
    env = probes.CorridorProbe()
    bias = keras.initializers.Constant(0.0 if cured else -10.0)
    return dqn(env, q_network(env, bias_initializer=bias)), env


@fault("hidden_saturated", check=XOR)
def tanh_units_saturated_by_large_weights(cured):
    env = probes.XorProbe()
    deviation = 0.5 if cured else 500.0
    start = keras.initializers.RandomNormal(0.0, deviation, seed=1)
    network = q_network(env, 32, activation="tanh", kernel_initializer=start)
    return dqn(env, network), env


@fault("hidden_saturated")
def sigmoid_units_saturated_by_large_weights(cured):
    env = gym.make("CartPole-v1")
    start = keras.initializers.RandomNormal(0.0, 1_000.0, seed=1)
    network = q_network(env, 32, activation="sigmoid", kernel_initializer=start)
    return dqn(env, network), env


@fault("critic_ignores_action")
def action_scaled_away_in_the_critic(cured):
    return ddpg(critic=critic_of(action_scale=1.0 if cured else 1e-8)), pendulum()


@fault("vanishing_gradients", quick=True, check=CORRIDOR)
def eight_sigmoid_layers(cured):
    env = probes.CorridorProbe()
    hidden = [32] * (2 if cured else 8)
    activation = "relu" if cured else "sigmoid"
    return dqn(env, q_network(env, *hidden, activation=activation)), env


@fault("vanishing_gradients")
def an_actor_of_eight_sigmoid_layers(cured):
    return ddpg(actor_of(*[32] * 8, activation="sigmoid")), pendulum()


# ---------------------------------------------------------------------- acting


class FirstAction(Exploration):
    """A rule that forgot to explore, and to look."""

    actions = "discrete"

    def __call__(self, policy, step, rng, action_mask=None):
        return np.zeros(len(policy()), int)

    def get_config(self):
        return {}


@fault("exploration_gone", quick=True, check=XOR)
def greedy_from_the_first_step(cured):
    env = probes.XorProbe()
    return dqn(env, exploration=EpsilonGreedy(0.4 if cured else 0.0)), env


@fault("exploration_gone")
def exploration_over_before_learning_begins(cured):
    decay = keras.optimizers.schedules.PolynomialDecay(1.0, 200, 0.0)
    env = gym.make("CartPole-v1")
    return dqn(env, exploration=EpsilonGreedy(decay), warmup_steps=500), env


@fault("exploration_gone")
def no_noise_on_the_actions(cured):
    return ddpg(exploration=GaussianNoise(0.0)), pendulum()


@fault("exploration_never_decays")
def random_for_ever(cured):
    env = gym.make("CartPole-v1")
    return dqn(env, exploration=EpsilonGreedy(1.0)), env


@fault("noise_too_loud", check=found_three)
def noise_in_units_of_the_environment(cured):
    env = probes.AsymmetricActionProbe()
    return ddpg(size=1, exploration=GaussianNoise(0.5 if cured else 5.0)), env


@fault("actor_out_of_range", check=found_three)
def an_actor_that_scales_to_the_bounds_itself(cured):
    after, bias = ([], 0.0) if cured else ([layers.Rescaling(6.0)], 1.0)
    actor = actor_of(size=1, after=after, bias=bias)
    return ddpg(actor, size=1), probes.AsymmetricActionProbe()


@fault("actor_saturated", check=found_three)
def scaling_before_the_activation(cured):
    actor = actor_of(size=1, before=[] if cured else [layers.Rescaling(1e4)])
    return ddpg(actor, size=1), probes.AsymmetricActionProbe()


@fault("one_action")
def a_rule_that_always_takes_the_first_action(cured):
    env = gym.make("CartPole-v1")
    return dqn(env, exploration=FirstAction()), env


# --------------------------------------------------------------------- targets


class NoTargetDQN(DQN):
    """The TD target comes from the online network."""

    def next_values(self, next_observation, next_action_mask):
        q_values = self.network(next_observation, training=False)
        return ops.q_learning_value(q_values, next_action_mask)


class FrozenTargetDQN(DQN):
    """The target network is never updated."""

    def update_targets(self):
        pass


class OnlineDDPG(DDPG):
    """DDPG with online networks in the TD target."""

    online_actor = online_critic = False

    def train_step(self, batch):
        target_actor, target_critic = self.target_actor, self.target_critic
        actor = self.actor if self.online_actor else target_actor
        critic = self.critic if self.online_critic else target_critic
        next_action = actor(batch.next_observation, training=False)
        next_values = self.value(
            critic, batch.next_observation, next_action, training=False
        )
        targets = ops.td_target(batch.reward, batch.discount, next_values)
        with tf.GradientTape() as tape:
            values = self.value(self.critic, batch.observation, batch.action, True)
            loss = self.compute_loss(y=targets[:, None], y_pred=values[:, None])
        self.apply_gradients(tape, loss, self.critic)
        with tf.GradientTape() as tape:
            action = self.actor(batch.observation, training=True)
            values = self.value(self.critic, batch.observation, action, False)
            actor_loss = -tf.reduce_mean(values)
        self.apply_gradients(tape, actor_loss, self.actor)
        self.update_targets()
        return self.track(loss=loss, actor_loss=actor_loss)


class OnlineActorDDPG(OnlineDDPG):
    online_actor = True


class OnlineCriticDDPG(OnlineDDPG):
    online_critic = True


class HardCopyDDPG(DDPG):
    """`target.set_weights(online.get_weights())` after every step."""

    def update_targets(self):
        for online, target in self.targets.items():
            online, target = getattr(self, online), getattr(self, target)
            for slow, fast in zip(target.variables, online.variables, strict=True):
                slow.assign(fast)


@fault("target_unused", check=CORRIDOR)
def target_network_forgotten(cured):
    env = probes.CorridorProbe()
    return dqn(env, kind=DQN if cured else NoTargetDQN), env


@fault("target_unused", before=True, quick=True)
def online_actor_in_the_target(cured):
    return ddpg(kind=OnlineActorDDPG), pendulum()


@fault("target_unused")
def target_critic_forgotten(cured):
    return ddpg(kind=OnlineCriticDDPG), pendulum()


@fault("target_shared")
def one_network_under_two_names(cured):
    env = gym.make("CartPole-v1")
    agent = dqn(env)
    agent.bind(env.observation_space, env.action_space)
    agent.target_network = agent.network
    return agent, env


@fault("target_copied", quick=True, check=CORRIDOR)
def a_tau_of_one(cured):
    env = probes.CorridorProbe()
    return dqn(env, rule=TargetUpdate(tau=0.05 if cured else 1.0)), env


@fault("target_copied")
def a_period_of_one(cured):
    env = gym.make("CartPole-v1")
    return dqn(env, rule=TargetUpdate(period=1)), env


@fault("target_copied")
def set_weights_in_place_of_a_blend(cured):
    return ddpg(kind=HardCopyDDPG), pendulum()


@fault("target_frozen", check=CORRIDOR)
def update_targets_never_called(cured):
    env = probes.CorridorProbe()
    return dqn(env, kind=DQN if cured else FrozenTargetDQN), env


@fault("target_frozen")
def a_period_longer_than_the_run(cured):
    env = gym.make("CartPole-v1")
    return dqn(env, rule=TargetUpdate(period=1_000_000)), env


@fault("target_too_fast")
def a_tau_of_a_half(cured):
    env = gym.make("CartPole-v1")
    return dqn(env, rule=TargetUpdate(tau=0.5)), env


# ------------------------------------------------------------------- gradients


class DetachedDDPG(OnlineDDPG):
    """The actor's action becomes a constant on its way to the critic."""

    def value(self, critic, observation, action, training):
        action = tf.stop_gradient(action)
        return DDPG.value(critic, observation, action, training)


@fault("gradient_missing", before=True, quick=True)
def action_detached_from_the_actor(cured):
    return ddpg(kind=DetachedDDPG), pendulum()


@fault("gradient_missing")
def critic_without_an_action_input(cured):
    return ddpg(critic=critic_of(action_used=False)), pendulum()


@fault("clipping_too_low", check=CORRIDOR)
def clipping_at_1e_4(cured):
    env = probes.CorridorProbe()
    return dqn(env, optimizer=keras.optimizers.SGD(
        0.3, clipnorm=10.0 if cured else 1e-4)), env  # fmt: skip


@fault("nearly_always_clipped")
def clipping_below_every_gradient(cured):
    env = gym.make("CartPole-v1")
    return dqn(env, optimizer=Adam(1e-3, global_clipnorm=0.05)), env


@fault("learning_rate_too_low", check=CORRIDOR)
def a_learning_rate_of_1e_7(cured):
    env = probes.CorridorProbe()
    return dqn(env, optimizer=Adam(3e-3 if cured else 1e-7)), env


@fault("learning_rate_too_low", check=found_three)
def a_learning_rate_of_1e_5_for_the_actor(cured):
    agent = ddpg(size=1, actor_optimizer=Adam(1e-3 if cured else 1e-5))
    return agent, probes.AsymmetricActionProbe()


@fault("learning_rate_too_high", check=CORRIDOR)
def a_learning_rate_of_ten(cured):
    env = probes.CorridorProbe()
    return dqn(env, optimizer=Adam(3e-3 if cured else 10.0)), env


@fault("exploding_gradients")
def initial_weights_of_a_hundred(cured):
    env = gym.make("CartPole-v1")
    start = keras.initializers.RandomNormal(0.0, 100.0, seed=1)
    return dqn(env, q_network(env, 32, 32, kernel_initializer=start)), env


# ---------------------------------------------------------------------- values


class UndiscountedDQN(DQN):
    """A target without discount."""

    def next_values(self, next_observation, next_action_mask):
        return super().next_values(next_observation, next_action_mask) / self.gamma


class DoublingDQN(DQN):
    """A next value that counts twice."""

    def next_values(self, next_observation, next_action_mask):
        return 2.0 * super().next_values(next_observation, next_action_mask)


class HopefulDQN(DQN):
    """Takes the best of all that was ever thought for granted."""

    def next_values(self, next_observation, next_action_mask):
        values = super().next_values(next_observation, next_action_mask)
        return values + 0.8


class Tiled(keras.layers.Layer):
    """The same value for every action."""

    def call(self, x):
        return keras.ops.repeat(x, 2, axis=-1)


@fault("values_beyond_bound")
def a_target_without_discount(cured):
    env = gym.wrappers.TimeLimit(Endless(), 50)
    kind = DQN if cured else UndiscountedDQN
    return dqn(env, kind=kind, rule=TargetUpdate(tau=0.3 - 0.11)), env


@fault("values_diverging")
def next_values_counted_twice(cured):
    env = gym.wrappers.TimeLimit(Endless(), 50)
    return dqn(env, kind=DoublingDQN, rule=TargetUpdate(tau=0.1)), env


@fault("overestimation", evaluated=True)
def next_values_that_hope_for_more(cured):
    env = gym.wrappers.TimeLimit(Endless(), 50)
    return dqn(env, kind=HopefulDQN, rule=TargetUpdate(tau=0.1)), env


@fault("no_action_difference")
def one_output_for_all_actions(cured):
    env = gym.make("CartPole-v1")
    network = keras.Sequential(
        [keras.Input((4,)), layers.Dense(32, "relu"), layers.Dense(1), Tiled()]
    )
    return dqn(env, network), env


# -------------------------------------------------------------------- programs


@dataclass(frozen=True)
class Program:
    """Code without our agents.

    Attributes:
        name: what was done wrong.
        cause: of the first variable that is not reached.
        make: returns `(loss_fn, variables)`.
    """

    name: str
    cause: str
    make: Callable[[], tuple[Callable, list]]


PROGRAMS: list[Program] = []


def program(cause: str) -> Callable:
    """Adds a function `() -> (loss_fn, variables)` to the zoo."""

    def add(make: Callable) -> Callable:
        PROGRAMS.append(Program(make.__name__.replace("_", " "), cause, make))
        return make

    return add


STATES = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
ACTIONS = np.arange(8) % 2
TARGETS = np.ones(8, np.float32)


def plain(name="predict"):
    network = keras.Sequential([layers.Dense(16, "relu"), layers.Dense(2)], name=name)
    network.build((None, 4))
    return network


def chosen(q_values):
    return tf.reduce_sum(q_values * tf.one_hot(ACTIONS, 2), axis=1)


def huber(one, other):
    return tf.reduce_mean(keras.losses.huber(one[:, None], other[:, None]))


@program("rebuilt")
def networks_recreated_at_every_call():
    class Agent:
        def net_init(self, state):
            self.predict = plain()
            return self.predict(state)

    agent = Agent()
    agent.net_init(STATES)
    variables = agent.predict.trainable_variables
    return lambda: huber(chosen(agent.net_init(STATES)), TARGETS), variables


@program("constant")
def loss_of_states_and_actions_alone():
    network = plain()

    def loss_fn():
        states, actions = tf.constant(STATES[:, 0]), tf.constant(ACTIONS, tf.float32)
        return huber(states, actions)

    return loss_fn, network.trainable_variables


@program("numpy")
def numpy_in_the_middle():
    network = plain()

    def loss_fn():
        q_values = network(STATES).numpy()
        return huber(chosen(tf.constant(q_values)), TARGETS)

    return loss_fn, network.trainable_variables


@program("unread")
def none_gradients_dropped_before_zipping():
    """What remains is paired with the wrong variables; those without are named."""
    network, value_head = plain(), layers.Dense(1, name="value")
    value_head.build((None, 16))
    variables = value_head.trainable_variables + network.trainable_variables

    def loss_fn():
        return huber(chosen(network(STATES)), TARGETS)

    return loss_fn, variables


@program("cut")
def argmax_in_the_path():
    network = plain()

    def loss_fn():
        action = tf.cast(tf.argmax(network(STATES), axis=1), tf.float32)
        return huber(action, TARGETS)

    return loss_fn, network.trainable_variables


@program("cut")
def target_not_the_prediction_in_the_tape():
    network = plain()

    def loss_fn():
        return huber(tf.stop_gradient(chosen(network(STATES))), TARGETS)

    return loss_fn, network.trainable_variables


# --------------------------------------------------------------------- healthy


@dataclass(frozen=True)
class HealthyRun:
    """A run in which nothing is wrong.

    Attributes:
        name: which.
        make: `seed -> (agent, env)`; the agent is compiled.
        steps: how long.
        quick: whether it runs in every test.
    """

    name: str
    make: Callable[[int], tuple[Any, gym.Env]]
    seed: int = 0
    steps: int = STEPS
    quick: bool = False


def healthy_default(kind, env_id, **kwargs):
    def make(seed):
        env = gym.make(env_id)
        agent = kind.from_env(env, seed=seed, **kwargs)
        agent.compile(jit_compile=False)
        return agent, env

    return make


def healthy_own_network(seed):
    env = gym.make("CartPole-v1")
    agent = DQN(q_network(env, 64, 64, activation="tanh"))
    agent.compile(Adam(1e-3, global_clipnorm=10.0), jit_compile=False)
    return agent, env


def healthy_images(seed):
    env = probes.ImageScaleProbe((12, 12, 1))
    agent = DQN.from_env(env, hidden=(64,), seed=seed)
    agent.compile(warmup_steps=1_000, updates_per_step=0.1)
    return agent, env


def healthy_corridor(seed):
    env = probes.CorridorProbe()
    return dqn(env), env


HEALTHY = [
    HealthyRun("CartPole", healthy_default(DQN, "CartPole-v1"), 1, 6_000),
    HealthyRun("CartPole", healthy_default(DQN, "CartPole-v1"), 2, 6_000),
    HealthyRun("CartPole n_step", healthy_default(DQN, "CartPole-v1", n_step=3), 3),
    HealthyRun(
        "CartPole dueling",
        healthy_default(DQN, "CartPole-v1", hidden=(64,), dueling=True),
        4,
    ),
    HealthyRun("CartPole own network", healthy_own_network, 5, 6_000),
    HealthyRun("Acrobot", healthy_default(DQN, "Acrobot-v1"), 6),
    HealthyRun("Pendulum", healthy_default(DDPG, "Pendulum-v1"), 1, 4_000),
    HealthyRun("Pendulum", healthy_default(DDPG, "Pendulum-v1"), 2, 4_000),
    HealthyRun(
        "Pendulum small", healthy_default(DDPG, "Pendulum-v1", hidden=(64, 64)), 3
    ),
    HealthyRun("images, CNN", healthy_images, 1),
    HealthyRun("corridor", healthy_corridor, 1, 1_000, quick=True),
]


def run_healthy(each: HealthyRun) -> list:
    """Findings of a healthy run."""
    keras.utils.set_random_seed(each.seed)
    agent, env = each.make(each.seed)
    health = Health(verbose=False)
    agent.fit(
        env,
        epochs=4,
        steps_per_epoch=each.steps // 4,
        callbacks=[health],
        validation_data=each.make(each.seed)[1],
        validation_episodes=2,
        seed=each.seed,
        verbose=0,
    )
    assert health.problem is None, health.problem
    return health.findings
