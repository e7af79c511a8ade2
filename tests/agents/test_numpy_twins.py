"""Whole training steps of DQN and DDPG, once more in NumPy, with gradients by hand.

Networks are tanh 2x32: the kinks of ReLU would amplify rounding. The twins compute in
float64, so what is left between them and an agent is the rounding of float32.
"""

import copy

import gymnasium as gym
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import ReplayMemory
from keras_rl2x import ops
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.types import Transition

OBSERVATIONS, ACTIONS, HIDDEN, BATCH = 5, 3, 32, 16
GAMMA, RATE = 0.9, 3e-3
LOW, HIGH = np.array([2.0, -1.0]), np.array([6.0, 0.0])


# ------------------------------------------------------------------ NumPy: networks


def random_weights(sizes, rng):
    """Kernels and biases in the order of `get_weights`."""
    weights = []
    for fan_in, fan_out in zip(sizes, sizes[1:]):
        weights.append(rng.normal(0, fan_in**-0.5, (fan_in, fan_out)))
        weights.append(rng.normal(0, 0.1, fan_out))
    return weights


def two_networks(sizes, rng):
    """Weights of an online and of a target network."""
    return random_weights(sizes, rng), random_weights(sizes, rng)


def forward(weights, x, tanh_output=False):
    """Output, and the layers' outputs, which `backward` needs."""
    outputs = [np.asarray(x, np.float64)]
    last = len(weights) - 2
    for i in range(0, len(weights), 2):
        z = outputs[-1] @ weights[i] + weights[i + 1]
        outputs.append(np.tanh(z) if i < last or tanh_output else z)
    return outputs[-1], outputs


