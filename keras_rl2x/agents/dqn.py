"""Deep Q-networks."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_rl2x import networks
from keras_rl2x import ops
from keras_rl2x.agents.agent import Agent
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.envs import spaces
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration import exploration as exploration_module
from keras_rl2x.exploration.epsilon_greedy import greedy_actions
from keras_rl2x.layers import GreedyAction
from keras_rl2x.networks import checks
from keras_rl2x.types import Transition


@keras.saving.register_keras_serializable(package="keras_rl2x")
class DQN(Agent):
    """Deep Q-network, Double by default, for Discrete actions.

    `y = r + gamma * q_target(s', argmax_a q(s', a))`, `loss = Huber(y - q(s, a))`

    Source: Mnih et al., "Human-level control through deep reinforcement learning",
    2015; van Hasselt, Guez and Silver, "Deep reinforcement learning with double
    Q-learning", 2015.

    Args:
        network: `keras.Model`, observation to one Q-value per action, without an
            activation at the end. Built or not; layers may be frozen.
        double: choose the next action with the online network and value it with the
            target network, which removes most of the overestimation of the plain
            maximum.
        gamma: float in `[0, 1]`, discount per env step. Higher looks further ahead.
        n_step: int, rewards summed before the bootstrap. Higher carries rewards back
            faster and is less exact off-policy; 1 to 5 are usual.
        target_network: a second network of the same architecture; only needed for
            networks that Keras cannot copy.
        name: as in Keras.

    Raises:
        TypeError: if `network` is no Keras 3 model.
        ValueError: for constants out of range.

    Example:
    ```python
    env = gymnasium.make("CartPole-v1")
    agent = DQN.from_env(env, seed=1)
    agent.compile()
    agent.fit(env, epochs=20, seed=1)
    ```
    """

    trained = {"network": "optimizer"}
    targets = {"network": "target_network"}

    def __init__(
        self,
        network: keras.Model,
        double: bool = True,
        gamma: float = 0.99,
        n_step: int = 1,
        target_network: keras.Model | None = None,
        name: str | None = None,
    ):
        super().__init__(gamma=gamma, n_step=n_step, name=name)
        self.network = checks.check_model(network, "network")
        self.double = bool(double)
        if target_network is not None:
            target_network = checks.check_model(target_network, "target_network")
        self.target_network = target_network

    @classmethod
    def from_env(
        cls,
        env: Any,
        hidden: Sequence[int] | None = None,
        dueling: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ) -> "DQN":
        """An agent with the default network for an environment's spaces.

        Args:
            env: environment; it is neither reset nor stepped.
            hidden: widths of the dense layers; defaults to `(256, 256)`, or `(512,)`
                behind the convolutions for images.
            dueling: use a dueling head.
            seed: int, of the initial weights.
            **kwargs: further arguments of the constructor.

        Returns:
            The agent, bound to the spaces.
        """
        observation_space, action_space = spaces.single_spaces(env)
        spaces.check_discrete_actions(action_space, cls.__name__)
        network = networks.q_network(
            observation_space, int(action_space.n), hidden, dueling, seed
        )
        agent = cls(network, **kwargs)
        agent.bind(observation_space, action_space)
        return agent

    def compile(
        self,
        optimizer: Any = None,
        loss: Any = None,
        metrics: Any = None,
        memory: Any = None,
        exploration: Any = None,
        updates_per_step: float | None = None,
        warmup_steps: int | None = None,
        steps_per_execution: int | None = None,
        run_eagerly: bool = False,
        jit_compile: bool | str = "auto",
    ) -> None:
        """Says how to learn. Every argument has a measured default.

        Args:
            optimizer: Keras optimizer, with its own `clipnorm` (per variable) or
                `global_clipnorm`; defaults to `Adam(5e-4)`, `Adam(1e-4)` for images.
            loss: Keras loss of `[B, 1]` targets and values; defaults to Huber, whose
                gradient is that of the TD error clipped to ±1.
            metrics: Keras metrics of the same.
            memory: defaults to the present one, or `ReplayMemory(100_000)`.
            exploration: defaults to ε-greedy from 1 to 0.05 within 10 000 env steps
                (to 0.01 within 100 000 for images).
            updates_per_step: gradient steps per env step; defaults to 1 (1/4 for
                images). Higher learns more from each step and takes longer.
            warmup_steps: steps in memory before learning; defaults to 1 000 (10 000
                for images). Higher starts from more varied data.
            steps_per_execution: env steps per compiled call. Bigger is faster; the
                ratio of updates to steps does not change.
            run_eagerly: compile nothing, for debugging.
            jit_compile: use XLA; `"auto"` does without convolutions.
        """
        images = self._sees_images()
        if optimizer is None:
            optimizer = keras.optimizers.Adam(1e-4 if images else 5e-4)
        if updates_per_step is None and images:
            updates_per_step = 0.25
        if warmup_steps is None and images:
            warmup_steps = 10_000
        self._compile(
            {"optimizer": optimizer},
            loss=keras.losses.Huber() if loss is None else loss,
            metrics=metrics,
            memory=memory,
            exploration=exploration_module.get(exploration, self.default_exploration),
            target_update=self.target_update or self.default_target_update(),
            updates_per_step=updates_per_step,
            warmup_steps=warmup_steps,
            steps_per_execution=steps_per_execution,
            run_eagerly=run_eagerly,
            jit_compile=jit_compile,
        )

    def _sees_images(self) -> bool:
        return any(map(checks.is_convolution, checks.layers_of(self.network)))

    def default_exploration(self) -> EpsilonGreedy:
        """ε-greedy that decays linearly."""
        steps, final = (100_000, 0.01) if self._sees_images() else (10_000, 0.05)
        schedule = keras.optimizers.schedules.PolynomialDecay(1.0, steps, final)
        return EpsilonGreedy(schedule)

    def default_target_update(self) -> TargetUpdate:
        """The target rule of an agent that was given none."""
        return (
            TargetUpdate(period=1_000)
            if self._sees_images()
            else TargetUpdate(tau=0.01)
        )

    # ------------------------------------------------------------ the algorithm

    def policy(self, observation: Any, training: bool = False) -> Any:
        """Q-values, `[B, A]`."""
        return self.network(observation, training=training)

    def train_step(self, batch: Transition) -> dict[str, Any]:
        """One step of (Double) Q-learning."""
        next_values = self.next_values(batch.next_observation, batch.next_action_mask)
        targets = ops.td_target(batch.reward, batch.discount, next_values)  # [B]
        with tf.GradientTape() as tape:
            q_values = self.network(batch.observation, training=True)  # [B, A]
            values = ops.select(q_values, batch.action)  # [B]
            loss = self.compute_loss(
                y=targets[:, None],
                y_pred=values[:, None],
                sample_weight=batch.weight,
            )
        self.apply_gradients(tape, loss, self.network)
        self.update_targets()
        self.report_td_error(targets - tf.cast(values, tf.float32))
        return self.track(loss=loss, q_value=values)

    def next_values(self, next_observation: Any, next_action_mask: Any) -> Any:
        """`v(s')`: what differs between Q-learning and Double Q-learning.

        Args:
            next_observation: `[B, ...]`.
            next_action_mask: `[B, A]` bool or `None`.

        Returns:
            `[B]` float.
        """
        q_values = self.target_network(next_observation, training=False)
        if not self.double:
            return ops.q_learning_value(q_values, next_action_mask)
        selector = self.network(next_observation, training=False)
        return ops.double_q_learning_value(q_values, selector, next_action_mask)

    def greedy(self, observation: Any, action_mask: Any = None) -> np.ndarray:
        """`argmax_a q(s, a)` over the allowed actions, `[B]`."""
        return greedy_actions(self._engine().act(observation), action_mask)

    # ------------------------------------------------------------------- checks

    def check_action_space(self, space: Any) -> None:
        """Raises unless actions are Discrete."""
        spaces.check_discrete_actions(space, type(self).__name__)

    def check_networks(self, observation: Any) -> None:
        """Raises unless the network gives one value per action."""
        shape = checks.output_shape(self.network(observation))
        expected = (None, self.action_units.size)
        if shape != expected:
            hint = ""
            if len(shape) > 2:
                hint = " Did you forget a `keras.layers.Flatten()`?"
            elif len(shape) == 2:
                hint = f" The last layer should be `Dense({expected[1]})`."
            raise ValueError(
                "`network` must return one Q-value per action: expected shape "
                f"{expected}, received {shape}.{hint}"
            )
        checks.warn_if_squashed(self.network, "network")

    # --------------------------------------------------------- saving, exporting

    def exported_outputs(self, observation: Any, action_mask: Any) -> dict[str, Any]:
        """`action` in the env's numbering, and `q_values`."""
        q_values = self.network(observation, training=False)
        start = int(self.action_space.start)
        action = GreedyAction(start, name="action")(q_values, action_mask)
        return {"action": action, "q_values": q_values}

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments and the spaces."""
        return {
            **super().get_config(),
            "network": keras.saving.serialize_keras_object(self.network),
            "double": self.double,
        }
