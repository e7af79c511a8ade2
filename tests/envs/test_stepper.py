import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector import AutoresetMode
from gymnasium.vector import SyncVectorEnv

from keras_rl2x.envs import EnvStepper
from keras_rl2x.envs.stepper import frame_stack
from tests.helpers import CounterEnv
from tests.helpers import FixedEnv
from tests.helpers import ScriptedEnv

MODES = list(AutoresetMode)


# ------------------------------------------- the same true steps from every kind of env


def place(observation):
    """`(number, episode, t)` of a scripted observation, whatever its structure."""
    if isinstance(observation, dict):
        return (*map(int, observation["place"]), int(observation["time"]))
    return tuple(map(int, observation))


def chosen(where):
    """What is done at a place: a rule, so that it cannot hang on ghost rows."""
    number, episode, t = where
    return (number + 2 * episode + t) % 3


def true_steps(count, number=0, masks=False, **kwargs):
    """The first steps of one scripted env, from a plain loop."""
    env = ScriptedEnv(number, masks=masks, **kwargs)
    rows, (observation, info) = [], env.reset()
    for _ in range(count):
        now, mask = place(observation), info.get("action_mask")
        observation, reward, terminated, truncated, info = env.step(chosen(now))
        row = [now, chosen(now), reward, terminated, truncated and not terminated]
        row.append(place(observation))
        if masks:
            row += [mask.tolist(), info["action_mask"].tolist()]
        rows.append(tuple(row))
        if terminated or truncated:
            observation, info = env.reset()
    return rows


def rows_of(outcome):
    """`(column, row)` of each true step, in the form of `true_steps`."""
    step = outcome.step
    for i, column in enumerate(outcome.columns):
        now, after = (
            place({name: part[i] for name, part in x.items()})
            if isinstance(x, dict)
            else place(x[i])
            for x in (step.observation, step.next_observation)
        )
        row = [now, int(step.action[i]), float(step.reward[i])]
        row += [bool(step.terminated[i]), bool(step.truncated[i]), after]
        if step.action_mask is not None:
            row += [step.action_mask[i].tolist(), step.next_action_mask[i].tolist()]
        assert outcome.reward[i] == step.reward[i]
        assert outcome.ended[i] == (step.terminated[i] or step.truncated[i])
        yield column, tuple(row)


def play(stepper, calls):
    """Steps of every column, in the order in which they came."""
    columns = [[] for _ in range(stepper.num_envs)]
    for _ in range(calls):
        observation = stepper.observation
        if isinstance(observation, dict):
            parts = [
                {name: part[i] for name, part in observation.items()}
                for i in range(stepper.num_envs)
            ]
        else:
            parts = observation
        action = np.array([chosen(place(part)) for part in parts])
        for column, row in rows_of(stepper.step(action)):
            columns[column].append(row)
    return columns


def check_columns(columns, calls, numbers, ghosts, **kwargs):
    for number, rows in zip(numbers, columns, strict=True):
        expected = true_steps(calls, number, **kwargs)
        assert len(rows) > 30
        assert rows == expected[: len(rows)]
        if ghosts:  # one call is lost to each reset, but perhaps to the last one
            ended = [row[3] or row[4] for row in rows]
            assert calls - len(rows) in (sum(ended), sum(ended[:-1]))
        else:
            assert len(rows) == calls


def makers(count=3, **kwargs):
    return [lambda n=n: ScriptedEnv(n, **kwargs) for n in range(count)]


VARIANTS = [{}, {"as_dict": True}, {"masks": True}]


