import numpy as np
import pytest

from keras_rl2x import ReplayMemory
from keras_rl2x.envs import EnvStepper
from keras_rl2x.types import Step
from tests.helpers import CounterEnv
from tests.memories.reference import Experience
from tests.memories.reference import Reference
from tests.memories.reference import to_step


def vectors(ids):
    return np.array(ids, np.float32)[:, None]


def dicts(ids):
    ids = np.array(ids)
    return {"pair": np.stack([ids, -ids], 1).astype(np.float64), "scalar": ids}


def bit_mask(ids):
    """`[M, 4]` bool: the lowest bits of the identity, and one that is allowed."""
    bits = np.array(ids)[:, None] >> np.arange(4) & 1
    return np.where(np.arange(4) == 3, True, bits.astype(bool))


def steps(count, start=0, ended=()):
    """Rows of one env: observation `[t]`, action `t % 5`, reward `t`."""
    t = np.arange(start, start + count)
    return Step(
        observation=t[:, None].astype(np.float32),
        action=t % 5,
        reward=t.astype(float),
        terminated=np.isin(t, ended),
        truncated=np.zeros(count, bool),
        next_observation=t[:, None].astype(np.float32) + 1,
    )


def filled(capacity, count, **kwargs):
    memory = ReplayMemory(capacity)
    memory.allocate(steps(1))
    memory.add(steps(count, **kwargs), np.zeros(count, int))
    return memory


def sampled(memory, seed=0, size=400, **kwargs):
    """One flat minibatch."""
    batch = memory.sample(size, rng=np.random.default_rng(seed), **kwargs)
    return type(batch)(*(None if leaf is None else _first(leaf) for leaf in batch))


def _first(leaf):
    if isinstance(leaf, dict):
        return {name: part[0] for name, part in leaf.items()}
    return leaf[0]


# ------------------------------------------------------- against plain Python lists


def feed(memory, reference, experience, rng, encode, mask, calls=25):
    """Adds random experience in random portions."""
    columns = len(reference.steps)
    for _ in range(calls):
        if rng.random() < 0.1:
            memory.break_chains()
            reference.break_chains()
        if rng.random() < 0.4:  # one step of every env, as `fit` without ghosts
            chosen = None
            order = np.arange(columns)
        else:
            chosen = order = rng.integers(columns, size=rng.integers(1, 60))
        rows = [experience.step(column) for column in order]
        for column, row in zip(order, rows, strict=True):
            reference.add(column, row)
        memory.add(to_step(rows, encode, mask), chosen)


def check_rows(batch, ids, reference, gamma, n_step, encode, mask):
    for row, identity in enumerate(ids):
        reward, discount, next_id = reference.expected(identity, gamma, n_step)
        assert batch.reward[row] == pytest.approx(reward, rel=1e-5, abs=1e-6)
        assert batch.discount[row] == pytest.approx(discount, rel=1e-6)
        wanted, got = encode([next_id]), batch.next_observation
        if isinstance(wanted, dict):
            for name, part in wanted.items():
                np.testing.assert_array_equal(got[name][row], part[0])
        else:
            np.testing.assert_array_equal(got[row], wanted[0])
        if mask is not None:
            np.testing.assert_array_equal(
                batch.next_action_mask[row], mask([next_id])[0]
            )


@pytest.mark.parametrize("kind", ["vector", "dict", "mask"])
@pytest.mark.parametrize("seed", range(8))
def test_random_experience_equals_a_list_of_everything(seed, kind):
    rng = np.random.default_rng(seed)
    columns = seed + 1
    capacity = int(rng.integers(columns, columns * 30)) | 1
    encode = dicts if kind == "dict" else vectors
    mask = bit_mask if kind == "mask" else None
    memory = ReplayMemory(max(capacity, columns))
    reference = Reference(memory.capacity, columns)
    experience = Experience(rng, columns)
    memory.allocate(to_step([experience.step(0)] * columns, encode, mask))
    experience = Experience(rng, columns)
    for n_step in (1, 2, 3, 4, 5):
        feed(memory, reference, experience, rng, encode, mask, calls=6)
        batch = sampled(memory, seed=seed, gamma=0.8, n_step=n_step)
        observation = batch.observation
        ids = observation["scalar"] if kind == "dict" else observation[:, 0]
        ids = [int(i) for i in ids]
        live = reference.live()
        assert len(memory) == len(live) <= memory.capacity
        assert set(ids) <= live
        check_rows(batch, ids[:150], reference, 0.8, n_step, encode, mask)
        by_id = {s["id"]: s for column in reference.steps for s in column}
        np.testing.assert_array_equal(batch.action, [by_id[i]["action"] for i in ids])
        if kind == "dict":
            np.testing.assert_array_equal(observation["pair"], dicts(ids)["pair"])


