"""What an agent learns from: steps, rewards, ends of episodes."""

from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.finding import error
from keras_rl2x.diagnostics.finding import warning
from keras_rl2x.diagnostics.record import History

FEWEST_STEPS = 250  # one or two episodes are no sample of a task
LONGEST_EPISODE = 1_200  # steps without an end that are no surprise
REWARD_SIZES = (1e-3, 100.0)


def observations_unchanged(run: History) -> Finding | None:
    """`next_observation` is `observation`."""
    data = run.last.data
    if data is None or not data.varied or data.unchanged < 0.99:
        return None
    return error(
        "observations_unchanged",
        "`step` of the environment (or what fills the memory)",
        f"In {data.unchanged:.0%} of the sampled steps `next_observation` equals "
        "`observation`, though observations differ between steps.",
        "Return the observation *after* the action from `step`, as a new array; store "
        "`next_observation`, not `observation`, as the fifth entry.",
    )


def learning_too_early(run: History) -> Finding | None:
    """The first gradient steps see a handful of steps again and again."""
    steps = run.setup.steps_at_start
    if steps is None or steps >= FEWEST_STEPS:
        return None
    return warning(
        "learning_too_early",
        "`warmup_steps` of `compile`",
        f"Learning begins with {steps} steps in the memory: one or two episodes, of "
        "which all minibatches are made.",
        "Fill the memory first: `compile(warmup_steps=1_000)`, or 10,000 for images.",
    )


def endless_without_discount(run: History) -> Finding | None:
    """With gamma = 1 the values of a task without end are infinite."""
    data = run.last.data
    if data is None or run.setup.gamma < 1.0 or data.terminations:
        return None
    if data.steps < FEWEST_STEPS:
        return None
    return error(
        "endless_without_discount",
        "`gamma` of the constructor",
        f"gamma is 1, and none of {data.rows} sampled steps terminates the task: its "
        "values have no finite sum.",
        "Use `gamma=0.99` (a horizon of about 100 steps), or let the environment "
        "return `terminated=True` where the task is over.",
    )


def reward_constant(run: History) -> Finding | None:
    """Nothing tells one action from another."""
    data = run.last.data
    if data is None or data.reward_low < data.reward_high:
        return None
    if data.steps < FEWEST_STEPS:
        return None
    # A constant reward with ends is a task: to last, or to be quick.
    if data.terminations and data.reward_low != 0.0:
        return None
    return warning(
        "reward_constant",
        "the reward of the environment",
        f"All {data.rows} sampled rewards are {data.reward_low:g}"
        + ("." if data.terminations else ", and no step terminates the task."),
        "Return a reward that depends on what was done. If it is only rare, explore "
        "longer (`warmup_steps`, a slower decay) or reward progress.",
    )


def episodes_never_end(run: History) -> Finding | None:
    """No episode has ended for a long time."""
    data, step = run.last.data, run.last.step
    if data is None or data.episode_ended or data.terminations:
        return None
    if step < LONGEST_EPISODE:
        return None
    return warning(
        "episodes_never_end",
        "`terminated` and `truncated` of the environment",
        f"No episode has ended in {step:,} steps, so the agent never starts anew and "
        "no return is logged.",
        "Return `terminated=True` at the end of the task, or wrap the environment: "
        "`gymnasium.wrappers.TimeLimit(env, 500)`.",
    )


def reward_scale(run: History) -> Finding | None:
    """Rewards so large or small that losses and learning rates do not fit."""
    data = run.last.data
    if data is None or data.reward_size == 0.0:
        return None
    low, high = REWARD_SIZES
    size, largest = data.reward_size, data.reward_largest
    if size <= high and largest >= low:
        return None
    factor = 1.0 / (size if size > high else largest)
    return warning(
        "reward_scale",
        "the reward of the environment",
        f"Rewards have a mean magnitude of {size:.3g} (from {data.reward_low:.3g} to "
        f"{data.reward_high:.3g}), far from 1, for which losses and rates are made.",
        f"Scale them: `TransformReward(env, lambda r: {factor:.1g} * r)` of "
        "`gymnasium.wrappers`.",
    )


CHECKS = (
    observations_unchanged,
    endless_without_discount,
    reward_constant,
    reward_scale,
    episodes_never_end,
    learning_too_early,
)