@pytest.mark.parametrize("variant", [*VARIANTS, {"reuse": True}], ids=str)
def test_a_single_environment(variant):
    stepper = EnvStepper(ScriptedEnv(4, **variant))
    stepper.reset(seed=0)
    masks = variant.get("masks", False)
    check_columns(play(stepper, 60), 60, [4], ghosts=False, masks=masks)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_a_sync_vector_environment(mode, copy, variant):
    env = SyncVectorEnv(makers(**variant), copy=copy, autoreset_mode=mode)
    stepper = EnvStepper(env)
    stepper.reset(seed=0)
    ghosts, masks = mode == AutoresetMode.NEXT_STEP, variant.get("masks", False)
    check_columns(play(stepper, 60), 60, range(3), ghosts=ghosts, masks=masks)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_environments_that_reuse_their_arrays(mode):
    """Not SAME_STEP: there gymnasium itself hands out the reset array as final one."""
    stepper = EnvStepper(SyncVectorEnv(makers(reuse=True), autoreset_mode=mode))
    stepper.reset(seed=0)
    ghosts = mode == AutoresetMode.NEXT_STEP
    check_columns(play(stepper, 60), 60, range(3), ghosts=ghosts)


@pytest.mark.parametrize(
    ("mode", "shared_memory"),
    [
        (AutoresetMode.NEXT_STEP, True),
        (AutoresetMode.NEXT_STEP, False),
        (AutoresetMode.SAME_STEP, False),
        (AutoresetMode.DISABLED, True),
    ],
)
def test_an_async_vector_environment(mode, shared_memory):
    variant = {} if shared_memory else {"as_dict": True, "masks": True}
    env = AsyncVectorEnv(
        makers(2, **variant),
        autoreset_mode=mode,
        shared_memory=shared_memory,
        context="spawn",
    )
    try:
        stepper = EnvStepper(env)
        stepper.reset(seed=0)
        columns = play(stepper, 60)
        # A reset at the very end of an episode: what comes next is a true step.
        stepper.reset()
        while not stepper.step(np.zeros(2, np.int64)).ended.any():
            pass
        stepper.reset()
        first = [row for _, row in rows_of(stepper.step(np.zeros(2, np.int64)))]
    finally:
        env.close(terminate=True)
    ghosts, masks = mode == AutoresetMode.NEXT_STEP, variant.get("masks", False)
    check_columns(columns, 60, range(2), ghosts=ghosts, masks=masks)
    assert [(row[0][2], row[5][2]) for row in first] == [(0, 1), (0, 1)]


@pytest.mark.parametrize("mode", MODES)
def test_one_environment_in_a_vector_is_like_a_single_one(mode):
    stepper = EnvStepper(SyncVectorEnv(makers(1), autoreset_mode=mode))
    stepper.reset(seed=0)
    check_columns(play(stepper, 60), 60, [0], ghosts=mode == AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("endings", [("terminated",), ("truncated",), ("both",)])
@pytest.mark.parametrize("length", [1, 2, 3, 7])
@pytest.mark.parametrize("mode", MODES)
def test_every_length_with_every_ending(mode, length, endings):
    script = {"lengths": (length,), "endings": endings}
    stepper = EnvStepper(SyncVectorEnv(makers(2, **script), autoreset_mode=mode))
    stepper.reset(seed=0)
    ghosts = mode == AutoresetMode.NEXT_STEP
    check_columns(play(stepper, 70), 70, range(2), ghosts=ghosts, **script)


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_the_first_step_after_a_reset_is_a_true_one(mode, calls):
    """Episodes of two steps: the reset also falls on an end and on a ghost row."""
    env = SyncVectorEnv(makers(2, lengths=(2,)), autoreset_mode=mode)
    stepper = EnvStepper(env)
    stepper.reset(seed=0)
    for _ in range(calls):
        stepper.step(np.zeros(2, np.int64))
    stepper.reset(seed=1)
    rows = [row for _, row in rows_of(stepper.step(np.zeros(2, np.int64)))]
    assert [(now[2], after[2]) for now, *_, after in rows] == [(0, 1), (0, 1)]


def test_a_special_vector_class_of_gymnasium():
    """CartPole's own: the position of a true step moves with the speed before."""
    env = gym.make_vec("CartPole-v1", 5, vectorization_mode="vector_entry_point")
    stepper = EnvStepper(env)
    assert stepper.mode == AutoresetMode.NEXT_STEP
    stepper.reset(seed=0)
    rng, rows, ends = np.random.default_rng(0), 0, 0
    for _ in range(150):
        outcome = stepper.step(rng.integers(2, size=5))
        before, after = outcome.step.observation, outcome.step.next_observation
        expected = before[:, 0] + 0.02 * before[:, 1]
        np.testing.assert_allclose(after[:, 0], expected, atol=1e-6)
        rows, ends = rows + len(outcome.columns), ends + outcome.ended.sum()
    assert ends > 20
    assert 0 <= rows - (750 - ends) <= 5  # the last ends have no ghost yet


def test_wrappers_do_not_hide_the_mode():
    env = SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.SAME_STEP)
    env = gym.wrappers.vector.RecordEpisodeStatistics(env)
    stepper = EnvStepper(env)
    assert stepper.mode == AutoresetMode.SAME_STEP
    stepper.reset()
    check_columns(play(stepper, 60), 60, range(3), ghosts=False)