@pytest.mark.parametrize("seed", range(3))
def test_every_live_step_can_be_sampled(seed):
    rng = np.random.default_rng(seed)
    memory, reference = ReplayMemory(21), Reference(21, 3)
    feed(memory, reference, Experience(rng, 3), rng, vectors, None, calls=1)
    memory = ReplayMemory(21)
    reference, experience = Reference(21, 3), Experience(rng, 3)
    memory.allocate(to_step([Experience(rng, 3).step(0)] * 3, vectors))
    feed(memory, reference, experience, rng, vectors, None)
    batch = sampled(memory, size=1_000)
    assert set(batch.observation[:, 0].astype(int)) == reference.live()


def test_sampling_is_uniform_over_steps_not_over_environments():
    memory = ReplayMemory(60)
    memory.allocate(
        to_step([Experience(np.random.default_rng(0), 3).step(0)] * 3, vectors)
    )
    for column, count in ((0, 20), (1, 3), (2, 11)):
        memory.add(steps(count, start=100 * column), np.full(count, column))
    assert len(memory) == 34
    batch = sampled(memory, size=34_000)
    _, counts = np.unique(batch.observation, return_counts=True)
    assert len(counts) == 34
    chi_square = ((counts - 1_000) ** 2 / 1_000).sum()
    # 33 degrees of freedom: 63.9 is exceeded once in a thousand.
    assert 12.0 < chi_square < 63.9


