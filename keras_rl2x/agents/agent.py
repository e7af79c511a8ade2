"""The environment side of every agent: acting, fit, evaluate, export."""

import os
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import keras
import numpy as np
import tensorflow as tf

from keras_rl2x import export as exporting
from keras_rl2x.agents import arguments
from keras_rl2x.agents import resume as resuming
from keras_rl2x.agents.defaults import Defaults
from keras_rl2x.agents.learner import Learner
from keras_rl2x.agents.session import Session
from keras_rl2x.callbacks import TargetUpdate
from keras_rl2x.callbacks.fit_callbacks import FitCallbacks
from keras_rl2x.callbacks.validation import Validation
from keras_rl2x.diagnostics.preflight import Preflight
from keras_rl2x.diagnostics.preflight import preflight
from keras_rl2x.envs import spaces
from keras_rl2x.experience import run_episodes
from keras_rl2x.experience.evaluation import MAX_STEPS
from keras_rl2x.exploration import EpsilonGreedy
from keras_rl2x.exploration import GaussianNoise
from keras_rl2x.exploration.epsilon_greedy import greedy_actions
from keras_rl2x.layers import ActionRescaling
from keras_rl2x.layers import GreedyAction
from keras_rl2x.ops.checks import check_number
from keras_rl2x.ops.checks import check_whole
from keras_rl2x.types import Transition


