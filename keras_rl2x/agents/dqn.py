"""Deep Q-networks."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_rl2x import networks
from keras_rl2x import ops
from keras_rl2x.agents.agent import Agent
from keras_rl2x.agents.defaults import Defaults
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.envs import spaces
from keras_rl2x.exploration import EpsilonGreedy
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
        dueling: bool | None = None,
        layer_norm: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> "DQN":
        """An agent with the default network for an environment's spaces.

        Args:
            env: environment; it is neither reset nor stepped.
            hidden: widths of the dense layers; defaults to `(256, 256)`, or `(512,)`
                behind the convolutions for images.
            dueling: learn apart what a state is worth and what an action adds to it;
                by default for images.
            layer_norm: normalise each dense layer, which keeps the score from swinging
                back; by default for everything but images.
            seed: int, of the initial weights.
            **kwargs: further arguments of the constructor.

        Returns:
            The agent, bound to the spaces.
        """
        observation_space, action_space = spaces.single_spaces(env)
        spaces.check_discrete_actions(action_space, cls.__name__)
        parts = spaces.leaves(observation_space).values()
        images = any(map(spaces.is_image, parts))
        network = networks.q_network(
            observation_space,
            int(action_space.n),
            hidden,
            dueling=images if dueling is None else dueling,
            layer_norm=not images if layer_norm is None else layer_norm,
            seed=seed,
        )
        agent = cls(network, **kwargs)
        agent.bind(observation_space, action_space)
        return agent

    def defaults(self) -> Defaults:
        """Measured settings, for vectors or for images."""
        decay = keras.optimizers.schedules.PolynomialDecay
        if any(map(checks.is_convolution, checks.layers_of(self.network))):
            return Defaults(
                optimizers={"optimizer": 1e-4},
                exploration=EpsilonGreedy(decay(1.0, 100_000, 0.01)),
                target_update=TargetUpdate(period=1_000),
                updates_per_step=0.25,
                warmup_steps=10_000,
                batch_size=32,
            )
        return Defaults(
            optimizers={"optimizer": 1e-4},
            exploration=EpsilonGreedy(decay(1.0, 10_000, 0.05)),
            target_update=TargetUpdate(tau=0.01),
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

    # ------------------------------------------------------------------- checks

    def check_networks(self, observation: Any) -> None:
        """Raises unless the network gives one value per action."""
        shape = checks.output_shape(
            checks.symbolic_call(self.network, "network", observation)
        )
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

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments and the spaces."""
        return {
            **super().get_config(),
            "network": self.serialize_network(self.network),
            "double": self.double,
        }