def test_the_mode_is_that_of_the_object_not_of_its_class():
    first = SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.SAME_STEP)
    second = SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.NEXT_STEP)
    assert EnvStepper(first).mode == AutoresetMode.SAME_STEP
    assert EnvStepper(second).mode == AutoresetMode.NEXT_STEP


class MinimalVectorEnv(gym.vector.VectorEnv):
    """Two counters of our own; says about its resets what it is told to."""

    def __init__(self, metadata, info=None):
        self.num_envs, self.metadata, self.info = 2, metadata, info
        self.single_observation_space = spaces.Box(-9, 9, (1,))
        self.single_action_space = spaces.Discrete(2)
        self.t = 0

    def _return(self):
        return np.full((2, 1), self.t, np.float32)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._return(), self.info

    def step(self, actions):
        self.t += 1
        end = np.full(2, self.t == 2)
        return self._return(), np.ones(2), end, np.zeros(2, bool), self.info


@pytest.mark.parametrize(
    "metadata", [{}, {"autoreset_mode": None}, {"autoreset_mode": "sometimes"}, None]
)
def test_a_vector_environment_that_does_not_say_how_it_resets_is_refused(metadata):
    with pytest.raises(ValueError, match="MinimalVectorEnv does not say how it resets"):
        EnvStepper(MinimalVectorEnv(metadata))


def test_a_same_step_reset_without_the_final_observation_is_refused():
    for info in ({}, None, {"final_obs": None}):
        env = MinimalVectorEnv({"autoreset_mode": AutoresetMode.SAME_STEP}, info)
        stepper = EnvStepper(env)
        stepper.reset()
        stepper.step(np.zeros(2, int))
        with pytest.raises(ValueError, match=r"did not give `info\['final_obs'\]`"):
            stepper.step(np.zeros(2, int))


# --------------------------------------------------------------- what is not allowed


def step_once(env, action=0):
    stepper = EnvStepper(env)
    stepper.reset(seed=0)
    return stepper.step(np.array([action]))


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        (
            {"reset": np.zeros(3)},
            r"`reset` of FixedEnv.*\(observation, info\).*old gym",
        ),
        ({"reset": np.zeros(2)}, r"`reset` of FixedEnv.*array of shape \(2,\)"),
        ({"reset": (np.zeros(3), {}, 1)}, "`reset` of FixedEnv.*tuple of 3 values"),
        (
            {"step": (np.zeros(3), 1.0, False, {})},
            "`step` of.*4 values.*replace `done`",
        ),
        ({"step": np.zeros(5)}, "`step` of FixedEnv must return"),
        ({"step": None}, "`step` of FixedEnv must return.*None"),
    ],
)
def test_the_old_gym_is_recognised(returns, message):
    with pytest.raises(ValueError, match=message):
        step_once(FixedEnv(**returns))


