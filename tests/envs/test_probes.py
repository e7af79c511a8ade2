"""The probe environments hold what they promise: values, flags and errors.

The values are solved from sampled steps of the environments, not from their
tables, so that a wrong flag or observation shows. The faults of the docstrings
are put into the same solver and must give the documented wrong values.
"""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.vector import SyncVectorEnv

from keras_rl2x.envs import probes

TABLES = [p for p in probes.PROBES if p is not probes.AsymmetricActionProbe]
SINGLE_ACTION = [
    p
    for p in TABLES
    if p.num_actions == 1 and p is not probes.ImageScaleProbe  # has no twin
]


def state_of(env, observation):
    """Index of an observation among `env.observations()`."""
    return state_index(env)[observation.tobytes()]


def state_index(env):
    """Dict from the bytes of an observation to its state."""
    index = {row.tobytes(): state for state, row in enumerate(env.observations())}
    assert len(index) == len(env.observations()), "two states look alike"
    return index


def column(env, action):
    """Index of an action, in the order of `expected`."""
    return 0 if env.num_actions == 1 else int(action) - int(env.action_space.start)


def rollout(env, num_steps, seed=3):
    """Steps of random behaviour.

    Rows are `(state, action, reward, terminated, truncated, next_state,
    reset_state)`; `reset_state` is the first state of the next episode, or -1.
    """
    index = state_index(env)
    # another seed: with the same one, actions would repeat the draws of the env
    env.action_space.seed(seed + 1_000)
    state = index[env.reset(seed=seed)[0].tobytes()]
    rows = []
    while len(rows) < num_steps:
        action = env.action_space.sample()
        observation, reward, terminated, truncated, _ = env.step(action)
        next_state, reset_state = index[observation.tobytes()], -1
        if terminated or truncated:
            reset_state = index[env.reset()[0].tobytes()]
        row = (state, column(env, action), reward, terminated, truncated)
        rows.append((*row, next_state, reset_state))
        state = next_state if reset_state < 0 else reset_state
    return rows


def solve(env, rows, fault=None):
    """Action values `[num_states, num_actions]`, by exact value iteration."""
    num_states = len(env.observations())
    reward_sum = np.zeros((num_states, env.num_actions))
    count = np.zeros((num_states, env.num_actions))
    follow = np.zeros((num_states, env.num_actions, num_states))
    for state, action, reward, terminated, truncated, next_state, reset_state in rows:
        goes_on = not terminated
        if fault == "beyond_terminated":
            goes_on = True
        elif fault == "truncation_ends":
            goes_on = not (terminated or truncated)
        elif fault == "truncation_wins":
            goes_on = truncated or not terminated
        reward_sum[state, action] += reward
        count[state, action] += 1
        successor = next_state
        if fault == "reset_observation" and reset_state >= 0:
            successor = reset_state
        follow[state, action, successor] += goes_on
        if fault == "ghost_row" and reset_state >= 0:
            count[next_state] += 1
            follow[next_state, :, reset_state] += 1
    count = np.maximum(count, 1)
    mean_reward, follow = reward_sum / count, follow / count[:, :, None]
    over_actions = np.mean if fault == "mean_of_actions" else np.max
    q_values = np.zeros_like(mean_reward)
    for _ in range(500):
        q_values = mean_reward + env.gamma * follow @ over_actions(q_values, axis=1)
    return q_values


def assert_values(q_values, expected, atol):
    assert expected
    for state, values in expected.items():
        np.testing.assert_allclose(q_values[state], values, atol=atol)


@pytest.mark.parametrize("probe", TABLES)
def test_expected_values(probe):
    env = probe()
    num_steps = 20_000 if probe is probes.RandomWalkProbe else 500
    rows = rollout(env, num_steps)
    visited = {row[0] for row in rows}
    assert visited == set(probe.expected), "every visited state has an expectation"
    atol = 0.03 if probe is probes.RandomWalkProbe else 1e-9
    assert_values(solve(env, rows), probe.expected, atol)