class Agent(Learner):
    """A `keras.Model` that learns from an environment.

    Holds what Keras needs and no algorithm. A subclass says which networks it has,
    what its policy is, and how it learns from a minibatch:

    - `trained`: for each online network's attribute, the attribute of its optimizer;
    - `targets`: for each online network's attribute, that of its target network;
    - `policy(observation, training)`: `[B, A]`, Q-values or actions in `[-1, 1]`;
    - `train_step(batch)`: target, loss, gradients, metrics;
    - `actions`: `"discrete"` or `"continuous"`;
    - `get_config`, and `defaults` where the general ones do not fit.

    Args:
        gamma: float in `[0, 1]`, discount per env step. Higher looks further ahead
            and learns more slowly.
        n_step: int, rewards that are summed before the bootstrap. Higher carries
            rewards back faster and is less exact off-policy.
        name: as in Keras.
    """

    # ------------------------------------------------------------- the algorithm

    def policy(self, observation: Any, training: bool = False) -> Any:
        """What exploration starts from: `[B, A]`, Q-values or actions in `[-1, 1]`."""
        raise NotImplementedError

    def call(self, observation: Any, training: bool = False) -> Any:
        """What the policy says: Q-values, or actions in the env's units."""
        values = self.policy(observation, training=training)
        if self.actions == "discrete":
            return values
        space = self.action_space
        shaped = keras.ops.reshape(values, (-1, *space.shape))
        return ActionRescaling(space.low, space.high)(shaped)

    def defaults(self) -> Defaults:
        """Settings that `compile()` and `fit()` use where they are given none."""
        return Defaults(
            optimizers=dict.fromkeys(self.trained.values(), 5e-4),
            exploration=EpsilonGreedy(0.1)
            if self.actions == "discrete"
            else GaussianNoise(0.1),
        )

    def greedy(
        self, observation: Any, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Best actions for a batch, in network units: `[B]` int or `[B, A]` float."""
        values = self.infer(observation)
        if self.actions == "continuous":
            return values
        return greedy_actions(values, action_mask)

    def check_action_space(self, space: Any) -> None:
        """Raises for action spaces that the algorithm cannot handle."""
        check = {
            "discrete": spaces.check_discrete_actions,
            "continuous": spaces.check_continuous_actions,
        }[self.actions]
        check(space, type(self).__name__)

    def check_networks(self, observation: Any) -> None:
        """Raises for networks of the wrong shape, given symbolic observations."""

    def exported_outputs(self, observation: Any, action_mask: Any) -> dict[str, Any]:
        """Outputs of the exported policy, from symbolic inputs.

        Args:
            observation: symbolic raw observations.
            action_mask: symbolic `[B, A]` bool, or `None`.

        Returns:
            `action` in the env's units, and `q_values` for discrete actions.
        """
        values, space = self.policy(observation, training=False), self.action_space
        if self.actions == "discrete":
            choice = GreedyAction(int(space.start), name="action")
            return {"action": choice(values, action_mask), "q_values": values}
        action = keras.layers.Reshape(space.shape)(values)
        rescaling = ActionRescaling(space.low, space.high, name="action")
        return {"action": rescaling(action)}

    def train_step(self, batch: Transition) -> dict[str, Any]:
        """Learns from one minibatch. Runs compiled.

        Args:
            batch: `Transition` with `[B, ...]` leaves, actions in network units.

        Returns:
            Numbers by name, from `track`.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------------ fit

    def fit(
        self,
        env: Any,
        epochs: int = 1,
        steps_per_epoch: int = 1_000,
        batch_size: int | None = None,
        validation_data: Any = None,
        validation_episodes: int = 5,
        validation_freq: int = 1,
        callbacks: Sequence[keras.callbacks.Callback] | None = None,
        seed: int | None = None,
        verbose: int | str = "auto",
        initial_epoch: int = 0,
        resume: str | os.PathLike | None = None,
        step_timeout: float | None = None,
    ) -> keras.callbacks.History:
        """Acts and learns. A step is one environment transition.

        First the memory is filled to `warmup_steps`; those steps come before epoch 1.
        A second `fit` goes on with everything; with the same env object and no new
        seed it continues the episode.

        Args:
            env: `gymnasium.Env` or `gymnasium.vector.VectorEnv`.
            epochs: number of the last epoch, as in Keras.
            steps_per_epoch: env steps in each.
            batch_size: rows per gradient step; `None` for the agent's default.
            validation_data: another environment, for greedy episodes after epochs.
            validation_episodes: how many.
            validation_freq: epochs between them.
            callbacks: Keras callbacks. A `TargetUpdate` among them becomes the agent's.
            seed: of the env, its action space, exploration, sampling and the
                validation env; without it, and in a resumed run, the streams go on.
            verbose: 0 silent, 1 a bar per epoch, 2 a line per epoch.
            initial_epoch: epochs already done, as in Keras.
            resume: directory of a `Checkpoint`, to go on exactly where its newest one
                was written, if there is any. Pass everything else as before.

            step_timeout: seconds after which a `step` or `reset` that has not come back
                raises `TimeoutError`; processes of an `AsyncVectorEnv` are stopped.

        Returns:
            `History`, with `loss`, the agent's own numbers, `steps_per_second`,
            `episode_return` and `episode_length`, and `val_episode_return` and
            `val_episode_length` with `validation_data`.

        Raises:
            ValueError, TypeError: for what cannot work, before any training.
            Whatever the environment raises, unchanged.
        """
        self._check_fit(env, validation_data)
        if step_timeout is not None:
            check_number("step_timeout", step_timeout, minimum=1e-3)
        arguments.check_fit(
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            batch_size=1 if batch_size is None else batch_size,
            validation_episodes=validation_episodes,
            validation_freq=validation_freq,
            initial_epoch=initial_epoch,
            seed=seed,
        )
        callbacks = arguments.check_callbacks(callbacks)
        self.bind(*spaces.single_spaces(env))
        if validation_data is not None:
            self.bind(*spaces.single_spaces(validation_data))
        batch_size = int(batch_size or self.defaults().batch_size)
        state, session = self._begin(
            env, steps_per_epoch, batch_size, seed, resume, step_timeout
        )
        session.terminates_on_nan = any(
            isinstance(callback, keras.callbacks.TerminateOnNaN)
            for callback in callbacks
        )
        self.steps_per_execution = session.steps_per_execution
        container = session.callbacks = self._callbacks(
            callbacks, validation_data, validation_episodes, validation_freq, seed,
            steps_per_epoch, epochs, verbose,
        )  # fmt: skip
        if state is not None:
            initial_epoch = session.initial_epoch
            container.resume(state.get("callbacks", []))
            if verbose != 0:
                resuming.report(state, session, initial_epoch)
            if state.get("stopped"):
                epochs = min(epochs, initial_epoch)
        if initial_epoch >= epochs and verbose != 0:
            print(f"Nothing to do: {initial_epoch} of {epochs} epochs are done already")
        try:
            session.warm_up(verbose != 0)
            return super().fit(
                tf.data.Dataset.range(int(steps_per_epoch)),  # only counts
                epochs=epochs,
                verbose=verbose,
                callbacks=container,
                initial_epoch=initial_epoch,
                shuffle=False,
            )
        except BaseException:
            # The env may be anywhere in its episode, so the next `fit` begins one.
            self._run.session = None
            container.clean_up()
            raise

    def _begin(
        self,
        env: Any,
        steps: int,
        batch_size: int,
        seed: Any,
        directory: Any,
        step_timeout: float | None,
    ) -> tuple[dict | None, Session]:
        """Resumes if it can, and begins to act; or raises, and nothing has changed."""
        run, last = self._run, self._run.session
        try:
            with self.unchanged_on_error():
                state = None if directory is None else resuming.load(self, directory)
                arguments.check_batch_size(batch_size, self.memory)
                run.session = Session(
                    self,
                    env,
                    int(steps),
                    batch_size,
                    seed,
                    last=last,
                    resumed=state,
                    step_timeout=step_timeout,
                )
        except BaseException:
            run.session = None  # the env may have been reset
            raise
        return state, run.session

    def _check_fit(self, env: Any, validation_data: Any) -> None:
        if not self.compiled:
            raise ValueError(
                f"Call `compile()` before `fit`: `{type(self).__name__}` has no "
                "optimizer yet. `compile()` without arguments takes good defaults."
            )
        arguments.check_not_distributed()
        spaces.single_spaces(env)
        if validation_data is not None:
            spaces.single_spaces(validation_data, "validation_data")
            if validation_data.unwrapped is env.unwrapped:
                raise ValueError(
                    "`validation_data` must be an environment of its own: evaluating "
                    "in the training env (or in a wrapper of it) would break its "
                    "episode. Make a second one with `gymnasium.make`."
                )

    def _callbacks(
        self, callbacks, env, episodes, every, seed, steps, epochs, verbose
    ) -> FitCallbacks:
        if env is not None:
            other = None if seed is None else arguments.other_seed(seed)
            validation = Validation(env, episodes, every, other, lambda: container)
            callbacks = [validation, *callbacks]
        if not any(isinstance(callback, TargetUpdate) for callback in callbacks):
            callbacks = [*callbacks, self.target_update]
        container = FitCallbacks(
            callbacks,
            steps=steps,
            session=self._run.session,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=epochs,
            model=self,
        )
        return container

    def make_train_function(self, force: bool = False) -> Callable:
        """What Keras calls once per execution: act, store, sample, learn."""
        if self.train_function is None or force:
            self.make_engine()
            # Keras passes an iterator, which only counts and is not advanced.
            self.train_function = lambda iterator: self._run.session.execute()
        return self.train_function

    def run_state(self) -> dict[str, Any] | None:
        """The `fit` in progress as plain data, for a `Checkpoint`."""
        return resuming.run_state(self)

    # --------------------------------------------------------- acting, evaluating

    def explore(
        self, observation: Any, step: int, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Actions to try, for a batch of observations, in network units.

        Args:
            observation: `[N, ...]`.
            step: env steps taken, for the schedules.
            action_mask: `[N, A]` bool or `None`.

        Returns:
            `[N]` int or `[N, A]` float.
        """
        policy = _LazyPolicy(self.infer, observation, self.action_units.size)
        return self.exploration(policy, step, self._run.streams.explore, action_mask)

    def act(self, observation: Any, action_mask: Any = None) -> Any:
        """Greedy action, in the env's units.

        Args:
            observation: one observation of the env, or a batch of them.
            action_mask: bool, `[A]` or `[B, A]`: actions that are allowed.

        Returns:
            For one observation an `int` (Discrete) or an array of the action's shape;
            for a batch an array with a leading batch axis.

        Raises:
            ValueError: before the spaces are known, or for another shape.
        """
        self._check_bound("act")
        batch, single = self._as_batch(observation)
        if action_mask is not None:
            action_mask = np.asarray(action_mask, bool).reshape(
                -1, self.action_units.size
            )
        action = self.action_units.to_env(self.greedy(batch, action_mask))
        if not single:
            return action
        return int(action[0]) if self.action_units.is_discrete else action[0, ...]

    def _as_batch(self, observation: Any) -> tuple[Any, bool]:
        """A batch of observations in the space's dtype, and whether it was a single."""
        space = self.observation_space
        self._check_structure(observation)
        singles = []

        def convert(part: Any, value: Any) -> np.ndarray:
            try:
                array = np.asarray(value)
            except ValueError:
                array = np.array(None)
            single = array.shape == part.shape
            fits = single or array.shape[1:] == part.shape and array.ndim > 0
            if not fits or array.dtype.kind not in "biuf":
                got = f"shape: {array.shape}, dtype: {array.dtype}"
                raise ValueError(
                    f"Expected one observation of shape {part.shape} or a batch of "
                    f"shape {('batch', *part.shape)}, of numbers. Received {got}."
                )
            if not np.isfinite(array).all():
                raise ValueError("The observation holds NaN or infinite numbers.")
            singles.append(single)
            return (array[None] if single else array).astype(part.dtype, copy=False)

        return spaces.map_observation(convert, space, observation), all(singles)

    def _check_structure(self, observation: Any) -> None:
        """Raises unless an observation is a dict where its space is one."""
        space = self.observation_space
        if (
            isinstance(observation, tuple)
            and len(observation) in (2, 5)
            and isinstance(observation[-1], dict)
        ):
            raise ValueError(
                "`act` takes an observation alone. Received what `reset` or `step` of "
                "an env return: unpack it, as in `observation, info = env.reset()`."
            )
        if not isinstance(space, gym.spaces.Dict):
            if isinstance(observation, dict):
                raise ValueError(
                    f"The observation must be an array, for {space}. Received a dict "
                    f"with {sorted(observation)}."
                )
            return
        wanted = sorted(space.spaces)
        if not isinstance(observation, dict):
            raise ValueError(
                f"The observation must be a dict with {wanted}. Received: "
                f"{type(observation).__name__}."
            )
        if sorted(observation) != wanted:
            raise ValueError(
                f"The observation must be a dict with {wanted}. Received one with "
                f"{sorted(observation)}."
            )

    def evaluate(
        self,
        env: Any,
        episodes: int = 10,
        epsilon: float = 0.0,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
        return_episodes: bool = False,
        callbacks: Any = None,
        verbose: int | str = 0,
    ) -> dict[str, Any]:
        """Plays whole episodes greedily. Training is not touched.

        Args:
            env: environment, single or vector.
            episodes: how many.
            epsilon: probability of a random action.
            seed: of the env's first reset and of random actions.
            max_steps: an episode is cut after so many steps, with a warning.
            return_episodes: add the lists `episode_returns` and `episode_lengths`.
            callbacks: Keras callbacks, whose `on_test_…` hooks fire; a batch is an
                episode.
            verbose: 1 shows a bar.

        Returns:
            `{"episode_return": mean, "episode_length": mean, "episode_return_std": …}`.
        """
        check_whole("episodes", episodes)
        check_whole("max_steps", max_steps)
        check_number("epsilon", epsilon, 0.0, 1.0)
        arguments.check_seed(seed)
        self.bind(*spaces.single_spaces(env))
        container = callbacks
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            container = keras.callbacks.CallbackList(
                callbacks, add_progbar=verbose == 1, verbose=verbose, epochs=1,
                steps=episodes, model=self,
            )  # fmt: skip
        container.on_test_begin()

        def on_episode(number: int, total: float, length: int) -> None:
            logs = {"episode_return": total, "episode_length": length}
            container.on_test_batch_begin(number - 1)
            container.on_test_batch_end(number - 1, logs)

        with self.weights_held():
            returns, lengths = run_episodes(
                self, env, episodes, epsilon=epsilon, seed=seed, max_steps=max_steps,
                on_episode=on_episode,
            )  # fmt: skip
        self._leave_episode(env)
        numbers = {
            "episode_return": float(returns.mean()),
            "episode_length": float(lengths.mean()),
            "episode_return_std": float(returns.std()),
        }
        container.on_test_end(numbers)
        if return_episodes:
            numbers["episode_returns"] = returns.tolist()
            numbers["episode_lengths"] = lengths.tolist()
        return numbers

    def diagnose(self, env: Any, steps: int = 300) -> Preflight:
        """Looks for faults before training: a few random steps, one dry gradient step.

        Checks the environment's contract, the networks, the settings and the
        gradients, and estimates memory and speed. The agent stays as it is: weights,
        memory, random streams and counters. The env is reset and stepped.

        Args:
            env: environment, single or vector.
            steps: int, how many to take.

        Returns:
            A report that prints as a table and has `findings`, each with `code`,
            `severity`, `where`, `evidence` and `remedy`; the root cause comes first.

        Raises:
            ValueError: before `compile`.

        Example:
        ```python
        agent.compile()
        print(agent.diagnose(env))
        ```
        """
        self._check_fit(env, None)
        report = preflight(self, env, check_whole("steps", steps))
        self._leave_episode(env)
        return report

    def _leave_episode(self, env: Any) -> None:
        """Lets the next `fit` begin an episode, if its env was used elsewhere."""
        session = self._run.session
        if session is not None and session.generator.env is env:
            self._run.session = None

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of the last `fit` by kind of work."""
        session = self._run.session
        return {} if session is None else dict(session.generator.timer.seconds)

    # ---------------------------------------------------------- exporting, saving

    def export(
        self,
        filepath: str | os.PathLike,
        format: str = "tf_saved_model",
        action_mask: bool = False,
        verbose: bool = False,
        **kwargs: Any,
    ) -> None:
        """Writes the greedy policy, to be run without this package.

        The signature takes the env's raw observations (named inputs for a Dict, any
        batch size) and returns `action` in the env's units, and `q_values` where the
        agent has them. No optimizer, memory or target network is in it.

        Args:
            filepath: directory (SavedModel) or file.
            format: `"tf_saved_model"`, `"onnx"` or `"litert"`.
            action_mask: add a bool input `action_mask` of shape `[B, A]`.
            verbose: let Keras print the signature.
            **kwargs: as in `keras.Model.export`.

        Raises:
            ValueError: before the spaces are known, or for an unknown format.
            ImportError: naming the extra to install.
        """
        self._check_bound("export")
        if action_mask and not self.action_units.is_discrete:
            raise ValueError("`action_mask` is for discrete actions only.")
        exporting.export_policy(
            self.exported_outputs,
            self._run.observation_space,
            filepath,
            format,
            num_masked=self.action_units.size if action_mask else 0,
            verbose=verbose,
            **kwargs,
        )

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments and the spaces."""
        run = self._run
        bound = run.observation_space is not None
        return {
            "name": self.name,
            "gamma": self.gamma,
            "n_step": self.n_step,
            "observation_space": spaces.to_config(run.observation_space)
            if bound
            else None,
            "action_space": spaces.to_config(run.action_space) if bound else None,
        }

    @staticmethod
    def serialize_network(network: keras.Model) -> dict[str, Any]:
        """A network's config, for `get_config`; weights are saved by Keras."""
        config = keras.saving.serialize_keras_object(network)
        # The agent builds its networks by calling them; Keras would rebuild a critic
        # of two arguments from the first one alone.
        config.pop("build_config", None)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "Agent":
        """An agent made from `get_config()`, with its networks built."""
        config = dict(config)
        bound = [config.pop("observation_space"), config.pop("action_space")]
        for name in (*cls.trained, *cls.targets.values()):
            if config.get(name) is not None:
                config[name] = keras.saving.deserialize_keras_object(
                    config[name], custom_objects
                )
        agent = cls(**config)
        if None not in bound:
            agent.bind(*map(spaces.from_config, bound))
        return agent


class _LazyPolicy:
    """The policy's output for one batch, computed if asked for."""

    def __init__(self, infer: Callable, observation: Any, size: int):
        self._infer, self._observation = infer, observation
        parts = observation if isinstance(observation, dict) else {"": observation}
        self.shape = (len(next(iter(parts.values()))), size)

    def __call__(self) -> np.ndarray:
        return self._infer(self._observation)