@pytest.mark.parametrize(
    "reward", [1, True, np.float32(1), np.float64(1), np.array(1.0), np.array([1.0])]
)
def test_rewards_that_are_one_number(reward):
    outcome = step_once(FixedEnv(reward=reward))
    assert outcome.reward.tolist() == [1.0]
    assert outcome.step.reward.tolist() == [1.0]


@pytest.mark.parametrize(
    ("reward", "received"),
    [
        (None, "None"),
        ("1", "'1'"),
        ([1.0, 2.0], r"\[1.0, 2.0\]"),
        (np.ones(2), r"shape \(2,\)"),
        (1j, "1j"),
        ({}, "dict"),
    ],
)
def test_rewards_that_are_not_one_number_are_refused(reward, received):
    with pytest.raises(ValueError, match=f"reward at step 1 that is not.*{received}"):
        step_once(FixedEnv(reward=reward))


@pytest.mark.parametrize("flag", [True, np.True_, 1, np.array(True), np.array([True])])
def test_flags_that_are_one_bool(flag):
    assert step_once(FixedEnv(terminated=flag)).step.terminated.tolist() == [True]
    assert step_once(FixedEnv(truncated=flag)).step.truncated.tolist() == [True]


@pytest.mark.parametrize("flag", [None, 0.5, "no", np.zeros(2, bool), {}])
@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_flags_that_are_no_bool_are_refused(name, flag):
    with pytest.raises(ValueError, match=f"`{name}` at step 1 that is not a bool"):
        step_once(FixedEnv(**{name: flag}))


BASE = np.arange(3.0)


@pytest.mark.parametrize(
    "observation",
    [
        BASE,
        BASE.astype(np.float16),
        BASE.astype(int),
        BASE.tolist(),
        BASE[::-1].copy()[::-1],
        np.repeat(BASE, 2)[::2],
        tuple(BASE),
    ],
    ids=["float64", "float16", "int", "list", "negative", "strided", "tuple"],
)
def test_observations_that_can_be_cast_are(observation):
    if isinstance(observation, np.ndarray):
        observation.flags.writeable = False
    got = step_once(FixedEnv(observation=observation)).step.next_observation
    assert got.dtype == np.float32
    assert got.flags.writeable
    np.testing.assert_array_equal(got, [BASE])


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (None, np.zeros((3, 1))),
        (None, np.zeros((1, 3))),
        (None, np.zeros(2)),
        (None, 0.0),
        (None, None),
        (None, "abc"),
        (None, np.zeros(3, complex)),
        (None, np.array([None] * 3)),
        (None, [[0.0], [1.0, 2.0], 3.0]),
        (None, {"a": np.zeros(3)}),
        (spaces.Box(-1, 1, (1,)), 0.5),
        (spaces.Box(0, 255, (2, 2, 1), np.uint8), np.zeros((2, 2, 1))),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([300, 0])),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([-1, 0])),
        (spaces.Box(0, 255, (2,), np.uint8), [300, 0]),
        (spaces.Discrete(3), 1.0),
        (spaces.Discrete(3), np.array([1])),
    ],
    ids=repr,
)
def test_observations_that_do_not_fit_their_space_are_refused(space, observation):
    with pytest.raises(
        ValueError, match="`step` of FixedEnv returned an observation at step 1 that do"
    ):
        step_once(FixedEnv(space, observation=observation))


def test_integers_of_another_width_are_taken():
    env = FixedEnv(spaces.Discrete(200, dtype=np.int16), observation=150)
    assert step_once(env).step.next_observation.tolist() == [150]
    space = spaces.Box(0, 255, (2,), np.uint8)
    env = FixedEnv(space, observation=np.array([255, 0]))
    assert step_once(env).step.next_observation.tolist() == [[255, 0]]


@pytest.mark.parametrize("wrong", [{"a": 0}, {"place": np.zeros(2)}, np.zeros(3)])
def test_a_dict_observation_with_other_parts_is_refused(wrong):
    space = ScriptedEnv(as_dict=True).observation_space
    env = FixedEnv(space, reset=(wrong, {}))
    with pytest.raises(ValueError, match=r"`reset` of FixedEnv.*\['place', 'time'\]"):
        EnvStepper(env).reset()