@pytest.mark.parametrize("probe", SINGLE_ACTION)
def test_continuous_twin_has_the_same_values(probe):
    env = probe(continuous=True)
    assert env.action_space == spaces.Box(-1.0, 1.0, (1,), np.float32)
    num_steps = 5_000 if probe is probes.RandomWalkProbe else 300
    atol = 0.06 if probe is probes.RandomWalkProbe else 1e-9
    assert_values(solve(env, rollout(env, num_steps)), probe.expected, atol)


@pytest.mark.parametrize(
    ("probe", "fault", "wrong"),
    [
        (probes.OneStateProbe, "beyond_terminated", [10]),
        (probes.ObservationProbe, "beyond_terminated", [-0.526, 0.526]),
        (probes.DiscountProbe, "beyond_terminated", [4.74, 5.26]),
        (probes.NeverEndsProbe, "truncation_ends", [3.571]),
        (probes.TruncationProbe, "truncation_ends", [0, 1]),
        (probes.TruncationProbe, "reset_observation", [0.818, 1]),
        (probes.TruncationProbe, "beyond_terminated", [4.74, 5.26]),
        (probes.BothFlagsProbe, "truncation_wins", [4.74, 5.26]),
        (probes.BothFlagsProbe, "truncation_ends", [0, 1]),
        (probes.GhostRowProbe, "beyond_terminated", [4.74, 5.26]),
        (probes.GhostRowProbe, "ghost_row", [0.205, 0.705]),
        (probes.TimeLimitProbe, "truncation_ends", [0.756, 1.681]),
        (probes.TimeLimitProbe, "reset_observation", [3.103, 3.793]),
        (probes.TimeLimitProbe, "ghost_row", [2.368, 2.632]),
        (probes.TrapProbe, "mean_of_actions", [-4.05, 1]),
        (probes.ImageScaleProbe, "beyond_terminated", [4.74, 5.26]),
    ],
)
def test_faults_give_the_documented_wrong_values(probe, fault, wrong):
    env = probe()
    q_values = solve(env, rollout(env, 6_000), fault)[:, 0]
    # fair starts, drawn 6 000 times, move the averages by about 0.01
    np.testing.assert_allclose(q_values, wrong, atol=0.02)


@pytest.mark.parametrize("probe", [probes.NoisyRewardProbe, probes.RareRewardProbe])
def test_reward_cycles_are_exact(probe):
    env, cycle = probe(), list(probe.rewards)
    rewards = [row[2] for row in rollout(env, 3 * len(cycle))]
    assert rewards == 3 * cycle, "the turn goes on over the ends of episodes"
    for seed in (0, None):
        env.reset(seed=0)
        for _ in cycle[:-1]:  # the last reward of a cycle differs from the others
            env.step(0)
            env.reset()
        env.reset(seed=seed)
        following = cycle[-1] if seed is None else cycle[0]
        assert env.step(0)[1] == following, "only a seed starts the turn again"


@pytest.mark.parametrize("probe", [probes.NoisyRewardProbe, probes.RareRewardProbe])
def test_expected_huber(probe):
    rewards = np.array([row[2] for row in rollout(probe(), 100)])
    low, high = -20.0, 20.0
    for _ in range(60):  # bisection: the gradient of the Huber loss grows with q
        middle = (low + high) / 2
        gradient = np.clip(middle - rewards, -1, 1).mean()
        low, high = (middle, high) if gradient < 0 else (low, middle)
    np.testing.assert_allclose(probe.expected_huber[0], middle, atol=1e-9)


def test_sign_clipped_rare_reward():
    rewards = [row[2] for row in rollout(probes.RareRewardProbe(), 100)]
    np.testing.assert_allclose(np.sign(rewards).mean(), -0.8)


