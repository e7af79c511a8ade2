"""Deploy a policy: export it, serve it over HTTP with TensorFlow alone, ask it.

`serve` knows neither keras_rl2x nor Keras nor gymnasium: copy it and the exported
directory to another machine. Here it runs in a thread and answers on localhost.
"""

import argparse
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler
from http.server import HTTPServer

import gymnasium as gym
import numpy as np

from keras_rl2x import DQN

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--steps-per-epoch", type=int, default=1_000)
parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
parser.add_argument("--forever", action="store_true", help="keep serving")
parser.add_argument("--out", default="runs/policy")
args = parser.parse_args()


def serve(directory, port):
    """An HTTP server that answers observations with actions, as JSON."""
    import tensorflow as tf

    policy = tf.saved_model.load(directory)  # keep it: it owns the variables
    signature = policy.signatures["serving_default"]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            try:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                observation = tf.constant(json.loads(text)["observation"], tf.float32)
                outputs = signature(observation=observation)
                answer = {
                    name: value.numpy().tolist() for name, value in outputs.items()
                }
                status = 200
            except Exception as error:  # whatever a client sends must not end it
                answer, status = {"error": str(error).splitlines()[0]}, 400
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    return HTTPServer(("localhost", port), Handler)


env = gym.make("CartPole-v1")
agent = DQN.from_env(env, seed=1)
agent.compile()
agent.fit(env, args.epochs, args.steps_per_epoch, seed=1, verbose=2)
agent.export(args.out)

server = serve(args.out, args.port)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://localhost:{server.server_port}"

# The signature takes raw observations, any number of them.
observations = np.random.default_rng(1).uniform(-0.2, 0.2, (4, 4))
request = json.dumps({"observation": observations.tolist()}).encode()
with urllib.request.urlopen(url, request, timeout=10) as response:
    answer = json.load(response)
print(f"{url} answers {answer['action']}")
print("Equal to `agent.act`:", answer["action"] == agent.act(observations).tolist())
if args.forever:
    threading.Event().wait()
server.shutdown()
server.server_close()