class Poisoned(ScriptedEnv):
    """Env 1 gives NaN in its third step."""

    def __init__(self, number, what, value=np.nan, **kwargs):
        super().__init__(number, **kwargs)
        self.what, self.value = what, value

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self.number == 1 and self.t == 3:
            if self.what == "reward":
                reward = self.value
            elif self.as_dict:
                observation["place"][1] = self.value
            else:
                observation[2] = self.value
        return observation, reward, *rest


def until_it_raises(envs, mode):
    stepper = EnvStepper(SyncVectorEnv(envs, autoreset_mode=mode))
    stepper.reset(seed=0)
    for _ in range(10):
        stepper.step(np.zeros(len(envs), np.int64))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("observation", r"returned {} in env 1 at step 3 at index \(2,\) of the obs"),
        ("reward", "returned the reward {} in env 1 at step 3"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [9, 3])  # in the middle, and at the very end
def test_numbers_that_are_not_finite_name_env_and_step(
    length, mode, what, message, value
):
    envs = [lambda n=n: Poisoned(n, what, value, lengths=(length,)) for n in range(3)]
    with pytest.raises(ValueError, match=message.format(value)):
        until_it_raises(envs, mode)


def test_a_nan_in_a_part_of_a_dict_and_in_a_single_env():
    envs = [lambda n=n: Poisoned(n, "place", as_dict=True) for n in range(2)]
    for env in envs:
        env().reset()
    with pytest.raises(ValueError, match=r"nan in env 1 at step \d+ at index \(1,\)"):
        until_it_raises(envs, AutoresetMode.NEXT_STEP)
    with pytest.raises(ValueError, match=r"returned nan at step 1 at index \(0,\)"):
        step_once(FixedEnv(observation=np.full(3, np.nan)))


def test_a_nan_in_the_first_observation():
    env = FixedEnv(reset=(np.array([0, np.nan, 0], np.float32), {}))
    with pytest.raises(ValueError, match=r"`reset` of FixedEnv returned nan.*\(1,\)"):
        EnvStepper(env).reset()


# ------------------------------------------------------------------ what is given


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8])
def test_a_discrete_action_is_a_python_int(dtype):
    env = FixedEnv(action_space=spaces.Discrete(2, start=3, dtype=dtype))
    step_once(env, dtype(4))
    assert type(env.actions[0]) is int
    assert env.actions == [4]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2,), (1,), (2, 2), ()])
def test_a_continuous_action_is_an_array_of_its_own(shape, dtype):
    env = FixedEnv(action_space=spaces.Box(-1, 1, shape, dtype))
    given = np.full((1, *shape), 0.75, dtype)[::1]
    stepper = EnvStepper(env)
    stepper.reset()
    outcome = stepper.step(given)
    got = env.actions[0]
    assert env.action_space.contains(got)
    assert got.shape == shape
    assert got.dtype == dtype
    assert got.flags.c_contiguous
    got[...] = -1.0  # an env may do what it wants with it
    assert (outcome.step.action == 0.75).all()
    assert (given == 0.75).all()


@pytest.mark.parametrize("mode", MODES)
def test_a_vector_env_gets_actions_of_its_own(mode):
    class Greedy(FixedEnv):
        def step(self, action):
            result = super().step(action)
            action[:] = -1.0
            return result

    box = spaces.Box(-1, 1, (2,))
    env = SyncVectorEnv([lambda: Greedy(action_space=box)] * 2, autoreset_mode=mode)
    stepper = EnvStepper(env)
    stepper.reset()
    outcome = stepper.step(np.full((2, 2), 0.5, np.float32))
    assert (outcome.step.action == 0.5).all()


