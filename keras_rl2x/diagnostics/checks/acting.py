"""What an agent does: exploration, and actions that are always the same."""

from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.finding import error
from keras_rl2x.diagnostics.finding import warning
from keras_rl2x.diagnostics.record import History

RANDOM = 0.5  # of epsilon: more random than chosen
GREEDY = 0.005
LOUD, SILENT = 1.0, 1e-3  # noise, in half ranges of the action
SATURATED = 0.98  # share of actions at a bound


def exploration_gone(run: History) -> Finding | None:
    """Nothing new is tried any more when learning begins."""
    acting = run.last.acting
    if acting is None or run.setup.steps_at_start is None:
        return None
    start, _, _ = acting.exploration
    name = "epsilon" if run.setup.actions == "discrete" else "noise_stddev"
    value, limit = start.get(name), GREEDY if name == "epsilon" else SILENT
    if (
        value is None
        or value > limit
        or run.setup.num_actions < 2
        and name == "epsilon"
    ):
        return None
    return error(
        "exploration_gone",
        "`exploration` of `compile`",
        f"{name} is {value:g} when learning begins, so that only the untrained "
        "policy's own choice is ever seen.",
        "Begin with much and let it decay over env steps: "
        "`EpsilonGreedy(PolynomialDecay(1.0, 10_000, 0.05))`, `GaussianNoise(0.1)`.",
    )


def exploration_never_decays(run: History) -> Finding | None:
    """Most actions are random, now and to the end."""
    acting = run.last.acting
    if acting is None:
        return None
    values = [numbers.get("epsilon") for numbers in acting.exploration]
    if None in values or min(values) < RANDOM or max(values) != min(values):
        return None
    return warning(
        "exploration_never_decays",
        "`exploration` of `compile`",
        f"epsilon is {values[0]:g} now and at the end of the run: the agent never acts "
        "by what it learns.",
        "Let it decay over env steps: "
        "`EpsilonGreedy(PolynomialDecay(1.0, 10_000, 0.05))`.",
    )


def noise_too_loud(run: History) -> Finding | None:
    """Noise that drowns the action."""
    acting = run.last.acting
    if acting is None or run.setup.actions == "discrete":
        return None
    value = acting.exploration[1].get("noise_stddev")
    if value is None or value <= LOUD:
        return None
    return warning(
        "noise_too_loud",
        "`exploration` of `compile`",
        f"Noise has a standard deviation of {value:g} half ranges: nearly every "
        "action is clipped to a bound.",
        "Noise is in units of the half range, not of the env: "
        "`GaussianNoise(0.1)` is a tenth of it.",
    )


def actor_out_of_range(run: History) -> Finding | None:
    """An actor whose outputs are no actions."""
    acting = run.last.acting
    if acting is None or run.setup.actions == "discrete" or acting.largest <= 1.001:
        return None
    return error(
        "actor_out_of_range",
        f"the output of `{acting.policy}`",
        f"It returns numbers up to {acting.largest:.3g}, but actions lie in [-1, 1] "
        "and are clipped there, where no gradient follows.",
        "End it with `activation='tanh'`, and leave the scaling to the env's bounds "
        "to the agent.",
    )


def actor_saturated(run: History) -> Finding | None:
    """An actor stuck at the bounds, where tanh has no slope."""
    records = run.latest(2)
    if run.setup.actions == "discrete" or not records or run.last.acting is None:
        return None
    shares = [record.acting.at_bound for record in records]
    if min(shares) < SATURATED:
        return None
    acting = run.last.acting
    return error(
        "actor_saturated",
        f"the output of `{acting.policy}`",
        f"{shares[-1]:.0%} of its actions are at a bound: the slope of tanh is about "
        "0 there, so its gradient is small whatever the critic says.",
        "Scale after tanh, never before; begin the last layer with weights of ±3e-3; "
        "lower the actor's learning rate below the critic's.",
    )


def one_action(run: History) -> Finding | None:
    """Exploration included, only one action is ever chosen."""
    records = run.latest(2)
    if run.setup.actions != "discrete" or run.setup.num_actions < 2 or not records:
        return None
    shares = [r.acting.tried_share if r.acting else None for r in records]
    if None in shares or min(shares) < 1.0:
        return None
    return error(
        "one_action",
        "`exploration` of `compile`",
        "One and the same action is chosen for all observations, exploration included.",
        "Explore: `EpsilonGreedy(PolynomialDecay(1.0, 10_000, 0.05))`; a rule of your "
        "own must draw from the `rng` that it receives.",
    )


SETTINGS = (
    exploration_gone,
    exploration_never_decays,
    noise_too_loud,
    actor_out_of_range,
)
OUTCOMES = (actor_saturated, one_action)