# ------------------------------------------------------------- rows, ring, chains


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 100])
def test_rows_of_an_environment_stay_together(capacity):
    """Observation `t`, next observation and reward `t + 1`, in every sampled row."""
    stepper, memory = EnvStepper(CounterEnv(length=4)), ReplayMemory(capacity)
    stepper.reset(seed=0)
    for t in range(50):
        memory.add(stepper.step(np.array([t % 3])).step)
        batch = sampled(memory, size=50, gamma=0.5)
        now = batch.observation[:, 0]
        np.testing.assert_array_equal(batch.next_observation[:, 0], now + 1)
        np.testing.assert_array_equal(batch.reward, now + 1)
        # Observations count 5 to an episode, of which 4 are acted on.
        number = ((now - 1) // 5 * 4 + (now - 1) % 5).astype(int)
        np.testing.assert_array_equal(batch.action, number % 3)
        np.testing.assert_array_equal(batch.discount == 0, number % 4 == 3)
        assert number.min() > t - capacity
        assert len(memory) == min(t + 1, capacity)


def test_oldest_steps_leave_first():
    memory = filled(7, 10)
    assert len(memory) == 7
    assert set(sampled(memory).observation[:, 0]) == set(range(3, 10))


def test_n_step_returns_are_formed_when_sampling():
    memory = filled(10, 5, ended=[4])
    for gamma, n_step, reward, discount in (
        (0.5, 1, 1.0, 0.5),
        (0.5, 3, 1 + 1 + 0.75, 0.125),
        (0.9, 2, 1 + 1.8, 0.81),
        (0.9, 5, 1 + 1.8 + 2.43 + 4 * 0.729, 0.0),
    ):
        batch = sampled(memory, gamma=gamma, n_step=n_step)
        row = list(batch.observation[:, 0]).index(1.0)
        assert batch.reward[row] == pytest.approx(reward)
        assert batch.discount[row] == pytest.approx(discount)
        assert batch.next_observation[row, 0] == min(1 + n_step, 5)


@pytest.mark.parametrize("n_step", [15, 16, 17, 29, 30, 31, 10**9])
def test_a_long_n_step_ends_with_the_episode(n_step):
    memory = filled(100, 70, ended=[29, 59])  # the last episode goes on
    batch = sampled(memory, gamma=1.0, n_step=n_step)
    for row, start in enumerate(batch.observation[:, 0].astype(int)):
        end = min(start // 30 * 30 + 29, start + n_step - 1, 69)
        assert batch.reward[row] == sum(range(start, end + 1))
        assert batch.next_observation[row, 0] == end + 1
        assert batch.discount[row] == (end not in (29, 59))


def test_no_chain_goes_beyond_the_newest_step_nor_round_the_ring():
    memory = filled(4, 6)  # rows 2 ... 5, written around the end
    batch = sampled(memory, gamma=0.5, n_step=5)
    expected = {2: 2 + 1.5 + 1 + 0.625, 3: 3 + 2 + 1.25, 4: 4 + 2.5, 5: 5}
    for now, reward, discount, after in zip(
        batch.observation[:, 0], batch.reward, batch.discount, batch.next_observation
    ):
        assert reward == pytest.approx(expected[now])
        assert discount == 0.5 ** (6 - now)
        assert after == 6


def test_a_truncated_step_bootstraps_and_a_terminated_one_does_not():
    t, memory = np.arange(4), ReplayMemory(10)
    memory.allocate(steps(1))
    flags = {"terminated": t == 1, "truncated": np.isin(t, [1, 2])}  # both: terminated
    memory.add(steps(4)._replace(**flags), np.zeros(4, int))
    batch = sampled(memory, gamma=0.9)
    np.testing.assert_allclose(
        batch.discount, np.where(batch.observation[:, 0] == 1, 0.0, 0.9), rtol=1e-6
    )


def test_break_chains_cuts_even_where_observations_agree():
    ReplayMemory(10).break_chains()  # of an empty memory: nothing happens
    memory = filled(10, 2)
    memory.break_chains()
    memory.add(steps(2, start=2), np.zeros(2, int))
    batch = sampled(memory, gamma=0.5, n_step=4)
    after = dict(zip(batch.observation[:, 0], batch.next_observation[:, 0]))
    assert after == {0: 2, 1: 2, 2: 4, 3: 4}
    np.testing.assert_array_equal(
        batch.discount, np.where(batch.observation[:, 0] % 2 == 0, 0.25, 0.5)
    )


def test_an_observation_that_does_not_follow_cuts_the_chain():
    memory = filled(10, 2)
    memory.add(steps(2, start=50), np.zeros(2, int))
    batch = sampled(memory, n_step=4)
    after = dict(zip(batch.observation[:, 0], batch.next_observation[:, 0]))
    assert after == {0: 2, 1: 2, 50: 52, 51: 52}


# ------------------------------------------------------------ shapes, dtypes, copies


def test_leaves_are_stacks_of_minibatches():
    batch = filled(10, 10).sample(4, 3, rng=np.random.default_rng(0))
    assert batch.observation.shape == batch.next_observation.shape == (3, 4, 1)
    assert batch.action.shape == batch.reward.shape == batch.discount.shape == (3, 4)
    assert batch.weight is None
    assert batch.index is None
    assert batch.next_action_mask is None


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float64])
def test_observations_and_actions_keep_their_dtype(dtype):
    memory = ReplayMemory(5)
    step = steps(3)
    step = step._replace(
        observation=step.observation.astype(dtype),
        next_observation=step.next_observation.astype(dtype),
        action=np.zeros((3, 2), np.float64),
    )
    memory.add(step, np.zeros(3, int))
    batch = sampled(memory)
    assert batch.observation.dtype == batch.next_observation.dtype == dtype
    assert batch.action.dtype == np.float64
    assert batch.action.shape == (400, 2)
    assert batch.reward.dtype == batch.discount.dtype == np.float32


def test_the_memory_keeps_and_gives_copies():
    memory, step = ReplayMemory(5), steps(3)
    memory.add(step, np.zeros(3, int))
    for leaf in (step.observation, step.action, step.reward, step.next_observation):
        leaf[:] = 77
    first = sampled(memory)
    assert first.observation.max() == first.reward.max() == 2
    first.observation[:] = 55
    assert sampled(memory).observation.max() == 2