@pytest.mark.parametrize("seed", [3, None])
def test_the_seed_reaches_the_env_once_and_resets_come_late(seed):
    seeds = []

    class Seeded(CounterEnv):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    stepper = EnvStepper(Seeded(length=2))
    stepper.reset(seed)
    for _ in range(4):
        stepper.step(np.array([0]))
    # The second episode is over, but nothing needs a third one yet.
    assert seeds == [seed, None]
    assert stepper.observation[0, 0] == 7.0
    assert stepper.action_mask is None
    assert seeds == [seed, None, None]


# -------------------------------------------------------------------- masks and info


@pytest.mark.parametrize(
    "info", [None, {}, "garbage", [1], {"final_obs": 3, "x": None}]
)
def test_info_is_not_needed(info):
    outcome = step_once(FixedEnv(reset_info=info, info=info, terminated=True))
    assert outcome.step.action_mask is None
    assert outcome.step.next_action_mask is None


def test_a_mask_is_only_looked_for_if_the_reset_gave_one():
    env = FixedEnv(info={"action_mask": np.array([True, False])})
    assert step_once(env).step.next_action_mask is None


def test_without_a_mask_in_a_later_step_everything_is_allowed():
    env = FixedEnv(reset_info={"action_mask": [1, 0]})
    step = step_once(env).step
    assert step.action_mask.tolist() == [[True, False]]
    assert step.next_action_mask.tolist() == [[True, True]]
    assert step.action_mask.dtype == step.next_action_mask.dtype == bool


@pytest.mark.parametrize("mask", [np.ones(5), "all", None, {"a": 1}])
def test_a_key_of_the_same_name_that_is_no_mask_is_left_alone(mask):
    env = FixedEnv(reset_info={"action_mask": mask}, info={"action_mask": mask})
    assert step_once(env).step.action_mask is None


def test_a_mask_that_changes_its_shape_is_refused():
    env = FixedEnv(
        reset_info={"action_mask": np.ones(2)}, info={"action_mask": np.ones(3)}
    )
    with pytest.raises(ValueError, match="action_mask.*at step 1"):
        step_once(env)


def test_a_mask_that_allows_nothing_is_refused():
    env = FixedEnv(reset_info={"action_mask": [1, 0]}, info={"action_mask": [0, 0]})
    with pytest.raises(ValueError, match=r"action_mask'\]` of FixedEnv at step 1 all"):
        step_once(env)


def test_masks_of_continuous_actions_are_left_alone():
    box = spaces.Box(-1, 1, (2,))
    env = FixedEnv(action_space=box, reset_info={"action_mask": [1, 1]})
    stepper = EnvStepper(env)
    stepper.reset()
    assert stepper.action_mask is None


def test_a_mask_is_a_copy():
    mask = np.array([True, False])
    stepper = EnvStepper(FixedEnv(reset_info={"action_mask": mask}))
    stepper.reset()
    mask[:] = True
    assert stepper.action_mask.tolist() == [[True, False]]


# --------------------------------------------------------------------- frame stacks


class Pixels(FixedEnv):
    def __init__(self):
        super().__init__(spaces.Box(0, 255, (8, 8), np.uint8))


def test_stacked_frames_are_found():
    def stacked():
        return gym.wrappers.FrameStackObservation(Pixels(), 4)

    assert frame_stack(stacked()) == 4
    assert frame_stack(gym.wrappers.TimeLimit(stacked(), 5)) == 4
    assert frame_stack(SyncVectorEnv([stacked])) == 4
    assert frame_stack(Pixels()) is None
    assert frame_stack(CounterEnv()) is None
    # An image whose first axis happens to be small is no stack.
    assert frame_stack(FixedEnv(spaces.Box(0, 255, (4, 8, 8), np.uint8))) is None
    transposed = gym.wrappers.TransformObservation(
        stacked(),
        lambda x: np.moveaxis(x, 0, 1),
        spaces.Box(0, 255, (8, 4, 8), np.uint8),
    )
    assert frame_stack(transposed) is None
