"""What README.md and the pages beside the code say is true: their snippets run, in
order and with small budgets, and what their tables name exists."""

import configparser
import importlib
import inspect
import os
import re
from pathlib import Path

import gymnasium as gym
import keras
import numpy as np
import pytest

import keras_rl2x
from keras_rl2x import DDPG
from keras_rl2x import DQN
from keras_rl2x import Agent
from keras_rl2x.layers import DuelingHead

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
AGENTS = ROOT / "keras_rl2x" / "agents"
DIAGNOSTICS = ROOT / "keras_rl2x" / "diagnostics"
PAGES = [
    README,
    AGENTS / "COMING_FROM_KERAS_RL.md",
    AGENTS / "PORTING_FROM_PYTORCH.md",
    DIAGNOSTICS / "README.md",
    DIAGNOSTICS / "README.zh.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
]
# Where `epochs` or a number of steps is written, a smaller one does.
SMALLER = (("1_000", "100"), ("2_000", "200"), ("10_000", "1000"), ("50_000", "5000"))


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Runs the Python of a page in one namespace, each snippet after the last."""
    monkeypatch.chdir(tmp_path)
    fit, compile_agent = Agent.fit, Agent.compile

    def short_fit(self, env, epochs=1, steps_per_epoch=100, **kwargs):
        steps = min(steps_per_epoch, 500)
        return fit(self, env, min(epochs, 2), steps, **kwargs)

    def quick_compile(self, *arguments, **kwargs):
        kwargs = {"jit_compile": False, "warmup_steps": 300, **kwargs}
        compile_agent(self, *arguments, **kwargs)

    monkeypatch.setattr(Agent, "fit", short_fit)
    monkeypatch.setattr(Agent, "compile", quick_compile)

    def run_page(path):
        names = {"__name__": "page"}
        for line, snippet in snippets(path):
            for old, new in SMALLER:
                snippet = re.sub(rf"\b{old}\b", new, snippet)
            # Newlines in front: a traceback then shows the line of the page.
            code = compile("\n" * line + snippet, str(path), "exec")
            exec(code, names)
        return names, capsys.readouterr().out

    return run_page


def snippets(path, language="python"):
    text = path.read_text()
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.M | re.S):
        yield text[: match.start(1)].count("\n"), match[1]


def table(path, header):
    """Rows of the table that begins with a header, as lists of cells."""
    lines = path.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(header))
    for line in lines[start + 2 :]:
        if not line.strip().startswith("|"):
            return
        cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
        yield [cell.strip() for cell in cells]


def test_readme_snippets_run_and_leave_what_they_promise(run):
    names, out = run(README)
    assert names["action"] in (0, 1)
    assert names["torque"].shape == (1,)
    assert np.abs(names["torque"]).max() <= 2.0
    for written in ("agent.keras", "agent.weights.h5", "best.keras", "log.csv"):
        assert Path(written).is_file(), written
    assert list(Path("run").glob("checkpoint-*"))
    assert (Path("policy") / "saved_model.pb").is_file()
    # 100 steps were demonstrated, the warm-up added 200, and the last two `fit`s 200.
    assert len(names["memory"]) == 500
    assert names["health"].problem is None
    assert names["batch"].observation.shape == (1, 64, 4)
    norms = re.findall(r"^ +([\d.]+)  (\S+)$", out, re.M)
    assert len(norms) == len(names["agent"].network.trainable_variables)
    # Trained with n_step=3, and taken over by a tape in between.
    assert names["agent"].n_step == 3


def test_the_quick_start_is_ten_lines_long():
    _, first = next(snippets(README))
    lines = [line for line in first.splitlines() if line and "import" not in line]
    assert len(lines) <= 10


def test_porting_page_snippets_run(run):
    names, out = run(AGENTS / "PORTING_FROM_PYTORCH.md")
    assert "would shadow the Keras method `predict`" in out
    assert len(re.findall(r"^[\d.e+-]+  actor/", out, re.M)) == 6
    assert len(re.findall(r"^[\d.e+-]+  critic/", out, re.M)) == 6
    assert names["ddpg"].env_steps == 400


def test_keras_rl_page_snippets_run(run):
    names, _ = run(AGENTS / "COMING_FROM_KERAS_RL.md")
    loaded = keras.saving.load_model("converted.keras")
    assert loaded.target_update.tau == pytest.approx(1e-2)
    assert float(loaded.optimizer.learning_rate) == pytest.approx(1e-3)
    for weight in loaded.weights:
        assert not np.any(weight.numpy()), "the old weights were not taken over"
    assert names["ddpg"].actor_optimizer.clipnorm == 1.0


def test_troubleshooting_page_snippets_run(run):
    """The Chinese page has the same ones, see below."""
    names, out = run(DIAGNOSTICS / "README.md")
    assert names["health"].problem is None
    assert Path("health.png").is_file()
    assert "Findings: none" in out
    assert {row.cause for row in names["report"]} == {"numpy"}
    assert names["findings"][0].code == "clipping_too_low"


def test_troubleshooting_pages_name_every_finding_and_no_other():
    source = "\n".join(path.read_text() for path in DIAGNOSTICS.rglob("*.py"))
    codes = re.findall(r'(?:error|warning|kind)\(\s*"(\w+)"', source)
    causes = {"rebuilt", "constant", "unread", "numpy", "cut", "optimizer"}
    pages = [(DIAGNOSTICS / name).read_text() for name in ("README.md", "README.zh.md")]
    for page in pages:
        cells = re.findall(r"^\| (`\w+`(?:(?:, |、)`\w+`)*) \|", page, re.M)
        named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
        prose = set(
            re.findall(r"`(gradient_missing|layouts_mixed|refused|\w+_warns)`", page)
        )
        assert (named | prose) - causes == set(codes)
    english, chinese = (
        [re.sub(r" *#.*", "", code) for _, code in snippets(DIAGNOSTICS / name)]
        for name in ("README.md", "README.zh.md")
    )
    assert english == chinese


def test_every_link_leads_to_a_file():
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_table_of_classes_names_what_exists_where_it_is():
    names = set()
    for cell, paper, link in table(README, "| class | paper | file |"):
        name = re.match(r"`([\w.]+)`", cell)[1]
        names.add(name)
        thing = keras_rl2x
        for part in name.split("."):
            thing = getattr(thing, part)
        path = ROOT / re.search(r"\((.+)\)", link)[1]
        assert Path(inspect.getfile(thing)).relative_to(ROOT).as_posix() in (
            path.relative_to(ROOT).as_posix(),
            (path / "__init__.py").relative_to(ROOT).as_posix(),
        )
        # Each author that the table names is named in the file as well.
        for author in re.findall(r"\b[A-Z]\w+(?= (?:et al|and|\d))", paper):
            assert author in path.read_text(), f"{name}: {author}"
    public = {"DQN", "DDPG"}
    for module in ("memories", "exploration", "callbacks"):
        exported = getattr(keras_rl2x, module).__all__
        public |= {f"{module}.{name}" for name in exported}
    assert public - names <= {"exploration.Exploration"}


@pytest.mark.parametrize(
    "page", PAGES[:5], ids=lambda page: page.parent.name + page.name
)
def test_pages_name_only_what_exists(page):
    text = page.read_text()
    ours = re.findall(rf"(?<!keras\.)\b(?:keras_rl2x|{'|'.join(MODULES)})\.(\w+)", text)
    modules = [importlib.import_module(f"keras_rl2x.{name}") for name in MODULES]
    for name in set(ours) - set(MODULES):
        assert any(hasattr(module, name) for module in modules), name
    for name in re.findall(r"`gymnasium\.([\w.]+)", text):
        thing = gym
        for part in name.split("."):
            try:
                thing = getattr(thing, part)
            except AttributeError:
                thing = importlib.import_module(f"{thing.__name__}.{part}")
    for name in re.findall(r"`keras\.([\w.]+)", text):
        thing = keras
        for part in name.rstrip(".").split("."):
            thing = getattr(thing, part)


MODULES = (
    "callbacks", "diagnostics", "envs", "exploration", "layers", "memories", "networks",
    "ops",
)  # fmt: skip


def test_the_table_of_arguments_names_those_of_the_signatures():
    header = "| constructor: what the agent is |"
    [[constructor, compiling, fitting]] = table(README, header)
    for cell, function in (
        (constructor, DQN.__init__),
        (compiling, Agent.compile),
        (fitting, Agent.fit),
    ):
        known = inspect.signature(function).parameters
        for name in re.findall(r"`(\w+)`", cell):
            assert name in known, f"{name} is no argument of {function.__qualname__}"


def test_the_table_of_settings_is_what_compile_takes():
    class Pixels(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        action_space = gym.spaces.Discrete(2)

    agents = [
        DQN.from_env(gym.make("CartPole-v1")),
        DQN.from_env(Pixels()),
        DDPG.from_env(gym.make("Pendulum-v1")),
    ]
    settings = {
        name: cells for name, *cells in table(README, "| setting | `DQN`, vectors |")
    }
    for column, agent in enumerate(agents):
        agent.compile()
        defaults = agent.defaults()

        def cell(name, column=column):
            return settings[name][column].replace(",", "")

        def number(name, cell=cell):
            return float(re.search(r"[\d.]+(?:e-?\d+)?", cell(name))[0])

        for name in agent.trained.values():
            expected = pytest.approx(getattr(agent, name).learning_rate.numpy())
            assert float(re.search(r"\((.+)\)", cell(f"`{name}`"))[1]) == expected
        assert number("`batch_size`") == defaults.batch_size
        assert number("`updates_per_step`") == defaults.updates_per_step
        assert number("`warmup_steps`") == defaults.warmup_steps
        assert number("`steps_per_execution`") == defaults.steps_per_execution
        assert number("`memory`") == agent.memory.capacity
        loss = {"Huber": "Huber", "mean squared error": "MeanSquaredError"}
        assert loss[cell("`loss`")] == type(defaults.loss).__name__
        gamma, n_step = settings["`gamma`, `n_step`"][column].split(", ")
        assert (float(gamma), int(n_step)) == (agent.gamma, agent.n_step)
        rule = defaults.target_update
        assert number("target networks") == (rule.tau or rule.period)
        explored = [float(n) for n in re.findall(r"[\d.]+", cell("`exploration`"))]
        if column == 2:
            assert explored == [defaults.exploration.values(0)["noise_stddev"]]
        else:
            first, last, steps = explored
            at = [defaults.exploration.values(int(n))["epsilon"] for n in (0, steps)]
            assert at == pytest.approx([first, last])
            assert defaults.exploration.values(int(steps) // 2)["epsilon"] > last
        widths = [
            str(layer.units)
            for layer in getattr(agent, next(iter(agent.trained))).layers[:-1]
            if isinstance(layer, keras.layers.Dense)
        ]
        assert re.findall(r"\d+", cell("network of `from_env`")) == widths
        dueling = isinstance(getattr(agent, "network", agent).layers[-1], DuelingHead)
        assert ("dueling" in cell("network of `from_env`")) == dueling
        normalised = any(
            isinstance(layer, keras.layers.LayerNormalization)
            for layer in getattr(agent, next(iter(agent.trained))).layers
        )
        assert ("normalis" in cell("network of `from_env`")) == normalised


def test_the_table_of_logs_names_what_fit_logs():
    logged = set()
    for make, env in ((DQN, "CartPole-v1"), (DDPG, "Pendulum-v1")):
        agent = make.from_env(gym.make(env), hidden=(8,), seed=1)
        agent.compile(warmup_steps=210, jit_compile=False)
        history = agent.fit(
            gym.make(env),
            steps_per_epoch=16,
            batch_size=8,
            validation_data=gym.make(env),
            validation_episodes=1,
            seed=1,
            verbose=0,
        )
        logged |= set(history.history)
    named = set()
    for cell, _ in table(README, "| key | what |"):
        named |= set(re.findall(r"`(\w+)`", cell))
    assert named == logged


def test_the_table_of_examples_is_complete():
    named = [link for link, _ in table(README, "  | script | shows |")]
    listed = {re.search(r"\((.+)\)", link)[1] for link in named}
    there = {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")}
    assert listed == there


def test_the_extras_that_pages_name_exist():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = set(config["options.extras_require"])
    files = [*PAGES, *(ROOT / "examples").glob("*.py"), ROOT / ".ci" / "run"]
    for path in files:
        text = path.read_text()
        for group in re.findall(r"(?:\.|keras-rl2x)\[([\w,]+)\]", text):
            assert set(group.split(",")) <= extras, f"{path.name}: {group}"
    requirements = "\n".join(config["options"]["install_requires"].split())
    for package, version in re.findall(
        r"(TensorFlow|Keras) ≥ (\d+(?:\.\d+)*)", README.read_text()
    ):
        assert f"{package.lower()}>={version}" in requirements
    python = re.search(r"Python ≥ ([\d.]+)", README.read_text())[1]
    assert config["options"]["python_requires"] == f">={python}"


def test_the_two_commands_name_files_and_extras_that_exist():
    commands = [code.strip() for _, code in snippets(README, "bash")]
    assert len(commands) == 2
    train, test = commands
    assert (ROOT / re.search(r"examples/\w+\.py", train)[0]).is_file()
    assert test.endswith("-m pytest")
    run = ROOT / ".ci" / "run"
    assert os.access(run, os.X_OK)
    assert "-m pytest" in run.read_text()


def test_defaults_of_keras_are_those_that_the_porting_page_states():
    stated = {
        name: keras_
        for name, _, keras_ in table(
            AGENTS / "PORTING_FROM_PYTORCH.md", "| what | PyTorch | Keras |"
        )
    }
    layers, optimizers = keras.layers, keras.optimizers
    dense = layers.Dense(3)
    assert type(dense.kernel_initializer).__name__ == "GlorotUniform"
    assert stated["dense kernel"] == "`glorot_uniform`"
    assert type(dense.bias_initializer).__name__.lower() == stated["dense bias"]
    assert float(stated["Adam: epsilon"]) == optimizers.Adam().epsilon
    assert stated["RMSprop: decay"] == f"`rho={optimizers.RMSprop().rho}`"
    norm = layers.BatchNormalization()
    assert stated["BatchNorm: momentum"].startswith(f"{norm.momentum},")
    assert float(stated["BatchNorm: epsilon"]) == norm.epsilon
    epsilon = layers.LayerNormalization().epsilon
    assert float(stated["LayerNorm: epsilon"]) == epsilon
    assert float(stated["LeakyReLU: slope"]) == layers.LeakyReLU().negative_slope