@pytest.mark.parametrize(
    ("gamma_of_rest", "first"), [(0.5**3, 3.25), (0.5, 4.75)], ids=["right", "wrong"]
)
def test_chain_three_step_return(gamma_of_rest, first):
    rewards = [row[2] for row in rollout(probes.ChainProbe(), 4)]
    target = rewards[0] + 0.5 * rewards[1] + 0.25 * rewards[2]
    assert target + gamma_of_rest * rewards[3] == first


def test_starts_are_fair():
    for probe in (probes.ObservationProbe, probes.CorridorProbe):
        env = probe()
        env.reset(seed=0)
        starts = [state_of(env, env.reset()[0]) for _ in range(2_000)]
        share = np.bincount(starts) / len(starts)
        np.testing.assert_allclose(share, 1 / len(probe.starts), atol=0.05)


def test_random_walk_leaves_on_both_sides():
    rows = rollout(probes.RandomWalkProbe(), 2_000)
    assert rows[0][0] == 2
    assert {(s, r) for s, _, r, end, *_ in rows if end} == {(0, 0.0), (4, 1.0)}


@pytest.mark.parametrize(
    ("probe", "length"), [(probes.NeverEndsProbe, 5), (probes.TimeLimitProbe, 3)]
)
def test_time_limits_truncate_on_their_step(probe, length):
    rows = rollout(probe(), 4 * length)
    assert not any(row[3] for row in rows)
    assert [row[4] for row in rows] == 4 * ([False] * (length - 1) + [True])


def test_both_flags_are_set():
    rows = rollout(probes.BothFlagsProbe(), 100)
    assert {row[:1] + row[3:5] for row in rows} == {(0, False, True), (1, True, True)}


def test_offset_actions():
    env = probes.OffsetActionProbe()
    assert env.action_space == spaces.Discrete(3, start=5)
    rewards = {}
    for action in (5, 6, 7):
        env.reset(seed=0)
        rewards[action] = env.step(action)[1]
    assert rewards == {5: 0.0, 6: 1.0, 7: 0.5}
    assert max(rewards, key=rewards.get) == probes.OffsetActionProbe.best_action


def test_asymmetric_action():
    env = probes.AsymmetricActionProbe()
    assert env.action_space == spaces.Box(2.0, 6.0, (1,), np.float32)
    env.reset(seed=0)
    for (state, action), value in env.expected.items():
        assert state_of(env, env.reset()[0]) == state
        observation, reward, terminated, truncated, _ = env.step(
            np.array([action], np.float32)
        )
        assert (reward, terminated, truncated) == (value, True, False)
        assert state_of(env, observation) == 0
    assert env.actions == [2.0, 3.0, 6.0]
    grid = np.linspace(2, 6, 401, dtype=np.float32)
    rewards = [env.reset() and env.step(grid[i : i + 1])[1] for i in range(401)]
    np.testing.assert_allclose(grid[np.argmax(rewards)], env.best_action, atol=1e-5)


def test_image_scale_spaces():
    env = probes.ImageScaleProbe(shape=(36, 40, 3))
    assert env.observation_space == spaces.Box(0, 255, (36, 40, 3), np.uint8)
    observation, _ = env.reset(seed=0)
    assert observation.nbytes == 36 * 40 * 3
    assert [set(np.unique(image)) for image in env.observations()] == [{0}, {255}]


@pytest.mark.parametrize("probe", probes.PROBES)
def test_gymnasium_api(probe):
    env = probe()
    env.action_space.seed(0)
    observation, info = env.reset(seed=0)
    assert info == {}
    for _ in range(50):
        assert observation in env.observation_space
        result = env.step(env.action_space.sample())
        observation, reward, terminated, truncated, info = result
        assert observation in env.observation_space
        assert [type(x) for x in result[1:]] == [float, bool, bool, dict]
        assert info == {}
        if terminated or truncated:
            observation, info = env.reset()
            assert info == {}


