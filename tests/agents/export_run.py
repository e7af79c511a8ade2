"""Runs exported policies with nothing but TensorFlow.

Arguments are directories with `policy` and `inputs.npz`; `outputs.npz` is written
beside them. Inputs are named `<number of the batch>/<name of the input>`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

signatures = {}
for argument in sys.argv[1:]:
    directory = Path(argument)
    loaded = tf.saved_model.load(str(directory / "policy"))
    function = loaded.signatures["serving_default"]
    batches = {}
    with np.load(directory / "inputs.npz") as inputs:
        for key in inputs.files:
            number, name = key.split("/")
            batches.setdefault(number, {})[name] = tf.constant(inputs[key])
    outputs = {
        f"{number}/{name}": value.numpy()
        for number, batch in batches.items()
        for name, value in function(**batch).items()
    }
    np.savez(directory / "outputs.npz", **outputs)
    signatures[directory.name] = {
        "inputs": {
            name: [spec.dtype.name, spec.shape.as_list()]
            for name, spec in function.structured_input_signature[1].items()
        },
        "variables": len(loaded.variables),
    }
foreign = {"keras_rl2x", "gymnasium"} & set(sys.modules)
print(json.dumps({"signatures": signatures, "foreign": sorted(foreign)}))
