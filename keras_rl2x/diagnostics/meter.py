"""From an agent to a record of numbers."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_rl2x.diagnostics.dry_pass import AT_BOUND
from keras_rl2x.diagnostics.dry_pass import MISSING
from keras_rl2x.diagnostics.dry_pass import DryPass
from keras_rl2x.diagnostics.record import Acting
from keras_rl2x.diagnostics.record import Data
from keras_rl2x.diagnostics.record import Inputs
from keras_rl2x.diagnostics.record import Layer
from keras_rl2x.diagnostics.record import Network
from keras_rl2x.diagnostics.record import Record
from keras_rl2x.diagnostics.record import Setup
from keras_rl2x.diagnostics.record import Target
from keras_rl2x.diagnostics.record import Values
from keras_rl2x.networks import checks
from keras_rl2x.types import Transition

ROWS = 128  # of the minibatch that is looked at
DATA_ROWS = 256  # of the memory, each time
CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")
SHAKES = 5  # a saturated network hides nearly all of them
TRIALS = 2  # records that try which networks a loss depends on

Weights = dict[str, list[np.ndarray]]


class Meter:
    """Measures an agent now and then, and changes nothing.

    Args:
        agent: bound and compiled.
        memory: to sample from; the agent's own by default.
        end_step: env step at which the run is to end.
    """

    def __init__(self, agent: Any, memory: Any = None, end_step: int = 0):
        self.agent, self.end_step = agent, end_step
        self.memory = agent.memory if memory is None else memory
        self._rng = np.random.default_rng(0)  # not the agent's: its streams stay
        self._dry = DryPass(agent)
        self._first, self._first_steps = self.weights(), agent.gradient_steps
        self._start = agent.env_steps
        self._tried = 0
        self._uses: dict[str, tuple[bool | None, str | None]] = {}
        self._data: dict[str, Any] = {
            "rows": 0, "reward_low": np.inf, "reward_high": -np.inf, "reward_sum": 0.0,
            "terminations": 0, "unchanged": 0, "varied": False,
        }  # fmt: skip

    # ------------------------------------------------------------------ the whole

    def setup(self) -> Setup:
        """What does not change; call it after the first `record`."""
        agent, rule = self.agent, self.agent.target_update
        fresh = agent.gradient_steps == 0
        observation_space = agent.observation_space
        discrete = agent.actions == "discrete"
        dry = self._dry
        return Setup(
            actions=agent.actions,
            num_actions=agent.action_units.size,
            gamma=agent.gamma,
            tau=getattr(rule, "tau", None),
            period=getattr(rule, "period", None),
            start_step=self._start,
            end_step=self.end_step,
            steps_at_start=len(self.memory) if fresh else None,
            uint8=getattr(observation_space, "dtype", None) == np.uint8,
            networks={name: getattr(agent, name) for name in agent.trained},
            value_networks=dry.policy_networks if discrete else dry.critics,
        )

    def record(
        self,
        before: Weights | None = None,
        gradient_steps: int = 0,
        logs: dict[str, float] | None = None,
        evaluations: tuple = (),
    ) -> Record:
        """Measures now.

        Args:
            before: `weights()` an execution ago, for the size of the updates.
            gradient_steps: how many were taken since.
            logs: numbers of the epoch so far.
            evaluations: `(return, length)` of greedy episodes.

        Returns:
            A record of plain numbers.
        """
        agent, now = self.agent, self.weights()
        batch = self._sample(ROWS, agent.n_step, agent.gamma)
        numbers = self._dry(batch)
        if self._tried < TRIALS and agent.targets:
            self._try_targets(batch)
        before = now if before is None else before
        logs = dict(logs or {})
        return Record(
            step=agent.env_steps,
            gradient_steps=agent.gradient_steps,
            networks={
                name: self._network(name, numbers, before, now, gradient_steps)
                for name in agent.trained
            },
            targets=tuple(self._targets(before, now)),
            values=tuple(self._values(numbers)),
            acting=self._acting(numbers["policy"], batch.observation),
            data=self._look_at_data("episode_return" in logs),
            evaluations=tuple(evaluations),
            logs={
                name: float(value)
                for name, value in logs.items()
                if np.ndim(value) == 0 and np.isfinite(value)
            },
        )

    def weights(self) -> Weights:
        """Copies of the weights of all networks, by attribute."""
        names = (*self.agent.trained, *self.agent.targets.values())
        return {name: getattr(self.agent, name).get_weights() for name in names}

    def seconds_per_update(self, rows: int) -> float:
        """Seconds per gradient step with minibatches of so many rows."""
        batch = self._sample(rows, self.agent.n_step, self.agent.gamma)
        return self._dry.seconds_per_update(batch)

    def _sample(self, rows: int, n_step: int, gamma: float) -> Transition:
        batch = self.memory.sample(rows, gamma=gamma, n_step=n_step, rng=self._rng)
        batch = batch._replace(
            action=self.agent.action_units.to_network(batch.action), index=None
        )
        return Transition(*(_first(leaf) for leaf in batch))

    # ------------------------------------------------------------------- networks

    def _network(
        self, name: str, numbers: dict, before: Weights, now: Weights, steps: int
    ) -> Network:
        network = getattr(self.agent, name)
        optimizer = getattr(self.agent, self.agent.trained[name])
        paths = [variable.path for variable in network.weights]
        old, new = (dict(zip(paths, w[name], strict=True)) for w in (before, now))
        trainable = [variable.path for variable in network.trainable_variables]
        updates = {}
        if steps > 0:
            for path in trainable:
                size = np.linalg.norm(old[path])
                if old[path].ndim > 1 and size > 0:
                    change = np.linalg.norm(new[path] - old[path])
                    updates[path] = float(change / size / steps)
        loss, first = numbers["losses"].get(name), self._first[name]
        done = max(self.agent.gradient_steps - self._first_steps, 1)
        gradients = {
            path: None if norm == MISSING else float(norm)
            for path, norm in numbers["gradients"].get(name, {}).items()
        }
        return Network(
            loss=None if loss is None else float(loss),
            gradients=gradients,
            weights={path: float(np.linalg.norm(new[path])) for path in trainable},
            updates=updates,
            drift=_distance(now[name], first) / max(_size(first), 1e-12) / done,
            layers=tuple(
                Layer(*shape, *map(float, row))
                for shape, row in zip(
                    self._dry.layers[name], numbers["layers"][name], strict=True
                )
            ),
            inputs=self._inputs(name, numbers),
            learning_rate=float(optimizer.learning_rate),
            clipping=next(
                (
                    (kind, float(getattr(optimizer, kind)))
                    for kind in CLIPPING
                    if getattr(optimizer, kind, None) is not None
                ),
                None,
            ),
        )

    def _inputs(self, name: str, numbers: dict) -> Inputs | None:
        if name not in numbers["inputs"]:
            return None
        layer = self._dry.first_layers[name]
        return Inputs(layer, *map(float, numbers["inputs"][name]))

    # -------------------------------------------------------------------- targets

    def _targets(self, before: Weights, now: Weights) -> Iterator[Target]:
        for online, target in self.agent.targets.items():
            fast, slow = getattr(self.agent, online), getattr(self.agent, target)
            shared = {id(v) for v in fast.variables} & {id(v) for v in slow.variables}
            size = _size(now[online])
            apart = _distance(now[online], now[target])
            used, online_used_by = self._uses.get(target, (None, None))
            yield Target(
                name=target,
                online=online,
                shared=bool(shared),
                distance=apart / size if size else apart,
                moved=_distance(now[target], self._first[target]) > 0,
                online_moved=_distance(now[online], self._first[online]) > 0,
                equal=apart == 0 and _distance(before[online], before[target]) == 0,
                used=used,
                online_used_by=online_used_by,
            )

    def _try_targets(self, batch: Transition) -> None:
        """Finds which losses depend on which target networks, by shaking these.

        With a discount above 0 in every row, since a loss of nothing but ends of
        episodes depends on no target network at all.
        """
        if self.agent.gamma == 0.0:
            return
        self._tried += 1
        gamma = np.full_like(batch.discount, self.agent.gamma)
        batch = batch._replace(discount=gamma)
        base = self._dry(batch)["losses"]
        policy, discrete = self._dry.policy_networks, self.agent.actions == "discrete"
        for online, target in self.agent.targets.items():
            changed = self._changed_by(target, batch, base)
            used, culprit = bool(changed), None
            if not used and online in policy and not discrete:
                others = self._changed_by(online, batch, base) - {*policy}
                culprit = min(others, default=None)
            # Once used is enough: a loss may hide it by chance.
            if not self._uses.get(target, (False,))[0]:
                self._uses[target] = (used, culprit)

    def _changed_by(self, name: str, batch: Transition, base: dict) -> set[str]:
        """Networks whose loss changes with the weights of a network."""
        for _ in range(SHAKES):
            with _shaken(getattr(self.agent, name), self._rng):
                losses = self._dry(batch)["losses"]
            changed = {name for name, loss in losses.items() if loss != base[name]}
            if changed:
                break
        return changed

    # ------------------------------------------------------------- values, acting

    def _values(self, numbers: dict) -> Iterator[Values]:
        if self.agent.actions == "discrete":
            q, names = numbers["policy"], self._dry.policy_networks
            if names and q.ndim == 2:
                best = q.max(axis=1)
                gap = float((best - q.min(axis=1)).mean())
                yield Values(names[0], *_summary(best, np.abs(q).max()), gap)
            return
        for name, (value, slope) in numbers["values"].items():
            yield Values(
                name, *_summary(value, np.abs(value).max()), float(slope.mean())
            )

    def _acting(self, policy: np.ndarray, observation: Any) -> Acting | None:
        names = self._dry.policy_networks
        if not names:
            return None
        discrete = self.agent.actions == "discrete"
        size = np.abs(policy)
        greedy = _commonest(policy.argmax(axis=1)) if discrete else 0.0
        activation, _ = checks.last_activation(getattr(self.agent, names[0]))
        return Acting(
            policy=names[0],
            activation=activation,
            largest=0.0 if discrete else float(size.max()),
            at_bound=0.0 if discrete else float((size > AT_BOUND).mean()),
            greedy_share=greedy,
            tried_share=self._tried_share(policy) if discrete else None,
            histogram=_histogram(policy, discrete),
            exploration=self._exploration(),
        )

    def _tried_share(self, policy: np.ndarray) -> float | None:
        """Share of the commonest action that the exploration rule would try now."""
        with contextlib.suppress(Exception):  # a user's rule may need more than this
            rule = copy.deepcopy(self.agent.exploration)
            return _commonest(
                rule(_Policy(policy), self.agent.env_steps, self._rng, None)
            )
        return None

    def _exploration(self) -> tuple[dict, dict, dict]:
        rule = copy.deepcopy(self.agent.exploration)  # schedules keep what they read
        steps = (self._start, self.agent.env_steps, self.end_step)
        return tuple(dict(rule.values(step)) for step in steps)

    # ----------------------------------------------------------------------- data

    def _look_at_data(self, episode_ended: bool) -> Data:
        batch, known = self._sample(DATA_ROWS, 1, 0.5), self._data
        now, after = _rows(batch.observation), _rows(batch.next_observation)
        known["rows"] += DATA_ROWS
        known["reward_low"] = min(known["reward_low"], float(batch.reward.min()))
        known["reward_high"] = max(known["reward_high"], float(batch.reward.max()))
        known["reward_sum"] += float(np.abs(batch.reward).sum())
        known["terminations"] += int((batch.discount == 0).sum())
        known["unchanged"] += int((now == after).all(axis=1).sum())
        known["varied"] |= bool((now != now[:1]).any())
        return Data(
            steps=len(self.memory),
            rows=known["rows"],
            reward_low=known["reward_low"],
            reward_high=known["reward_high"],
            reward_size=known["reward_sum"] / known["rows"],
            terminations=known["terminations"],
            unchanged=known["unchanged"] / known["rows"],
            varied=known["varied"],
            episode_ended=episode_ended,
        )


class _Policy:
    """What exploration receives: values that are there already."""

    def __init__(self, values: np.ndarray):
        self._values, self.shape = values, values.shape

    def __call__(self) -> np.ndarray:
        return self._values


@contextlib.contextmanager
def _shaken(network: keras.Model, rng: np.random.Generator) -> Iterator[None]:
    """A network with noise on its weights, for a while."""
    before = network.get_weights()
    try:
        network.set_weights([_noisy(weight, rng) for weight in before])
        yield
    finally:
        network.set_weights(before)


def _noisy(weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if not np.issubdtype(weight.dtype, np.floating):
        return weight
    size = 0.1 + np.sqrt(np.square(weight).mean())
    return weight + size * rng.normal(size=weight.shape).astype(weight.dtype)


def _distance(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    pairs = zip(one, other, strict=True)
    return float(np.sqrt(sum(np.square(a - b, dtype=float).sum() for a, b in pairs)))


def _size(weights: list[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.square(w, dtype=float).sum() for w in weights)))


def _commonest(actions: np.ndarray) -> float:
    return float(np.unique(actions, return_counts=True)[1].max() / len(actions))


def _histogram(policy: np.ndarray, discrete: bool) -> tuple[float, ...]:
    """Shares of greedy actions, by action or in 20 equal parts of [-1, 1]."""
    if discrete:
        counts = np.bincount(policy.argmax(axis=1), minlength=policy.shape[1])
    else:
        counts, _ = np.histogram(np.clip(policy, -1.0, 1.0), bins=20, range=(-1, 1))
    return tuple((counts / counts.sum()).tolist())


def _summary(values: np.ndarray, largest: float) -> tuple[float, float, float]:
    return float(values.mean()), float(largest), float(values.std())


def _first(leaf: Any) -> Any:
    """The first of `K` minibatches."""
    if isinstance(leaf, dict):
        return {name: part[0] for name, part in leaf.items()}
    return None if leaf is None else leaf[0]


def _rows(observation: Any) -> np.ndarray:
    """Observations as `[B, F]`."""
    is_dict = isinstance(observation, dict)
    parts = list(observation.values()) if is_dict else [observation]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
