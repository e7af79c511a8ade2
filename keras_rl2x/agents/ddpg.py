"""Deep deterministic policy gradient."""

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
from keras_rl2x.exploration import GaussianNoise
from keras_rl2x.networks import checks
from keras_rl2x.types import Transition


@keras.saving.register_keras_serializable(package="keras_rl2x")
class DDPG(Agent):
    """Deep deterministic policy gradient, for bounded continuous actions.

    Critic: `y = r + gamma * q_target(s', mu_target(s'))`, `loss = (y - q(s, a))^2`.
    Actor: `loss = -q(s, mu(s))`.

    Networks live in normalised actions: the actor returns `[-1, 1]` per dimension and
    the critic receives them so; the conversion to the env's units happens where actions
    leave for or come from the env.

    Source: Lillicrap et al., "Continuous control with deep reinforcement learning",
    2015; Silver et al., "Deterministic policy gradient algorithms", 2014.

    Args:
        actor: `keras.Model`, observation to `[B, A]` in `[-1, 1]`: end it with `tanh`.
        critic: `keras.Model` called with `(observation, action)`, as one pair or as
            two arguments, to `[B, 1]`.
        gamma: float in `[0, 1]`, discount per env step. Higher looks further ahead.
        n_step: int, rewards summed before the bootstrap.
        target_actor: a second actor; only for networks that Keras cannot copy.
        target_critic: likewise.
        name: as in Keras.

    Raises:
        TypeError: if a network is no Keras 3 model.
        ValueError: for constants out of range.

    Example:
    ```python
    env = gymnasium.make("Pendulum-v1")
    agent = DDPG.from_env(env, seed=1)
    agent.compile()
    agent.fit(env, epochs=20, seed=1)
    ```
    """

    trained = {"critic": "optimizer", "actor": "actor_optimizer"}
    targets = {"critic": "target_critic", "actor": "target_actor"}
    actions = "continuous"

    def __init__(
        self,
        actor: keras.Model,
        critic: keras.Model,
        gamma: float = 0.99,
        n_step: int = 1,
        target_actor: keras.Model | None = None,
        target_critic: keras.Model | None = None,
        name: str | None = None,
    ):
        super().__init__(gamma=gamma, n_step=n_step, name=name)
        self.actor = checks.check_model(actor, "actor")
        self.critic = checks.check_model(critic, "critic")
        for target in (target_actor, target_critic):
            if target is not None:
                checks.check_model(target, "target network")
        self.target_actor, self.target_critic = target_actor, target_critic

    @classmethod
    def from_env(
        cls,
        env: Any,
        hidden: Sequence[int] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> "DDPG":
        """An agent with the default networks for an environment's spaces.

        Args:
            env: environment; it is neither reset nor stepped.
            hidden: widths of the dense layers; defaults to `(256, 256)`.
            seed: int, of the initial weights.
            **kwargs: further arguments of the constructor.

        Returns:
            The agent, bound to the spaces.
        """
        observation_space, action_space = spaces.single_spaces(env)
        spaces.check_continuous_actions(action_space, cls.__name__)
        other = None if seed is None else seed + 1_000_003
        agent = cls(
            networks.actor(observation_space, action_space, hidden, seed),
            networks.critic(observation_space, action_space, hidden, other),
            **kwargs,
        )
        agent.bind(observation_space, action_space)
        return agent

    def defaults(self) -> Defaults:
        """Measured settings."""
        return Defaults(
            # The actor is slower, so that it climbs a critic that has settled.
            optimizers={"optimizer": 1e-3, "actor_optimizer": 1e-4},
            loss=keras.losses.MeanSquaredError(),
            exploration=GaussianNoise(0.1),
            target_update=TargetUpdate(tau=0.005),
            batch_size=256,
        )

    def compile(
        self, optimizer: Any = None, actor_optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Says how to learn. What is left out is taken from `defaults()`.

        Args:
            optimizer: Keras optimizer of the critic.
            actor_optimizer: of the actor, another object.
            **kwargs: as in `Agent.compile`.
        """
        super().compile(optimizer, actor_optimizer=actor_optimizer, **kwargs)

    # ------------------------------------------------------------ the algorithm

    def policy(self, observation: Any, training: bool = False) -> Any:
        """The actor's actions in `[-1, 1]`, `[B, A]`."""
        return self.actor(observation, training=training)

    def train_step(self, batch: Transition) -> dict[str, Any]:
        """One step of the critic, then one of the actor."""
        # Critic: the next action and its value come from the target networks.
        next_action = self.target_actor(batch.next_observation, training=False)
        next_values = self.value(
            self.target_critic, batch.next_observation, next_action, training=False
        )
        targets = ops.td_target(batch.reward, batch.discount, next_values)  # [B]
        with tf.GradientTape() as tape:
            values = self.value(
                self.critic, batch.observation, batch.action, training=True
            )
            loss = self.compute_loss(
                y=targets[:, None],
                y_pred=values[:, None],
                sample_weight=batch.weight,
                network=self.critic,
            )
        self.apply_gradients(tape, loss, self.critic)

        # Actor: the critic only judges, in inference mode, and is not changed.
        with tf.GradientTape() as tape:
            action = self.actor(batch.observation, training=True)
            actor_values = self.value(
                self.critic, batch.observation, action, training=False
            )
            actor_loss = tf.reduce_mean(ops.deterministic_policy_loss(actor_values))
            actor_loss += self.regularization(self.actor)
        self.apply_gradients(tape, actor_loss, self.actor)

        self.update_targets()
        self.report_td_error(targets - tf.cast(values, tf.float32))
        return self.track(loss=loss, actor_loss=actor_loss, q_value=values)

    @staticmethod
    def value(
        critic: keras.Model, observation: Any, action: Any, training: bool
    ) -> Any:
        """A critic's values as `[B]`."""
        values = checks.call_critic(critic, observation, action, training=training)
        return values[:, 0]

    # ------------------------------------------------------------------- checks

    def check_networks(self, observation: Any) -> None:
        """Raises unless actor and critic fit each other and the spaces."""
        size = self.action_units.size
        shape = checks.output_shape(
            checks.symbolic_call(self.actor, "actor", observation)
        )
        if shape != (None, size):
            raise ValueError(
                f"`actor` must return one number per action dimension: expected shape "
                f"{(None, size)}, received {shape}."
            )
        action = keras.Input((size,), name="action")
        shape = checks.output_shape(
            checks.symbolic_call(self.critic, "critic", observation, action)
        )
        if shape != (None, 1):
            raise ValueError(
                "`critic` must return one value per (observation, action): expected "
                f"shape (None, 1), received {shape}."
            )
        checks.warn_if_not_tanh(self.actor, "actor")
        checks.warn_if_squashed(self.critic, "critic")

    def build_targets(self, observation: Any) -> None:
        """Calls the target networks once, with symbolic inputs."""
        action = self.target_actor(observation)
        checks.call_critic(self.target_critic, observation, action)

    # --------------------------------------------------------- saving, exporting

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments and the spaces."""
        return {
            **super().get_config(),
            "actor": self.serialize_network(self.actor),
            "critic": self.serialize_network(self.critic),
        }