def test_same_rng_same_rows():
    memory = filled(50, 50)
    one, two, other = (sampled(memory, seed=s).observation for s in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


# -------------------------------------------------------------------- frame stacks


def frames_of(ids, layout):
    """Stacks of 4 from `[M, 4]` identities of frames, of 2×3 numbers each."""
    frames = np.array(ids, np.uint16)[:, :, None, None] + np.arange(
        6, dtype=np.uint16
    ).reshape(2, 3)
    return frames if layout == "first" else np.moveaxis(frames, 1, -1)


class StackedExperience(Experience):
    """Identities are stacks of frames; now and then a whole stack is new."""

    def __init__(self, *args, jumps=0.05, **kwargs):
        super().__init__(*args, **kwargs)
        self.stack_of, self.jumps = {}, jumps

    def step(self, column):
        step = super().step(column)
        now, after = step["id"], step["next_id"]
        if now not in self.stack_of:
            padding = 0 if self.rng.random() < 0.5 else 10 * now
            self.stack_of[now] = [padding] * 3 + [10 * now]
        self.stack_of[after] = [*self.stack_of[now][1:], 10 * after]
        if self.rng.random() < self.jumps:  # no frame stays
            self.stack_of[after] = [10 * after + 1] * 3 + [10 * after]
        return step

    def first_axis(self, ids):
        return frames_of([self.stack_of[i] for i in ids], "first")


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("seed", range(6))
def test_frame_stacks_come_back_as_they_were(seed, layout):
    rng = np.random.default_rng(100 + seed)
    columns = [1, 2, 5][seed % 3]
    memory = ReplayMemory(int(rng.integers(8, 60)) | 1, frame_stack=4)
    reference = Reference(memory.capacity, columns)
    experience = StackedExperience(rng, columns, lengths=[(1, 3), (4, 30)][seed % 2])

    def encode(ids):
        return frames_of([experience.stack_of[i] for i in ids], layout)

    example = StackedExperience(rng, columns)
    rows = [example.step(0) for _ in range(columns)]
    experience.stack_of = example.stack_of
    memory.allocate(to_step(rows, encode))
    experience.stack_of = {}
    for n_step in (1, 2, 3):
        feed(memory, reference, experience, rng, encode, None, calls=12)
        batch = sampled(memory, seed=seed, size=200, gamma=0.9, n_step=n_step)
        shape = (4, 2, 3) if layout == "first" else (2, 3, 4)
        assert batch.observation.shape == (200, *shape)
        newest = (
            batch.observation[:, -1]
            if layout == "first"
            else (batch.observation[..., -1])
        )
        ids = [int(frame[0, 0]) // 10 for frame in newest]
        np.testing.assert_array_equal(batch.observation, encode(ids))
        check_rows(batch, ids[:100], reference, 0.9, n_step, encode, None)
        assert set(ids) <= reference.live()
        if seed % 2 or columns == 1:
            assert len(memory) <= len(reference.live())


@pytest.mark.parametrize("length", [4, 50])
def test_stacks_of_long_episodes_fill_the_whole_capacity(length):
    memory = ReplayMemory(41, frame_stack=4)
    rng = np.random.default_rng(0)
    experience = StackedExperience(rng, 1, lengths=(length, length), jumps=0.0)
    for _ in range(150):
        row = experience.step(0)
        memory.add(to_step([row], experience.first_axis))
    assert len(memory) == 41


def test_each_frame_of_a_stack_is_stored_once():
    """An Atari step of 84×84 takes about 7.5 kB, in place of 56 kB."""
    zeros, one = np.zeros((1, 4, 84, 84), np.uint8), np.zeros(1, bool)
    step = Step(zeros, np.zeros(1, np.int64), np.zeros(1), one, one, zeros)
    memory = ReplayMemory(50_000, frame_stack=4)
    memory.allocate(step)
    assert 7_056 < memory.nbytes / memory.capacity < 7_600
    plain = ReplayMemory(50_000)
    plain.allocate(step)
    assert plain.nbytes / plain.capacity < 30_100


def test_small_observations_are_stored_once_too():
    memory = filled(1_000, 10)
    # 4 bytes of observation (twice, for episodes of one step), 8 of the action, 4 of
    # the reward, 2 flags and 2 row numbers.
    assert memory.nbytes / memory.capacity < 8 + 8 + 4 + 2 + 16 + 1
    assert ReplayMemory(10).nbytes == 0


@pytest.mark.parametrize("observation", [np.zeros((1, 3, 84)), {"a": np.zeros((1, 4))}])
def test_a_stack_that_is_not_there_is_refused(observation):
    one = np.zeros(1, bool)
    step = Step(observation, np.zeros(1), np.zeros(1), one, one, observation)
    with pytest.raises(ValueError, match="frame_stack=4 needs an observation whose"):
        ReplayMemory(10, frame_stack=4).add(step)


# ------------------------------------------------------------------------- episodes


def test_add_episode_stores_a_demonstration():
    memory = ReplayMemory(20)
    memory.add_episode([[0.0], [1.0], [2.0]], [1, 0], [5.0, 6.0], terminated=True)
    memory.add_episode([[2.0], [3.0], [4.0]], [1, 1], [7.0, 8.0], terminated=False)
    assert len(memory) == 4
    batch = sampled(memory, gamma=0.5, n_step=3)
    rows = {
        (float(o[0]), int(a), float(r), float(d), float(n[0]))
        for o, a, r, d, n in zip(
            batch.observation,
            batch.action,
            batch.reward,
            batch.discount,
            batch.next_observation,
        )
    }
    assert rows == {
        (0.0, 1, 8.0, 0.0, 2.0),
        (1.0, 0, 6.0, 0.0, 2.0),
        (2.0, 1, 11.0, 0.25, 4.0),
        (3.0, 1, 8.0, 0.5, 4.0),
    }


def test_add_episode_of_dicts_and_continuous_actions():
    memory = ReplayMemory(9)
    observations = {"a": np.arange(3.0)[:, None], "b": np.arange(3)}
    memory.add_episode(observations, np.zeros((2, 2)), np.ones(2), terminated=True)
    batch = sampled(memory)
    np.testing.assert_array_equal(batch.observation["a"][:, 0], batch.observation["b"])
    np.testing.assert_array_equal(
        batch.next_observation["b"], batch.observation["b"] + 1
    )
    assert batch.action.shape == (400, 2)


@pytest.mark.parametrize(
    ("observations", "actions", "rewards"),
    [(2, 2, 2), (3, 2, 3), (1, 0, 0), (4, 2, 2)],
)
def test_an_episode_of_other_lengths_is_refused(observations, actions, rewards):
    memory = ReplayMemory(9)
    with pytest.raises(ValueError, match="L actions, L rewards and L . 1"):
        memory.add_episode(
            np.zeros((observations, 1)), np.zeros(actions), np.zeros(rewards), True
        )
    assert len(memory) == 0


# --------------------------------------------------------------------- wrong input


@pytest.mark.parametrize("capacity", [0, -5, 2.5, "100", None])
def test_a_capacity_that_is_no_number_of_steps_is_refused(capacity):
    with pytest.raises(ValueError, match="`capacity` must be a whole number, at least"):
        ReplayMemory(capacity)


@pytest.mark.parametrize("frame_stack", [0, -1, "4", 2.5])
def test_a_frame_stack_that_is_no_number_of_frames_is_refused(frame_stack):
    with pytest.raises(ValueError, match="`frame_stack` must be a whole number, at le"):
        ReplayMemory(10, frame_stack=frame_stack)


def test_fewer_places_than_environments_are_refused():
    rows = [Experience(np.random.default_rng(0), 4).step(0)] * 4
    with pytest.raises(ValueError, match="3 steps is too small for 4 environments"):
        ReplayMemory(3).add(to_step(rows, vectors))


@pytest.mark.parametrize("capacity", [10**9, 10**15, 10**18])
def test_what_cannot_fit_is_refused_before_it_is_allocated(capacity):
    zeros, one = np.zeros((1, 84, 84, 4), np.uint8), np.zeros(1, bool)
    memory = ReplayMemory(capacity)
    with pytest.raises(MemoryError, match=r"steps needs [\d.]+ GiB.*only [\d.]+ GiB"):
        memory.allocate(Step(zeros, one, np.zeros(1), one, one, zeros))
    assert memory.nbytes == len(memory) == 0


def test_an_empty_memory_says_so():
    with pytest.raises(ValueError, match="memory is empty: add steps before"):
        ReplayMemory(10).sample(4)
    with pytest.raises(ValueError, match="memory is empty: there is nothing to save"):
        ReplayMemory(10).save("never-written")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation": np.zeros((2, 3), np.float32)}, "`observation` does not fit"),
        ({"next_observation": np.zeros(2, np.float32)}, "`next_observation` does not"),
        ({"observation": {"a": np.zeros((2, 1))}}, "`observation` does not fit"),
        ({"action": np.zeros((2, 1), int)}, "`action` does not fit"),
        ({"reward": np.zeros((2, 1))}, "`reward`"),
        ({"reward": np.zeros(3)}, "`reward`"),
        ({"terminated": np.zeros(3, bool)}, "`terminated`"),
        ({"truncated": np.zeros((2, 2), bool)}, "`truncated`"),
        # Whole numbers would be cut off or wrap round without a word.
        ({"observation": np.full((2, 1), 0.5 + 1j)}, "`observation`.*dtype"),
        ({"action": np.array([0.5, 1.5])}, "`action`.*dtype"),
    ],
)
def test_a_step_that_does_not_fit_leaves_nothing_behind(change, message):
    memory = filled(10, 5)
    before = sampled(memory, n_step=3)
    with pytest.raises(ValueError, match=message):
        memory.add(steps(2, start=50)._replace(**change), np.zeros(2, int))
    assert len(memory) == 5
    after = sampled(memory, n_step=3)
    for old, new in zip(before[:5], after[:5], strict=True):
        np.testing.assert_array_equal(old, new)


