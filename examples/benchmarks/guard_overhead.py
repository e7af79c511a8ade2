"""What it costs to look after losses and weights that are no numbers.

Two agents of each kind, one with the guards of the compiled loop and one without, take
turns in updating, in both orders; the overhead is the median of the ratios.
"""

import argparse
from statistics import median
from unittest import mock

import tensorflow as tf
from floor import milliseconds
from floor import whole
from floor import workloads

from keras_rl2x.agents import engine


def unguarded(agent, batch_size: int):
    """An update that neither keeps the weights of before nor looks at them."""
    update = whole(agent, batch_size)
    with (
        mock.patch.object(engine, "_all_finite", return_value=tf.constant(True)),
        mock.patch.object(engine, "_values", return_value=[]),
    ):
        update()  # traced without them
    return update


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print("| update | with guards, ms | without, ms | overhead |")
    print("| --- | --- | --- | --- |")
    others = workloads()
    for name, (agent, batch_size, _) in workloads().items():
        other = others[name][0]
        agent.compile()
        other.compile()
        functions = [whole(agent, batch_size), unguarded(other, batch_size)]
        functions[0]()  # compiles
        pairs = []
        for number in range(args.rounds):
            times = {}
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                times[which] = milliseconds(functions[which])
            pairs.append((times[0], times[1]))
        overhead = median(one / other - 1 for one, other in pairs)
        on, off = (median(times) for times in zip(*pairs, strict=True))
        print(f"| {name} | {on:.2f} | {off:.2f} | {overhead:+.1%} |", flush=True)


if __name__ == "__main__":
    main()
