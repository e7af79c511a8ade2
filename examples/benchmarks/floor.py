"""How close an update is to what its matrix products and convolutions alone cost.

For each workload, the same compiled loop is timed twice: with the agent's whole
`train_step`, and with nothing but the products of the same shapes: the forward passes
that the algorithm needs and the backward passes of its losses, without biases,
activations, optimizer, target update or metrics. The floor is the faster of TensorFlow
with XLA and without. Medians of several rounds, in turn.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf
from gymnasium import spaces

from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x.types import Transition

LOOP = 32  # updates per call
VECTOR, FRAMES = spaces.Box(-9, 9, (4,)), spaces.Box(0, 255, (4, 84, 84), np.uint8)
PENDULUM, TORQUE = spaces.Box(-1, 1, (3,)), spaces.Box(-2, 2, (1,))


def mlp(inputs: int, outputs: int, widths: tuple = (256, 256)) -> keras.Model:
    """Products of dense layers, and nothing else."""
    dense = [keras.layers.Dense(n, use_bias=False) for n in (*widths, outputs)]
    return keras.Sequential([keras.Input((inputs,)), *dense])


def nature_cnn() -> keras.Model:
    """Products of the Nature CNN on channels-last frames."""

    def conv(filters: int, size: int, stride: int) -> keras.layers.Layer:
        return keras.layers.Conv2D(filters, size, stride, use_bias=False)

    return keras.Sequential(
        [
            keras.Input((84, 84, 4)),
            conv(32, 8, 4),
            conv(64, 4, 2),
            conv(64, 3, 1),
            keras.layers.Flatten(),
            *mlp(3136, 6, (512,)).layers,
        ]
    )


def q_learning(make: Callable, shape: tuple, batch_size: int, double: bool):
    """One or two forward passes for the target, and one with its backward pass."""
    network, target = make(), make()
    data = np.random.rand(2, LOOP, batch_size, *shape).astype(np.float32)

    def products(now, after):
        values = [target(after), *([network(after)] if double else [])]
        with tf.GradientTape() as tape:
            values.append(network(now))
            loss = tf.reduce_sum(values[-1])
        return values + tape.gradient(loss, network.trainable_variables)

    return data, products


def ddpg(batch_size: int):
    """Target actor and critic, critic with its gradient, actor with its gradient."""
    actor, critic, target_actor, target_critic = (
        mlp(3, 1),
        mlp(4, 1),
        mlp(3, 1),
        mlp(4, 1),
    )
    action = tf.ones((batch_size, 1))
    data = np.random.rand(2, LOOP, batch_size, 3).astype(np.float32)

    def judge(critic, x, action):
        return critic(tf.concat([x, action], axis=-1))

    def products(now, after):
        value = judge(target_critic, after, target_actor(after))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(judge(critic, now, action))
        gradients = tape.gradient(loss, critic.trainable_variables)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([v.value for v in actor.trainable_variables])
            loss = tf.reduce_sum(judge(critic, now, actor(now)))
        return [value, *gradients, *tape.gradient(loss, actor.trainable_variables)]

    return data, products


def bare(data: np.ndarray, products, jit_compile: bool):
    """The loop over the products as a function without arguments."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def loop(now, after):
        def body(i, total):
            # Each result is read, or the compiler would leave it out; and no product
            # is computed twice, or it would do so only once.
            sums = [tf.reduce_sum(x) for x in products(now[i], after[i])]
            return i + 1, total + tf.add_n(sums)

        start = (tf.constant(0), tf.constant(0.0))
        return tf.while_loop(lambda i, _: i < LOOP, body, start)[1]

    stacks = tf.constant(data[0]), tf.constant(data[1])
    return lambda: loop(*stacks).numpy()


def whole(agent, batch_size: int):
    """The loop over `train_step` as a function without arguments."""
    space, rng = agent.observation_space, np.random.default_rng(0)
    shape = (LOOP, batch_size)
    observation = rng.uniform(0, 1, (*shape, *space.shape)) * (
        255 if space.dtype == np.uint8 else 1
    )
    observation = observation.astype(space.dtype)
    if isinstance(agent, DDPG):
        action = rng.uniform(-1, 1, (*shape, 1)).astype(np.float32)
    else:
        action = rng.integers(0, 2, shape).astype(np.int32)
    reward = rng.normal(size=shape).astype(np.float32)
    batch = Transition(
        observation, action, reward, 0.99 * np.ones_like(reward), observation
    )
    step = np.arange(LOOP, dtype=np.int64)

    def learn():
        logs, _ = agent.learn((batch, step, step - 1), LOOP)
        return float(logs["loss"])

    return learn


def workloads() -> dict:
    """name: (agent, batch size, data and products)."""

    def dqn(space, actions, **kwargs):
        env = SpacesOnly(space, spaces.Discrete(actions))
        return DQN.from_env(env, dueling=False, layer_norm=False, seed=0, **kwargs)

    return {
        "DQN 2×256, batch 64": (
            dqn(VECTOR, 2, double=False),
            64,
            q_learning(lambda: mlp(4, 2), (4,), 64, double=False),
        ),
        "Double DQN 2×256, batch 256": (
            dqn(VECTOR, 2),
            256,
            q_learning(lambda: mlp(4, 2), (4,), 256, double=True),
        ),
        "DDPG 2×256, batch 256": (
            DDPG.from_env(SpacesOnly(PENDULUM, TORQUE), seed=0),
            256,
            ddpg(256),
        ),
        "Double DQN Nature CNN, batch 32": (
            dqn(FRAMES, 6),
            32,
            q_learning(nature_cnn, (84, 84, 4), 32, double=True),
        ),
    }


class SpacesOnly(gym.Env):
    """All of an environment that `from_env` looks at."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space


def milliseconds(function) -> float:
    start = time.perf_counter()
    function()
    return 1e3 * (time.perf_counter() - start) / LOOP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    print("| update | whole, ms | products, ms | ratio |\n| --- | --- | --- | --- |")
    for name, (agent, batch_size, (data, products)) in workloads().items():
        agent.compile()
        functions = [
            whole(agent, batch_size),
            bare(data, products, False),
            bare(data, products, True),
        ]
        for function in functions:
            function()  # compiles
        times = [[milliseconds(f) for f in functions] for _ in range(args.rounds)]
        update, *floors = map(median, zip(*times, strict=True))
        floor = min(floors)
        numbers = f"{update:.2f} | {floor:.2f} | {update / floor:.2f}"
        print(f"| {name} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
