"""Uniform experience replay."""

import math
import os
import secrets
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_rl2x.memories import storage
from keras_rl2x.ops import n_step_return
from keras_rl2x.ops.checks import check_number
from keras_rl2x.ops.checks import check_whole
from keras_rl2x.types import Step
from keras_rl2x.types import Transition

PLAIN = "observation"  # name of the only part of an observation that is no dict
MASK = "action_mask"
LONG_CHAIN = 16  # from this n_step on, looking for the ends of episodes pays


@keras.saving.register_keras_serializable(package="keras_rl2x")
class ReplayMemory:
    """Ring of single steps in main memory, sampled uniformly.

    Observations are kept in the env's own dtype and *once*: the next observation
    of a step is the observation of the following one. An episode of `L` steps
    takes `L` steps of capacity and `L + 1` observations. With `frame_stack=4`
    each frame of a stacked image is kept once as well, so that a step of an
    84×84 Atari env takes about 7.5 kB (7 056 bytes of pixels, a 16th of spare room
    and 30 bytes of the rest) in place of 56 kB; the first observation of an episode
    then takes four frames. n-step rewards and discounts are formed
    when sampling, so `gamma` and `n_step` may change at any time, and no chain
    crosses the end of an episode or the newest step.

    Source: Lin, "Self-improving reactive agents based on reinforcement learning",
    1992; Mnih et al., "Human-level control through deep reinforcement learning",
    2015.

    Args:
        capacity: int, steps that are kept; the oldest ones leave first. More is
            steadier and takes more memory. With `N` envs each keeps
            `capacity // N` of its own.
        frame_stack: int or `None`, number of frames along the first (or else the
            last) axis of an observation of which each is to be stored once.
            `fit` sets it for envs whose frames are stacked by gymnasium or ale-py.

    Raises:
        ValueError: for a capacity below 1.
        MemoryError: when the first step is added (or `fit` starts) and the size,
            which the message states in GiB, exceeds what is free.

    Example:
    ```python
    memory = ReplayMemory(50_000)
    memory.add_episode(observations, actions, rewards, terminated=True)
    batch = memory.sample(32, gamma=0.99, n_step=3)     # leaves are [1, 32, ...]
    memory.save("demonstrations")
    agent.compile(memory=ReplayMemory.load("demonstrations"))
    ```
    """

    def __init__(self, capacity: int = 100_000, frame_stack: int | None = None):
        self.capacity = check_whole("capacity", capacity)
        if frame_stack is not None:
            frame_stack = check_whole("frame_stack", frame_stack)
        self.frame_stack = frame_stack
        self._frames: dict[str, np.ndarray] = {}
        self._token = secrets.token_hex(8)  # tells this object's files from others'
        self._rng = np.random.default_rng()

    # ------------------------------------------------------------- the interface

    def __len__(self) -> int:
        """Number of steps that can be sampled."""
        return int((self._count - self._oldest).sum()) if self._frames else 0

    @property
    def nbytes(self) -> int:
        """Bytes of main memory taken when the memory is full (0 before use)."""
        if not self._frames:
            return 0
        return sum(array.nbytes for array in self._arrays().values())

    def allocate(self, step: Step, num_envs: int | None = None) -> None:
        """Reserves the memory for steps like `step`, or raises that it cannot.

        Called by the first `add`, and by `fit` before it starts. A memory that holds
        steps already is only compared.

        Args:
            step: an example with `[M, ...]` leaves; only shapes and dtypes count.
            num_envs: int, number of environments (N); defaults to M.

        Raises:
            MemoryError: if the memory cannot fit, with its size in GiB.
            ValueError: if the steps do not fit what the memory holds.
        """
        columns = len(step.reward) if num_envs is None else num_envs
        if len(self) > 0:
            if columns != self._columns:
                raise ValueError(
                    f"This memory holds steps of {self._columns} environments, not of "
                    f"{columns}. Use an env of {self._columns}, or a new memory: "
                    f"`compile(memory=ReplayMemory({self.capacity}))`."
                )
            self._check(step, np.arange(len(step.reward)) % columns)
            return
        if self.capacity < columns:
            raise ValueError(
                f"A memory of {self.capacity} steps is too small for {columns} "
                f"environments: `capacity` must be at least {columns}."
            )
        parts = self._parts(step.observation)
        self._frames = {}
        self._is_dict = isinstance(step.observation, dict)
        self._axis, self._stack = self._find_stack(parts)
        self._plan(columns, parts, np.asarray(step.action), step.action_mask)
        storage.check_fits(
            self._planned_bytes(),
            f"A memory of {self.capacity:,} steps",
            f"Pass a smaller one: `memory=ReplayMemory({self.capacity // 4})`.",
        )
        self._create()

    def add(self, step: Step, columns: np.ndarray | None = None) -> None:
        """Adds steps of one or several environments.

        Args:
            step: leaves are `[M, ...]`; they are copied.
            columns: `[M]` int, which of the `N` environments each row belongs to; rows
                of the same one follow each other in time. Defaults to one row of each.
                The first call (or `allocate`) fixes `N`.

        Raises:
            ValueError: if a leaf does not fit; nothing has changed then.
        """
        size = len(step.reward)
        columns = np.arange(size) if columns is None else np.asarray(columns)
        if size == 0:
            return
        if not self._frames:
            self.allocate(step, int(columns.max()) + 1)
        self._check(step, columns)
        # Never more at once than fits without overtaking itself.
        chunk = max(1, min(self._per_column, self._rows // (2 * self._stack + 1)))
        for start in range(0, size, chunk):
            rows = slice(start, start + chunk)
            self._add(_take(step, rows), columns[rows])

    def _add(self, step: Step, columns: np.ndarray) -> None:
        if self._columns > 1 and not (np.diff(columns) > 0).all():
            order = np.argsort(columns, kind="stable")
            step, columns = _take(step, order), columns[order]
        now = self._split(self._parts(step.observation))
        after = self._split(self._parts(step.next_observation))
        first = np.append(True, columns[1:] != columns[:-1])  # of its column
        fresh = self._begins_anew(columns, first, now, after)
        shifted = self._is_shifted(now, after)
        # Rows and numbers count on from what each column holds.
        taken = np.where(shifted, 1, self._stack)
        next_row = _continue(self._row[columns], first, taken + fresh * self._stack)
        row = next_row - taken
        number = _continue(self._count[columns] - 1, first, np.ones_like(columns))
        last = np.append(first[1:], True)
        self._make_room(columns[last], next_row[last], number[last])
        ended = np.logical_or(step.terminated, step.truncated)
        # An observation that does not follow the last one breaks the chain there.
        self._cut(columns[first & fresh])
        ended[:-1] |= fresh[1:] & ~first[1:]
        self._write(columns, row, now, fresh, step.action_mask)
        self._write(columns, next_row, after, ~shifted, step.next_action_mask)
        self._write(columns, next_row, after, shifted, step.next_action_mask, frames=1)
        at = (columns, number % self._per_column)
        self._action[at] = step.action
        self._reward[at] = step.reward
        self._terminated[at] = step.terminated
        self._ended[at] = ended
        self._obs_row[at], self._next_row[at] = row, next_row
        # Counters last: an interruption leaves the steps unseen, never half seen.
        self._row[columns[last]] = next_row[last]
        self._count[columns[last]] = number[last] + 1

    def add_episode(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminated: bool,
    ) -> None:
        """Adds a whole episode, for example a demonstration.

        Args:
            observations: `[L + 1, ...]` (or a dict of such arrays), with the final one.
            actions: `[L]` or `[L, A]`, in the env's units.
            rewards: `[L]` float.
            terminated: `True` if the task ended it, `False` if it was cut off.

        Raises:
            ValueError: if the lengths do not fit each other.
        """
        actions, rewards = np.asarray(actions), np.asarray(rewards)
        parts = self._parts(observations)
        length, lengths = len(actions), {len(part) for part in parts.values()}
        if lengths != {length + 1} or len(rewards) != length or length == 0:
            raise ValueError(
                "An episode of L steps has L actions, L rewards and L + 1 "
                f"observations. Received: {length} actions, {len(rewards)} rewards "
                f"and {sorted(lengths)} observations."
            )
        before = {name: part[:-1] for name, part in parts.items()}
        after = {name: part[1:] for name, part in parts.items()}
        is_dict = isinstance(observations, dict)
        ends = np.arange(length) == length - 1
        episode = Step(
            observation=before if is_dict else before[PLAIN],
            action=actions,
            reward=rewards,
            terminated=ends & bool(terminated),
            truncated=ends & (not terminated),
            next_observation=after if is_dict else after[PLAIN],
        )
        self.allocate(_take(episode, slice(0, 1)))
        self.break_chains()
        self.add(episode, columns=np.zeros(length, int))

    def sample(
        self,
        batch_size: int,
        num_batches: int = 1,
        *,
        gamma: float = 0.99,
        n_step: int = 1,
        rng: np.random.Generator | None = None,
    ) -> Transition:
        """Draws `num_batches` minibatches, uniformly and with replacement.

        Args:
            batch_size: rows per minibatch (B).
            num_batches: minibatches (K).
            gamma: discount per step.
            n_step: steps until the bootstrap; fewer where an episode ends earlier.
            rng: source of randomness; defaults to the memory's own.

        Returns:
            `Transition` whose leaves are `[K, B, ...]`; actions in the env's units.

        Raises:
            ValueError: if the memory is empty.
        """
        for name, value in (
            ("batch_size", batch_size),
            ("num_batches", num_batches),
            ("n_step", n_step),
        ):
            check_whole(name, value)
        check_number("gamma", gamma, 0.0, 1.0)
        if len(self) == 0:
            raise ValueError("The memory is empty: add steps before sampling.")
        rng = self._rng if rng is None else rng
        column, number = self._draw(num_batches * batch_size, rng)
        return self._gather(
            column, number, (num_batches, batch_size), gamma=gamma, n_step=n_step
        )

    def break_chains(self) -> None:
        """Marks the newest steps as cut off: what is added next is a new episode."""
        if self._frames:
            self._cut(np.arange(self._columns))

    def save(
        self,
        directory: str | os.PathLike,
        earlier: str | os.PathLike | None = None,
    ) -> None:
        """Writes the memory into a directory of plain arrays (no pickle), with sums.

        Args:
            directory: path; created if missing. Only the part in use is written,
                straight from the memory, without a second copy.
            earlier: directory of an earlier save of this object. Files of frames that
                have not changed are linked to those there, which both stay whole if
                the other is removed: so a large memory is written in pieces.
        """
        if not self._frames:
            raise ValueError("The memory is empty: there is nothing to save.")
        earlier = None if earlier is None else Path(earlier)
        storage.write_arrays(
            Path(directory), self._used_arrays(), self._facts(), self._stamp, earlier
        )

    def _stamp(self, name: str, rows: slice) -> Any:
        """Number of the newest frame among some rows of each column.

        Frames are written in turn, so it tells which ones are there.
        """
        if not name.startswith("frames_"):
            return None
        end = self._row - self._row % self._rows + rows.stop - 1  # in this round
        has_begun = self._row > end - (rows.stop - rows.start)
        newest = np.where(has_begun, np.minimum(self._row, end), end - self._rows)
        return [self._token, *newest.tolist()]

    @classmethod
    def load(cls, directory: str | os.PathLike) -> "ReplayMemory":
        """Reads what `save` wrote.

        Args:
            directory: path given to `save`.

        Returns:
            A memory with the same content, position and configuration.

        Raises:
            ValueError: if a file is missing, damaged or foreign.
        """
        directory = Path(directory)
        facts = storage.read_facts(directory)
        try:
            memory = cls(**facts["config"])
            memory._restore(directory, facts)
        except (KeyError, TypeError, IndexError, ArithmeticError) as error:
            raise ValueError(
                f"{str(directory / 'memory.json')!r} is damaged: {error!r}."
            ) from None
        return memory

    def __repr__(self) -> str:
        return f"ReplayMemory(capacity={self.capacity}, steps={len(self)})"

    def get_config(self) -> dict:
        """The constructor's arguments (the content is not part of it)."""
        return {"capacity": self.capacity, "frame_stack": self.frame_stack}

    @classmethod
    def from_config(cls, config: dict) -> "ReplayMemory":
        """An empty memory made from `get_config()`."""
        return cls(**config)

    # -------------------------------------------------------------- the layout
    #
    # `N` columns, one per env. Observations lie in rows of `_frames`, numbered for
    # ever from 0 and stored at `number % _rows`; the observation of a step is made
    # of the `_stack` rows that end at its `_obs_row`. Steps are likewise numbered
    # for ever and stored at `number % _per_column`; the live ones of column `e` are
    # `_oldest[e] ... _count[e] - 1`. `_row` is the last row written.

    @staticmethod
    def _parts(observation: Any) -> dict[str, np.ndarray]:
        if isinstance(observation, dict):
            return {name: np.asarray(part) for name, part in observation.items()}
        return {PLAIN: np.asarray(observation)}

    def _find_stack(self, parts: dict) -> tuple[int, int]:
        """Axis (counted with the batch axis) and number of stacked frames."""
        if self.frame_stack is None or self.frame_stack == 1:
            return 1, 1
        shape = parts[PLAIN].shape if PLAIN in parts else ()
        for axis in (1, len(shape) - 1):
            if len(shape) > 1 and shape[axis] == self.frame_stack:
                return axis, self.frame_stack
        raise ValueError(
            f"frame_stack={self.frame_stack} needs an observation whose first or "
            f"last axis has that size. Received: {shape[1:] or list(parts)}."
        )

    def _plan(self, columns: int, parts: dict, action: np.ndarray, mask: Any) -> None:
        self._spec = {
            name: (self._frame_shape(part.shape), part.dtype)
            for name, part in parts.items()
        }
        if mask is not None:
            self._spec[MASK] = (np.shape(mask)[1:], np.dtype(bool))
        self._action_spec = (action.shape[1:], action.dtype)
        self._size_columns(columns)

    def _size_columns(self, columns: int) -> None:
        self._columns = columns
        self._per_column = self.capacity // columns
        # Each episode takes one row more than steps. Small observations get room
        # for episodes of one step; for images a 16th is ample, and shorter
        # episodes than that only make the memory hold fewer steps.
        row = sum(
            math.prod(shape) * dtype.itemsize for shape, dtype in self._spec.values()
        )
        large = row * self.capacity > storage.GIB // 4
        spare = self._per_column // 16 if large else self._per_column
        self._rows = self._per_column + spare + 2 * self._stack

    def _frame_shape(self, shape: tuple) -> tuple:
        if self._stack == 1:
            return tuple(shape[1:])
        return tuple(n for axis, n in enumerate(shape) if axis not in (0, self._axis))

    def _layout(self) -> dict[str, tuple[tuple, Any]]:
        """Shape and dtype of every array by name."""
        rows, steps = (self._columns, self._rows), (self._columns, self._per_column)
        shape, dtype = self._action_spec
        layout = {
            f"frames_{name}": (rows + tuple(frame), frame_dtype)
            for name, (frame, frame_dtype) in self._spec.items()
        }
        layout["action"] = (steps + tuple(shape), dtype)
        layout["reward"] = (steps, np.dtype(np.float32))
        layout["terminated"] = layout["ended"] = (steps, np.dtype(bool))
        layout["obs_row"] = layout["next_row"] = (steps, np.dtype(np.int64))
        return layout

    def _planned_bytes(self) -> int:
        return sum(
            math.prod(shape) * dtype.itemsize
            for shape, dtype in self._layout().values()
        )

    def _create(self) -> None:
        for name, (shape, dtype) in self._layout().items():
            # `zeros` takes pages only as they are used.
            array = np.zeros(shape, dtype)
            if name.startswith("frames_"):
                self._frames[name.removeprefix("frames_")] = array
            else:
                setattr(self, f"_{name}", array)
        self._row = np.full(self._columns, -1, np.int64)
        self._count = np.zeros(self._columns, np.int64)
        self._oldest = np.zeros(self._columns, np.int64)

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {f"frames_{name}": array for name, array in self._frames.items()}
        for name in self._layout():
            if name not in arrays:
                arrays[name] = getattr(self, f"_{name}")
        return arrays

    # ------------------------------------------------------------------- adding

    def _check(self, step: Step, columns: np.ndarray) -> None:
        """A wrong step must not leave anything behind."""
        size = len(columns)
        if np.min(columns) < 0 or np.max(columns) >= self._columns:
            raise ValueError(
                f"This memory holds {self._columns} environments. "
                f"Received: columns={columns!r}."
            )
        wanted = {
            name: (self._full_shape(name), dtype)
            for name, (_, dtype) in self._spec.items()
            if name != MASK
        }
        for field in ("observation", "next_observation"):
            parts = self._parts(getattr(step, field))
            if set(parts) != set(wanted):
                raise ValueError(
                    f"`{field}` does not fit this memory: expected the parts "
                    f"{sorted(wanted)}, received {sorted(parts)}."
                )
            for name, (shape, dtype) in wanted.items():
                label = field if name == PLAIN else f"{field}[{name!r}]"
                _check_leaf(label, parts[name], (size, *shape), dtype)
        shape, dtype = self._action_spec
        _check_leaf("action", step.action, (size, *shape), dtype)
        _check_leaf("reward", step.reward, (size,), np.dtype(np.float64))
        _check_leaf("terminated", step.terminated, (size,), np.dtype(bool))
        _check_leaf("truncated", step.truncated, (size,), np.dtype(bool))
        if MASK in self._spec:
            shape = (size, *self._spec[MASK][0])
            for field in ("action_mask", "next_action_mask"):
                _check_leaf(field, getattr(step, field), shape, np.dtype(bool))

    def _full_shape(self, name: str) -> tuple:
        frame = self._spec[name][0]
        if self._stack == 1:
            return frame
        return (*frame[: self._axis - 1], self._stack, *frame[self._axis - 1 :])

    def _split(self, parts: dict) -> dict[str, np.ndarray]:
        """Frames of each part: `[M, stack, ...]`."""
        if self._stack == 1:
            return {name: part[:, None] for name, part in parts.items()}
        return {name: np.moveaxis(part, self._axis, 1) for name, part in parts.items()}

    def _begins_anew(
        self, columns: np.ndarray, first: np.ndarray, now: dict, after: dict
    ) -> np.ndarray:
        """`[M]` bool: the observation is not the one that came last in its column."""
        same = np.ones(len(columns), bool)
        at = np.flatnonzero(first)
        row = self._row[columns[at]]
        same[at] = row >= 0
        back = np.arange(self._stack - 1, -1, -1)
        for name, frames in now.items():
            stored = self._frames[name][
                columns[at, None], (row[:, None] - back) % self._rows
            ]
            same[at] &= _equal(stored, frames[at])
            if len(at) < len(columns):
                follows = _equal(after[name][:-1], frames[1:])
                same[1:] &= follows | first[1:]
        return ~same

    def _is_shifted(self, now: dict, after: dict) -> np.ndarray:
        """`[M]` bool: the next observation brings one new frame, as stacks do."""
        if self._stack == 1:
            return np.ones(len(next(iter(now.values()))), bool)
        return _equal(now[PLAIN][:, 1:], after[PLAIN][:, :-1])

    def _make_room(
        self, columns: np.ndarray, last_row: np.ndarray, last_number: np.ndarray
    ) -> None:
        """Lets the oldest steps go whose place is about to be taken."""
        oldest = np.maximum(self._oldest[columns], last_number + 1 - self._per_column)
        while True:
            begin = self._obs_row[columns, oldest % self._per_column] - self._stack + 1
            gone = (oldest < self._count[columns]) & (begin <= last_row - self._rows)
            if not gone.any():
                break
            oldest = oldest + gone
        self._oldest[columns] = oldest

    def _cut(self, columns: np.ndarray) -> None:
        columns = columns[self._count[columns] > 0]
        self._ended[columns, (self._count[columns] - 1) % self._per_column] = True

    def _write(
        self,
        columns: np.ndarray,
        last_row: np.ndarray,
        observation: dict,
        chosen: np.ndarray,
        mask: Any,
        frames: int | None = None,
    ) -> None:
        """Writes the chosen observations, or their newest frames, up to `last_row`."""
        if not chosen.any():
            return
        columns, last_row = columns[chosen], last_row[chosen]
        for back in range(self._stack if frames is None else frames):
            at = (columns, (last_row - back) % self._rows)
            for name, part in observation.items():
                self._frames[name][at] = part[chosen, self._stack - 1 - back]
        if MASK in self._spec:
            self._frames[MASK][columns, last_row % self._rows] = mask[chosen]

    # ----------------------------------------------------------------- sampling

    def _draw(self, size: int, rng: np.random.Generator) -> tuple:
        """Columns and numbers of `size` steps, each step equally likely."""
        live = self._count - self._oldest
        if self._columns == 1:
            column = np.zeros(size, np.int64)
            return column, self._oldest[0] + rng.integers(live[0], size=size)
        bounds = np.cumsum(live)
        pick = rng.integers(bounds[-1], size=size)
        column = np.searchsorted(bounds, pick, side="right")
        return column, self._oldest[column] + pick - (bounds - live)[column]

    def _gather(
        self, column: np.ndarray, number: np.ndarray, shape: tuple, gamma, n_step: int
    ) -> Transition:
        if n_step > LONG_CHAIN:
            n_step = self._longest_chain(column, number, n_step)
        numbers = number[:, None] + np.arange(n_step)
        slots = numbers % self._per_column
        at = (column[:, None], slots)
        reward, discount, length = n_step_return(
            self._reward[at],
            self._ended[at],
            self._terminated[at],
            gamma,
            available=numbers < self._count[column][:, None],
        )
        first, last = slots[:, 0], slots[np.arange(len(slots)), length - 1]
        next_row = self._next_row[column, last]
        masks = self._frames.get(MASK)
        return Transition(
            observation=self._observations(column, self._obs_row[column, first], shape),
            action=_stacked(self._action[column, first], shape),
            reward=reward.reshape(shape),
            discount=discount.reshape(shape),
            next_observation=self._observations(column, next_row, shape),
            next_action_mask=None
            if masks is None
            else _stacked(masks[column, next_row % self._rows], shape),
        )

    def _longest_chain(
        self, column: np.ndarray, number: np.ndarray, n_step: int
    ) -> int:
        """Steps of the longest of these chains: what a large `n_step` comes down to."""
        for length in range(1, n_step):
            over = self._ended[column, number % self._per_column]
            going = ~over & (number + 1 < self._count[column])
            if not going.any():
                return length
            column, number = column[going], number[going] + 1
        return n_step

    def _observations(self, column: np.ndarray, row: np.ndarray, shape: tuple) -> Any:
        if self._stack == 1:
            parts = {
                name: _stacked(array[column, row % self._rows], shape)
                for name, array in self._frames.items()
                if name != MASK
            }
            return parts if self._is_dict else parts[PLAIN]
        rows = (row[:, None] - np.arange(self._stack - 1, -1, -1)) % self._rows
        frames = self._frames[PLAIN][column[:, None], rows]
        return _stacked(np.moveaxis(frames, 1, self._axis), shape)

    # ------------------------------------------------------------ saving, loading

    def _used_arrays(self) -> dict[str, np.ndarray]:
        """Views of what has been written so far."""
        shapes = self._used_shapes(self._row, self._count)
        return {
            name: array[:, : shapes[name][0][1]]
            for name, array in self._arrays().items()
        }

    def _used_shapes(self, row: np.ndarray, count: np.ndarray) -> dict[str, tuple]:
        """Shape and dtype of the part of each array that has been written."""
        rows = min(self._rows, int(row.max()) + 1)
        steps = min(self._per_column, int(count.max()))
        return {
            name: (
                (shape[0], rows if name.startswith("frames_") else steps, *shape[2:]),
                dtype,
            )
            for name, (shape, dtype) in self._layout().items()
        }

    def _facts(self) -> dict:
        return {
            "config": self.get_config(),
            "is_dict": self._is_dict,
            "columns": self._columns,
            "axis": self._axis,
            "stack": self._stack,
            "spec": {
                name: [list(shape), dtype.str]
                for name, (shape, dtype) in self._spec.items()
            },
            "action_spec": [list(self._action_spec[0]), self._action_spec[1].str],
            "row": self._row.tolist(),
            "count": self._count.tolist(),
            "oldest": self._oldest.tolist(),
        }

    def _restore(self, directory: Path, facts: dict) -> None:
        spec = {
            name: (tuple(shape), np.dtype(dtype))
            for name, (shape, dtype) in facts["spec"].items()
        }
        shape, dtype = facts["action_spec"]
        self._is_dict, self._spec = bool(facts["is_dict"]), spec
        self._action_spec = (tuple(shape), np.dtype(dtype))
        self._axis, self._stack = facts["axis"], facts["stack"]
        self._size_columns(facts["columns"])
        counters = [np.array(facts[name]) for name in ("row", "count", "oldest")]
        row, count, oldest = counters
        plausible = (
            all(c.shape == (self._columns,) and c.dtype.kind == "i" for c in counters)
            and (oldest >= 0).all()
            and (oldest <= count).all()
            and (count - oldest <= self._per_column).all()
            and (row >= -1).all()
            and type(self._stack) is type(self._axis) is int
            and self._stack >= 1
            and all(d.kind in "biuf" for _, d in [*spec.values(), self._action_spec])
        )
        if not plausible:
            raise ValueError(
                f"{str(directory / 'memory.json')!r} is damaged: its numbers "
                "contradict each other."
            )
        storage.check_fits(
            self._planned_bytes(), f"The memory of {str(directory)!r}", "Free some."
        )
        self._create()
        arrays = self._arrays()
        for name, (shape, _) in self._used_shapes(row, count).items():
            place = arrays[name][:, : shape[1]]
            storage.read_array(directory, name, place, facts["sha256"])
        self._row[:], self._count[:], self._oldest[:] = row, count, oldest


def _check_leaf(name: str, value: Any, shape: tuple, dtype: np.dtype) -> None:
    """Raises unless an array has a shape and can be stored without loss of kind."""
    if value is None:
        raise ValueError(f"`{name}` is missing: this memory holds it for every step.")
    array = np.asarray(value)
    kinds = array.dtype.kind in "iu" and dtype.kind in "iu"
    castable = kinds or np.can_cast(array.dtype, dtype, "same_kind")
    if array.shape != shape or not castable:
        raise ValueError(
            f"`{name}` does not fit this memory: expected shape {shape} and dtype "
            f"{dtype}, received shape {array.shape} and dtype {array.dtype}."
        )


def _take(step: Step, rows: Any) -> Step:
    """Some rows of every leaf."""

    def leaf(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: np.asarray(part)[rows] for name, part in value.items()}
        return None if value is None else np.asarray(value)[rows]

    return Step(*map(leaf, step))


def _equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """`[M]` bool: rows that agree in every number."""
    return (one == other).reshape(len(one), -1).all(axis=1)


def _continue(start: np.ndarray, first: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """`start + cumulated steps`, beginning anew at the first row of each column."""
    total = np.cumsum(steps)
    before = total - steps
    return (
        start
        + total
        - before[np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))]
    )


def _stacked(flat: np.ndarray, shape: tuple) -> np.ndarray:
    """`[K * B, ...]` to `[K, B, ...]`."""
    return flat.reshape(shape + flat.shape[1:])
