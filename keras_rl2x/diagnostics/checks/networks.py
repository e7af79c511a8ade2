"""How networks are built, and what has become of their units."""

from typing import Any

from keras_rl2x.diagnostics.finding import Finding
from keras_rl2x.diagnostics.finding import error
from keras_rl2x.diagnostics.finding import warning
from keras_rl2x.diagnostics.record import History
from keras_rl2x.networks import checks

SQUASHED = ("softmax", "sigmoid", "tanh", "relu", "softplus")
LARGEST_INPUT = 50.0
SMALLEST_INPUT = 0.01
INPUT_RANGE = 1e3
IGNORED, IGNORED_AT_FIRST = 1e-4, 1e-6  # of the differences between states
DEAD = 0.9  # share of the units of a layer
SATURATED = 0.95  # share of the outputs of a layer


def layouts_mixed(run: History) -> Finding | None:
    """Layers disagree on which axis holds the channels."""
    return mixed_layouts(run.setup.networks)


def mixed_layouts(networks: dict[str, Any]) -> Finding | None:
    """Likewise, of networks that need not be built."""
    for name, network in networks.items():
        formats: dict[str, str] = {}
        for layer in checks.layers_of(network):
            if checks.is_convolution(layer):
                formats.setdefault(layer.data_format, layer.name)
        if len(formats) > 1:
            pairs = " but ".join(f"{v!r} is {k}" for k, v in formats.items())
            return error(
                "layouts_mixed",
                f"`data_format` in `{name}`",
                f"Layer {pairs}; `data_format` is set per layer, not inherited.",
                "Leave `data_format` out everywhere, and begin with "
                "`keras.layers.Permute((2, 3, 1))` for channels-first images.",
            )
    return None


def values_squashed(run: History) -> Finding | None:
    """A network of values ends in an activation with a bounded range."""
    for name in run.setup.value_networks:
        activation, layer = checks.last_activation(run.setup.networks[name])
        if activation in SQUASHED:
            return error(
                "values_squashed",
                f"layer {layer!r} of `{name}`",
                f"It ends in {activation}, but Q-values are expected returns, of any "
                "size and sign.",
                "Use no activation in the last layer: `Dense(units)`.",
            )
    return None


def inputs_unscaled(run: History) -> Finding | None:
    """Features of great or of very different size reach the first kernel."""
    for name, network in run.last.networks.items():
        x = network.inputs
        if x is None or x.largest <= 1.0:
            continue
        if x.largest > LARGEST_INPUT:
            problem = f"It receives numbers up to {x.largest:.3g}."
        elif x.largest > INPUT_RANGE * x.smallest:
            problem = (
                f"One feature reaches {x.largest:.3g}, another one {x.smallest:.3g}: "
                "the smaller is drowned."
            )
        else:
            continue
        remedy = "Begin the network with `keras.layers.Rescaling(1 / 255)`."
        if not run.setup.uint8:
            remedy = (
                "Bring every feature to about [-1, 1]: `keras.layers.Rescaling(scale, "
                "offset)` or `Normalization` first, or wrap the environment."
            )
        where = f"layer {x.layer!r} of `{name}`"
        return warning("inputs_unscaled", where, problem, remedy)
    return None


def inputs_tiny(run: History) -> Finding | None:
    """What reaches the first kernel is almost nothing: scaled twice, mostly."""
    for name, network in run.last.networks.items():
        x = network.inputs
        if x is None or not 0.0 < x.largest < SMALLEST_INPUT:
            continue
        return warning(
            "inputs_tiny",
            f"layer {x.layer!r} of `{name}`",
            f"The largest number that it receives is {x.largest:.3g}"
            + (
                ", as when pixels are divided by 255 twice." if run.setup.uint8 else "."
            ),
            "Scale the observations once, to about [-1, 1]: in the network or in a "
            "wrapper, not in both.",
        )
    return None


def critic_ignores_action(run: History) -> Finding | None:
    """dQ/da is nothing against the differences between states."""
    if run.setup.actions == "discrete":
        return None
    # At first all values are small, so only what is next to nothing counts.
    records, share = run.latest(2), IGNORED
    if not records:
        records, share = [run.last], IGNORED_AT_FIRST
    for values in zip(*(record.values for record in records), strict=True):
        scale = min(each.spread for each in values)
        if run.last.data is not None:  # where there is one state, rewards tell
            scale = max(scale, 0.01 * run.last.data.reward_range)
        slope = max(each.by_action for each in values)
        if slope < share * scale:
            return error(
                "critic_ignores_action",
                f"the action input of `{values[-1].network}`",
                f"|dQ/da| is {slope:.1g}, while Q differs by {scale:.2g} between "
                "states: the actor's gradient is small for want of a slope.",
                "Check that the critic joins the action in [-1, 1] to the features "
                "(`Concatenate`), not scaled down, and before its last layer.",
            )
    return None


def dead_units(run: History) -> Finding | None:
    """Nearly all ReLU units of a layer are 0 for every input."""
    for name, network in run.last.networks.items():
        for layer in network.layers:
            if layer.dead >= DEAD and not layer.is_output:
                return error(
                    "dead_units",
                    f"layer {layer.name!r} of `{name}`",
                    f"{layer.dead:.0%} of its ReLU units are 0 for every observation, "
                    "so no gradient passes through them.",
                    "Lower the learning rate, begin with biases of 0 and "
                    "`he_uniform`, add `LayerNormalization`, or use `leaky_relu`.",
                )
    return None


def hidden_saturated(run: History) -> Finding | None:
    """Nearly all outputs of a tanh or sigmoid layer are at the ends of its range."""
    for name, network in run.last.networks.items():
        for layer in network.layers:
            if layer.saturated >= SATURATED and not layer.is_output:
                return error(
                    "hidden_saturated",
                    f"layer {layer.name!r} of `{name}`",
                    f"{layer.saturated:.0%} of its outputs are at the ends of "
                    f"{layer.activation}, where the slope is about 0.",
                    "Scale what it receives, use smaller initial weights, or ReLU "
                    "with `LayerNormalization`.",
                )
    return None


CHECKS = (
    layouts_mixed,
    values_squashed,
    inputs_unscaled,
    inputs_tiny,
    critic_ignores_action,
)
OUTCOMES = (dead_units, hidden_saturated)