@pytest.mark.parametrize(
    "probe",
    [
        p
        for p in probes.PROBES
        # on purpose one array, and truncated by the first step, as it forbids
        if not issubclass(p, (probes.ReusedBufferProbe, probes.TruncationProbe))
    ],
)
@pytest.mark.filterwarnings("ignore:.*symmetric and normalized")
def test_gymnasium_checker(probe):
    check_env(probe(), skip_render_check=True)


@pytest.mark.parametrize("probe", probes.PROBES)
def test_observations_are_arrays_of_their_own(probe):
    env = probe()
    first, _ = env.reset(seed=0)
    kept = first.copy()
    second, *_ = env.step(env.action_space.sample())
    third, _ = env.reset(seed=0)
    if probe is probes.ReusedBufferProbe:
        assert first is second is third
    else:
        assert not np.shares_memory(first, second)
        first[...] = second[...] = 0
        np.testing.assert_array_equal(third, kept)


def test_reused_buffer_walks_like_the_corridor():
    plain = rollout(probes.CorridorProbe(), 200)
    assert rollout(probes.ReusedBufferProbe(), 200) == plain
    assert probes.ReusedBufferProbe.expected == probes.CorridorProbe.expected


@pytest.mark.parametrize("probe", probes.PROBES)
def test_raises_outside_of_an_episode(probe):
    env = probe()
    with pytest.raises(RuntimeError, match="before `reset` or after the end"):
        env.step(env.action_space.sample())
    env.reset(seed=0)
    for _ in range(500):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            break
    with pytest.raises(RuntimeError, match="before `reset` or after the end"):
        env.step(env.action_space.sample())
    env.reset()
    env.step(env.action_space.sample())


@pytest.mark.parametrize(
    ("env", "action"),
    [
        (probes.OneStateProbe(), 1),
        (probes.OneStateProbe(), 0.0),
        (probes.OneStateProbe(), np.array([0])),
        (probes.OffsetActionProbe(), 1),
        (probes.OffsetActionProbe(), 8),
        (probes.OneStateProbe(continuous=True), np.array([0.0], np.float64)),
        (probes.OneStateProbe(continuous=True), np.array([1.5], np.float32)),
        (probes.OneStateProbe(continuous=True), np.array([np.nan], np.float32)),
        (probes.OneStateProbe(continuous=True), np.array(0.0, np.float32)),
        (probes.AsymmetricActionProbe(), np.array([0.5], np.float32)),
    ],
)
def test_rejects_actions_outside_of_the_space(env, action):
    env.reset(seed=0)
    with pytest.raises(ValueError, match="The action must be in"):
        env.step(action)
    env.step(env.action_space.sample())  # the episode goes on


def test_continuous_needs_a_single_action():
    with pytest.raises(ValueError, match="Received: CorridorProbe with 2 actions"):
        probes.CorridorProbe(continuous=True)


@pytest.mark.parametrize(
    "probe",
    [
        probes.ObservationProbe,
        probes.CorridorProbe,
        probes.RareRewardProbe,
        probes.RandomWalkProbe,
    ],
)
def test_same_seed_same_trajectory(probe):
    env = probe()
    first = rollout(env, 100, seed=1)
    assert rollout(env, 100, seed=1) == first
    assert rollout(probe(), 100, seed=1) == first
    if probe is not probes.RareRewardProbe:  # has nothing random
        assert rollout(env, 100, seed=2) != first


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("probe", probes.PROBES)
def test_runs_in_a_vector_env(probe, mode):
    envs = SyncVectorEnv([probe] * 2, autoreset_mode=mode)
    envs.reset(seed=0)
    envs.action_space.seed(0)
    for _ in range(20):  # the probes raise if stepped after an end
        envs.step(envs.action_space.sample())
    envs.close()


def test_registry():
    classes = [
        value
        for value in vars(probes).values()
        if isinstance(value, type)
        and issubclass(value, probes.TableProbe)
        and value is not probes.TableProbe
    ]
    assert list(probes.PROBES) == classes
    assert set(probes.__all__) == {
        "PROBES",
        "Outcome",
        "TableProbe",
        *(probe.__name__ for probe in classes),
    }