def test_pixels_given_as_floats_are_refused():
    memory = ReplayMemory(10)
    pixels = np.zeros((1, 3), np.uint8)
    one = np.zeros(1, bool)
    step = Step(pixels, np.zeros(1, int), np.zeros(1), one, one, pixels)
    memory.add(step)
    floats = np.full((1, 3), 0.7)
    with pytest.raises(ValueError, match="dtype uint8.*float64"):
        memory.add(step._replace(observation=floats, next_observation=floats))


def test_rows_of_one_environment_make_a_memory_of_one():
    """The first call fixes the number of environments: by `columns`, if given."""
    memory = ReplayMemory(10)
    memory.add(steps(5), np.zeros(5, int))
    assert len(memory) == 5
    memory.add(steps(5, start=5), np.zeros(5, int))
    assert len(memory) == 10


@pytest.mark.parametrize("columns", [[0, 1], [-1, 0]])
def test_rows_of_an_unknown_environment_are_refused(columns):
    memory = filled(10, 5)
    with pytest.raises(ValueError, match="memory holds 1 environment"):
        memory.add(steps(2), np.array(columns))
    assert len(memory) == 5


def test_a_filled_memory_is_compared_before_a_step_is_taken():
    """As `fit` does it, with an example of what is to come."""
    memory = filled(10, 5)
    memory.allocate(steps(1))
    wide = np.zeros((1, 2), np.float32)
    other = steps(1)._replace(observation=wide, next_observation=wide)
    with pytest.raises(ValueError, match="`observation` does not fit this memory"):
        memory.allocate(other)
    with pytest.raises(
        ValueError, match=r"steps of 1 environments, not of 4.*compile\(memory="
    ):
        memory.allocate(steps(4))
    assert len(memory) == 5


def test_a_memory_without_steps_takes_any_environment():
    memory = ReplayMemory(10)
    memory.allocate(steps(4))
    memory.allocate(steps(2))
    memory.add(steps(2))
    assert len(memory) == 2


def test_masks_of_some_steps_only_are_refused():
    mask = np.ones((2, 3), bool)
    memory = ReplayMemory(10)
    step = steps(2)
    memory.add(step._replace(action_mask=mask, next_action_mask=mask), [0, 0])
    with pytest.raises(ValueError, match="`action_mask` is missing"):
        memory.add(step, [0, 0])
    with pytest.raises(ValueError, match="mask"):
        memory.add(
            step._replace(action_mask=mask[:, :2], next_action_mask=mask), [0, 0]
        )


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 4, "num_batches": 0}, "num_batches"),
        ({"batch_size": 4, "n_step": 0}, "n_step"),
        ({"batch_size": 4, "n_step": 1.5}, "n_step"),
        ({"batch_size": 4, "gamma": 1.5}, "gamma"),
    ],
)
def test_sampling_names_a_wrong_argument(arguments, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        filled(10, 5).sample(**arguments)