def backward(weights, outputs, slope, tanh_output=False):
    """Gradients of the weights and of the input, from that of the output."""
    gradients = [None] * len(weights)
    last = len(weights) - 2
    for i in range(last, -1, -2):
        y = outputs[i // 2 + 1]
        if i < last or tanh_output:
            slope = slope * (1 - y**2)
        gradients[i] = outputs[i // 2].T @ slope
        gradients[i + 1] = slope.sum(axis=0)
        slope = slope @ weights[i].T
    return gradients, slope


class Adam:
    """As Keras: `epsilon` is added before the bias of the moments is corrected."""

    def __init__(self, rate):
        self.rate, self.step, self.moments = rate, 0, None

    def apply(self, weights, gradients):
        if self.moments is None:
            self.moments = [[np.zeros_like(w) for w in weights] for _ in range(2)]
        self.step += 1
        alpha = self.rate * np.sqrt(1 - 0.999**self.step) / (1 - 0.9**self.step)
        for w, g, m, v in zip(weights, gradients, *self.moments, strict=True):
            m += (g - m) * 0.1
            v += (g**2 - v) * 0.001
            w -= alpha * m / (np.sqrt(v) + 1e-7)


class SGD:
    """With a rate of 1 the change of the weights is the gradient."""

    def __init__(self, rate):
        self.rate = rate

    def apply(self, weights, gradients):
        for w, g in zip(weights, gradients, strict=True):
            w -= self.rate * g


def polyak(target, online, tau):
    for slow, fast in zip(target, online, strict=True):
        slow += tau * (fast - slow)


def mse(error):
    """Loss per sample and its slope by the value, of `error = value - target`."""
    return error**2, 2 * error


def huber(error):
    inside = np.abs(error) <= 1
    loss = np.where(inside, 0.5 * error**2, np.abs(error) - 0.5)
    return loss, np.clip(error, -1, 1)


LOSSES = {"mse": mse, "huber": huber}


# -------------------------------------------------------------------- NumPy: agents


class NumpyDQN:
    def __init__(self, networks, double, loss, rule, optimizer):
        self.network, self.target = copy.deepcopy(networks)
        self.double, self.loss, self.rule = double, LOSSES[loss], rule
        self.optimizer, self.steps = optimizer, 0

    def targets(self, batch):
        next_target, _ = forward(self.target, batch.next_observation)
        next_online, _ = forward(self.network, batch.next_observation)
        best = (next_online if self.double else next_target).argmax(axis=1)
        next_value = next_target[np.arange(len(best)), best]
        return batch.reward + batch.discount * next_value

    def loss_of(self, weights, batch, targets):
        """Loss, and its slope by each Q-value."""
        q_values, outputs = forward(weights, batch.observation)
        rows = np.arange(len(q_values))
        loss, slope = self.loss(q_values[rows, batch.action] - targets)
        weight = 1.0 if batch.weight is None else batch.weight
        slopes = np.zeros_like(q_values)
        slopes[rows, batch.action] = weight * slope / len(rows)
        return np.mean(weight * loss), slopes, outputs

    def train(self, batch):
        loss, slopes, outputs = self.loss_of(self.network, batch, self.targets(batch))
        gradients, _ = backward(self.network, outputs, slopes)
        self.optimizer.apply(self.network, gradients)
        self.steps += 1
        if self.rule.tau:
            polyak(self.target, self.network, self.rule.tau)
        elif self.steps % self.rule.period == 0:
            polyak(self.target, self.network, 1.0)
        return loss


class NumpyDDPG:
    def __init__(self, actors, critics, tau, make_optimizer):
        self.actor, self.target_actor = copy.deepcopy(actors)
        self.critic, self.target_critic = copy.deepcopy(critics)
        self.tau = tau
        self.optimizers = make_optimizer(), make_optimizer(0.3)

    @staticmethod
    def pair(observation, action):
        return np.concatenate([observation, action], axis=1)

    @staticmethod
    def action_of(batch):
        """From the env's units to [-1, 1]."""
        return 2 * (batch.action - LOW) / (HIGH - LOW) - 1

    def targets(self, batch):
        next_action, _ = forward(self.target_actor, batch.next_observation, True)
        pair = self.pair(batch.next_observation, next_action)
        return (
            batch.reward + batch.discount * forward(self.target_critic, pair)[0][:, 0]
        )

    def critic_loss(self, critic, batch, targets):
        pair = self.pair(batch.observation, self.action_of(batch))
        values, outputs = forward(critic, pair)
        error = values[:, 0] - targets
        weight = 1.0 if batch.weight is None else batch.weight
        slopes = (weight * 2 * error / len(error))[:, None]
        return np.mean(weight * error**2), backward(critic, outputs, slopes)[0]

    def actor_loss(self, actor, batch):
        action, actor_outputs = forward(actor, batch.observation, True)
        pair = self.pair(batch.observation, action)
        values, critic_outputs = forward(self.critic, pair)
        slopes = np.full_like(values, -1 / len(values))
        by_pair = backward(self.critic, critic_outputs, slopes)[1]
        by_action = by_pair[:, OBSERVATIONS:]
        return -values.mean(), backward(actor, actor_outputs, by_action, True)[0]

    def train(self, batch):
        loss, gradients = self.critic_loss(self.critic, batch, self.targets(batch))
        self.optimizers[0].apply(self.critic, gradients)
        actor_loss, gradients = self.actor_loss(self.actor, batch)
        self.optimizers[1].apply(self.actor, gradients)
        polyak(self.target_critic, self.critic, self.tau)
        polyak(self.target_actor, self.actor, self.tau)
        return loss, actor_loss


# ----------------------------------------------------------------- the Keras agents


class Spaces(gym.Env):
    """Only its spaces are used."""

    def __init__(self, action_space):
        self.observation_space = gym.spaces.Box(-9, 9, (OBSERVATIONS,))
        self.action_space = action_space


def mlp(x, outputs, activation=None):
    for _ in range(2):
        x = keras.layers.Dense(HIDDEN, activation="tanh")(x)
    return keras.layers.Dense(outputs, activation=activation)(x)


# Online and target networks start apart, so that one in place of the other shows in
# the very first step. XLA is left to one case: it takes seconds to compile.


def make_dqn(networks, optimizer, loss="mse", rule=None, jit_compile=False, **settings):
    observation = keras.Input((OBSERVATIONS,))
    network = keras.Model(observation, mlp(observation, ACTIONS))
    network.set_weights(networks[0])
    agent = DQN(network, gamma=GAMMA, **settings)
    env = Spaces(gym.spaces.Discrete(ACTIONS))
    agent.bind(env.observation_space, env.action_space)
    agent.target_network.set_weights(networks[1])
    agent.compile(optimizer, loss=loss, jit_compile=jit_compile)
    agent.target_update = rule or TargetUpdate(tau=0.05)
    return agent


def make_ddpg(actors, critics, optimizers, tau, jit_compile=False):
    observation = keras.Input((OBSERVATIONS,))
    action = keras.Input((len(LOW),))
    actor = keras.Model(observation, mlp(observation, len(LOW), "tanh"))
    pair = keras.layers.Concatenate()([observation, action])
    critic = keras.Model([observation, action], mlp(pair, 1))
    actor.set_weights(actors[0])
    critic.set_weights(critics[0])
    agent = DDPG(actor, critic, gamma=GAMMA)
    env = Spaces(gym.spaces.Box(LOW.astype("float32"), HIGH.astype("float32")))
    agent.bind(env.observation_space, env.action_space)
    agent.target_actor.set_weights(actors[1])
    agent.target_critic.set_weights(critics[1])
    agent.compile(*optimizers, jit_compile=jit_compile)
    agent.target_update = TargetUpdate(tau=tau)
    return agent


def random_batch(rng, action, weighted=False):
    discount = GAMMA * (rng.random(BATCH) > 0.3)
    return Transition(
        observation=rng.normal(size=(BATCH, OBSERVATIONS)).astype("float32"),
        action=action,
        reward=rng.normal(0, 2, BATCH).astype("float32"),
        discount=discount.astype("float32"),
        next_observation=rng.normal(size=(BATCH, OBSERVATIONS)).astype("float32"),
        weight=rng.uniform(0.1, 1, BATCH).astype("float32") if weighted else None,
    )


def discrete_batches(rng, count, weighted=False):
    for _ in range(count):
        yield random_batch(rng, rng.integers(ACTIONS, size=BATCH), weighted)


def continuous_batches(rng, count, weighted=False):
    for _ in range(count):
        action = rng.uniform(LOW, HIGH, (BATCH, len(LOW))).astype("float32")
        yield random_batch(rng, action, weighted)


def change(before, after):
    """The largest difference in each array."""
    return [np.abs(a - b).max() for a, b in zip(before, after, strict=True)]


def largest_difference(networks, twins):
    return max(
        np.abs(a - b).max()
        for network, twin in zip(networks, twins, strict=True)
        for a, b in zip(network.get_weights(), twin, strict=True)
    )


# --------------------------------------------------------------------- whole steps


@pytest.mark.parametrize(
    ("double", "loss", "rule", "weighted"),
    [
        (False, "mse", TargetUpdate(tau=0.05), False),
        (True, "mse", TargetUpdate(tau=0.05), True),
        (True, "huber", TargetUpdate(tau=0.001), False),
        (False, "huber", TargetUpdate(period=3), True),
    ],
    ids=["plain, mse", "double, weighted mse", "double, huber", "plain, period"],
)
def test_dqn_equals_its_numpy_twin(double, loss, rule, weighted):
    rng = np.random.default_rng(1)
    networks = two_networks((OBSERVATIONS, HIDDEN, HIDDEN, ACTIONS), rng)
    twin = NumpyDQN(networks, double, loss, rule, Adam(RATE))
    agent = make_dqn(
        networks,
        keras.optimizers.Adam(RATE),
        loss,
        rule,
        jit_compile=double and not weighted,
        double=double,
    )
    for step, batch in enumerate(discrete_batches(rng, 10, weighted), start=1):
        logs = agent.train_on_batch(batch)
        assert logs["loss"] == pytest.approx(twin.train(batch), rel=1e-4)
        if step in (1, 10):
            difference = largest_difference(
                (agent.network, agent.target_network), (twin.network, twin.target)
            )
            assert difference < 1e-5
    assert min(change(networks[0], twin.network)) > RATE, "it hardly learned"


def test_double_and_plain_dqn_are_far_enough_apart_to_be_told_by_their_twins():
    rng = np.random.default_rng(1)
    networks = two_networks((OBSERVATIONS, HIDDEN, HIDDEN, ACTIONS), rng)
    batches = list(discrete_batches(rng, 10))
    learned = []
    for double in (False, True):
        twin = NumpyDQN(networks, double, "mse", TargetUpdate(tau=0.05), Adam(RATE))
        for batch in batches:
            twin.train(batch)
        learned.append(twin.network)
    assert max(change(*learned)) > 1e-3


def test_n_step_dqn_equals_its_numpy_twin_on_episodes():
    rng = np.random.default_rng(2)
    networks = two_networks((OBSERVATIONS, HIDDEN, HIDDEN, ACTIONS), rng)
    rule = TargetUpdate(tau=0.05)
    twin = NumpyDQN(networks, True, "huber", rule, Adam(RATE))
    agent = make_dqn(networks, keras.optimizers.Adam(RATE), "huber", rule, n_step=3)
    episodes, memory = [], ReplayMemory(100)
    for length, terminated in ((7, True), (2, False), (1, True), (9, False), (4, True)):
        observations = rng.normal(size=(length + 1, OBSERVATIONS)).astype("float32")
        actions = rng.integers(ACTIONS, size=length)
        rewards = rng.normal(0, 2, length)
        episodes.append((observations, actions, rewards, terminated))
        memory.add_episode(observations, actions, rewards, terminated=terminated)
    for step in range(1, 11):
        batch = memory.sample(BATCH, gamma=agent.gamma, n_step=agent.n_step, rng=rng)
        starts = np.asarray(batch.observation).reshape(BATCH, OBSERVATIONS)
        agent.train_on_batch(batch)
        twin.train(n_step_batch(episodes, starts, n=3))
        if step in (1, 10):
            difference = largest_difference(
                (agent.network, agent.target_network), (twin.network, twin.target)
            )
            assert difference < 1e-5


def n_step_batch(episodes, starts, n):
    """The transitions that begin at some observations, summed up one by one."""
    rows = []
    for start in starts:
        for observations, actions, rewards, terminated in episodes:
            found = np.flatnonzero((observations[:-1] == start).all(axis=1))
            if len(found):
                t, end = found[0], min(found[0] + n, len(actions))
                reward = sum(GAMMA**k * rewards[t + k] for k in range(end - t))
                over = terminated and end == len(actions)
                discount = 0.0 if over else GAMMA ** (end - t)
                rows.append((start, actions[t], reward, discount, observations[end]))
    assert len(rows) == len(starts)
    return Transition(*map(np.array, zip(*rows, strict=True)))


@pytest.mark.parametrize("weighted", [False, True])
def test_ddpg_equals_its_numpy_twin(weighted):
    rng = np.random.default_rng(3)
    size = OBSERVATIONS + len(LOW)
    actors = two_networks((OBSERVATIONS, HIDDEN, HIDDEN, len(LOW)), rng)
    critics = two_networks((size, HIDDEN, HIDDEN, 1), rng)
    twin = NumpyDDPG(actors, critics, 0.05, lambda part=1.0: Adam(part * RATE))
    optimizers = keras.optimizers.Adam(RATE), keras.optimizers.Adam(0.3 * RATE)
    agent = make_ddpg(actors, critics, optimizers, tau=0.05, jit_compile=weighted)
    for step, batch in enumerate(continuous_batches(rng, 10, weighted), start=1):
        logs = agent.train_on_batch(batch)
        loss, actor_loss = twin.train(batch)
        assert logs["loss"] == pytest.approx(loss, rel=1e-4)
        assert logs["actor_loss"] == pytest.approx(actor_loss, rel=1e-4)
        if step in (1, 10):
            difference = largest_difference(
                (agent.critic, agent.actor, agent.target_critic, agent.target_actor),
                (twin.critic, twin.actor, twin.target_critic, twin.target_actor),
            )
            assert difference < 1e-5


# ------------------------------------------------------------- finite differences


def central_differences(loss, weights, h=1e-5):
    """Gradient of `loss(weights)` by one weight after the other."""
    gradients = [np.zeros_like(w) for w in weights]
    for w, g in zip(weights, gradients, strict=True):
        for at in np.ndindex(w.shape):
            value = w[at]
            w[at] = value + h
            above = loss(weights)
            w[at] = value - h
            g[at] = (above - loss(weights)) / (2 * h)
            w[at] = value
    return gradients


def relative_error(gradients, expected):
    largest = max(np.abs(e).max() for e in expected)
    pairs = zip(gradients, expected, strict=True)
    return max(np.abs(g - e).max() for g, e in pairs) / largest


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_gradient_of_the_q_loss_is_that_of_finite_differences(loss):
    """In float64 with a network of two tanh units: autodiff, and the twin by hand."""
    rng = np.random.default_rng(4)
    networks = two_networks((OBSERVATIONS, 2, ACTIONS), rng)
    (batch,) = discrete_batches(rng, 1)
    twin = NumpyDQN(networks, True, loss, TargetUpdate(tau=0.1), SGD(1.0))
    targets = twin.targets(batch)
    expected = central_differences(
        lambda weights: twin.loss_of(weights, batch, targets)[0], twin.network
    )
    _, slopes, outputs = twin.loss_of(twin.network, batch, targets)
    gradients, _ = backward(twin.network, outputs, slopes)
    assert relative_error(gradients, expected) < 1e-6

    network = keras.Sequential(
        [
            keras.Input((OBSERVATIONS,), dtype="float64"),
            keras.layers.Dense(2, activation="tanh", dtype="float64"),
            keras.layers.Dense(ACTIONS, dtype="float64"),
        ]
    )
    network.set_weights(twin.network)
    loss_class = {
        "mse": keras.losses.MeanSquaredError,
        "huber": keras.losses.Huber,
    }[loss]
    with tf.GradientTape() as tape:
        q_values = network(batch.observation.astype("float64"), training=True)
        values = ops.select(q_values, batch.action)
        total = loss_class(dtype="float64")(targets[:, None], values[:, None])
    gradients = tape.gradient(total, network.trainable_variables)
    assert relative_error([g.numpy() for g in gradients], expected) < 1e-6


def test_gradients_of_ddpg_by_hand_are_those_of_finite_differences():
    rng = np.random.default_rng(5)
    actors = two_networks((OBSERVATIONS, 2, len(LOW)), rng)
    critics = two_networks((OBSERVATIONS + len(LOW), 2, 1), rng)
    twin = NumpyDDPG(actors, critics, 0.05, lambda part=1.0: SGD(part))
    (batch,) = continuous_batches(rng, 1)
    targets = twin.targets(batch)
    _, gradients = twin.critic_loss(twin.critic, batch, targets)
    expected = central_differences(
        lambda weights: twin.critic_loss(weights, batch, targets)[0], twin.critic
    )
    assert relative_error(gradients, expected) < 1e-6
    _, gradients = twin.actor_loss(twin.actor, batch)
    expected = central_differences(
        lambda weights: twin.actor_loss(weights, batch)[0], twin.actor
    )
    assert relative_error(gradients, expected) < 1e-6


def test_one_step_of_dqn_with_sgd_goes_down_the_gradient():
    """What the agent applies is the gradient itself: no clipping, no other scale."""
    rng = np.random.default_rng(6)
    networks = two_networks((OBSERVATIONS, HIDDEN, HIDDEN, ACTIONS), rng)
    (batch,) = discrete_batches(rng, 1)
    twin = NumpyDQN(networks, True, "mse", TargetUpdate(tau=0.05), SGD(1.0))
    agent = make_dqn(networks, keras.optimizers.SGD(1.0))
    twin.train(batch)
    norms = agent.gradient_norms(batch)
    agent.train_on_batch(batch)
    assert largest_difference([agent.network], [twin.network]) < 1e-5
    pairs = zip(networks[0], twin.network, strict=True)
    steps = [np.linalg.norm(before - after) for before, after in pairs]
    np.testing.assert_allclose(list(norms.values()), steps, rtol=1e-4)


@pytest.mark.parametrize("double", [False, True])
def test_no_gradient_flows_through_the_targets_of_dqn(double):
    rng = np.random.default_rng(7)
    networks = two_networks((OBSERVATIONS, HIDDEN, HIDDEN, ACTIONS), rng)
    agent = make_dqn(networks, keras.optimizers.Adam(), double=double)
    (batch,) = discrete_batches(rng, 1)
    variables = [*agent.network.variables, *agent.target_network.variables]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        for variable in variables:
            tape.watch(variable.value)
        next_values = agent.next_values(batch.next_observation, None)
        targets = ops.td_target(batch.reward, batch.discount, next_values)
    gradients = tape.gradient(targets, [variable.value for variable in variables])
    assert gradients == [None] * len(variables)
