"""Command lines as people write them: scripts, Ray, KServe, files, variables, numbers."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sojourn import engines
from sojourn.engines import Flags, FlagSource, Surroundings
from sojourn.engines.numbers import number_of

IMAGE = "vllm/vllm-openai:v0.20.1"
ROLES = ("tensor_parallel", "pipeline_parallel", "max_length", "max_batch")


def read(container: dict[str, Any], around: Surroundings | None = None) -> Flags:
    engine = engines.detect(container)
    assert engine is not None
    return engines.read_flags(engine, container, around or Surroundings())


def numbers(found: Flags) -> tuple[int | None, ...]:
    return tuple(found.number(role) for role in ROLES)


def script(text: str, *args: str, **env: str) -> dict[str, Any]:
    return {
        "image": "example.com/serving:1",
        "command": ["/bin/bash", "-c"],
        "args": [text, *args],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }


RAY_HEAD = """\
ulimit -n 65536; echo head
ray start --head --num-gpus=8 --dashboard-host=0.0.0.0 \\
  --metrics-export-port=8080 > /tmp/ray.log 2>&1 &&
vllm serve "${MODEL:-meta-llama/Llama-3.1-8B-Instruct}" \\
  --tensor-parallel-size "${TP:-8}" -pp=2 \\
  --max-model-len 32k --max_num_seqs="$SEQS"  # how many
"""

KSERVE = """\
if [ "$INFER_ROCE" = "true" ]; then
  # Let's find out: ${#hcas[@]} of them
  for path in /sys/class/*; do echo "$path" | grep -q "it's" && hcas+=("$path"); done
fi
LOG_ARGS="--disable-uvicorn-access-log"
VERSION=$(vllm --version 2>/dev/null | tail -1)
if [[ "$VERSION" =~ ^[0-9]+ ]] && [ "$(printf '%s' "$VERSION" | sort -V)" = "0.16.0" ]; then
  LOG_ARGS="--disable-access-log-for-endpoints /health,/metrics"
fi
eval "exec vllm serve /mnt/models \\
  --served-model-name "chat" "publishers/team/models/chat" \\
  --port 8000 ${LOG_ARGS} --tensor-parallel-size 4 \\
  ${VLLM_ADDITIONAL_ARGS} \\
  $@"
"""


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(script(RAY_HEAD, SEQS="64"), (8, 2, 32000, 64), id="Ray's head, then vLLM"),
        pytest.param(
            script(
                "bash /vllm-workspace/examples/multi-node-serving.sh leader "
                "--ray_cluster_size=$(LWS_GROUP_SIZE);\n python3 -m "
                "vllm.entrypoints.openai.api_server --model m/405b --tensor-parallel-size 8 "
                "--pipeline_parallel_size 2"
            ),
            (8, 2, None, None),
            id="LeaderWorkerSet",
        ),
        pytest.param(
            script(
                'if [ "$LWS_WORKER_INDEX" = "0" ]; then\n ray start --head\n'
                " vllm serve m/x -tp 16 --api-key $KEY\nelse\n"
                " ray start --address=$LWS_LEADER_ADDRESS:6379 --block\nfi"
            ),
            (16, 1, None, None),
            id="leader and worker in one script",
        ),
        pytest.param(
            script(
                KSERVE,
                "--",
                "--max-num-seqs",
                "32",
                VLLM_ADDITIONAL_ARGS="--max-model-len 16K --max-num-seqs=8",
            ),
            (4, 1, 16384, 32),
            id="KServe's additional arguments, under the container's own",
        ),
        pytest.param(script(KSERVE, "--"), (4, 1, None, None), id="KServe without additional ones"),
        pytest.param(
            script(
                "export DIR_ARG=''\nif [[ ! -z ${MODEL_ID} ]]; then\n"
                '  export DIR_ARG="--model_dir=${MODEL_ID}"\nfi\n'
                "ray start --head --disable-usage-stats\n"
                "python -m huggingfaceserver ${DIR_ARG} --tensor-parallel-size=${TP} $0 $@",
                "--model_name=chat",
                "--max_model_len=8192",
                MODEL_ID="m/x",
                TP="4",
            ),
            (4, 1, 8192, None),
            id="KServe's Hugging Face server on several nodes",
        ),
        pytest.param(
            script('exec "$@"', "--", "vllm", "serve", "m/x", "--max-model-len", "4096"),
            (1, 1, 4096, None),
            id="the arguments are the command",
        ),
        pytest.param(
            {
                "image": IMAGE,
                "command": ["bash", "/start.sh"],
                "args": ["--max-num-seqs", "$(N)", "--max-model-len=$(LEN)"],
                "env": [{"name": "N", "value": "32"}, {"name": "LEN", "value": "8k"}],
            },
            (1, 1, 8000, 32),
            id="a shell that is given a file of commands",
        ),
        pytest.param(
            script("set -euo pipefail\nVLLM_USE_V1=1 exec vllm serve m/x -tp 2 2>&1 | tee /log"),
            (2, 1, None, None),
            id="a variable before the command, a pipe after it",
        ),
        pytest.param(
            script('LEN=$((8*1024))\n: "${TP:=4}"\nvllm serve m/x -tp $TP --max-num-seqs ${N:-16}'),
            (4, 1, None, 16),
            id="assigned by a default",
        ),
        pytest.param(
            script("cat > /tmp/x <<EOF\nvllm serve m/y -tp 8\nEOF\nvllm serve m/x -tp 2"),
            (2, 1, None, None),
            id="a here-document is text",
        ),
        pytest.param(
            script('su app -c "vllm serve m/x -tp 2"').copy()
            | {"args": ["bash -c 'vllm serve m/x -tp 2 --max-model-len $LEN'"]}
            | {"env": [{"name": "LEN", "value": "8192"}]},
            (2, 1, 8192, None),
            id="a shell in a shell",
        ),
        pytest.param(
            script("vllm serve m/x -tp $(TP) --max-model-len '$(LEN)'", TP="2", LEN="8192"),
            (2, 1, 8192, None),
            id="Kubernetes looks into quotes before the shell does",
        ),
        pytest.param(
            {"image": IMAGE, "args": ["m/x", "--tensor-parallel", "2", "--max-model=4096"]},
            (2, 1, 4096, None),
            id="the beginning of a flag",
        ),
        pytest.param(
            {"image": IMAGE, "args": ["m/x", "--max-num", "2"]},
            (1, 1, None, None),
            id="a beginning of several flags is none",
        ),
    ],
)
def test_the_engine_s_own_words_are_found_in_what_people_write(
    container: dict[str, Any], expected: tuple[int | None, ...]
) -> None:
    assert numbers(read(container)) == expected


def test_what_a_test_or_a_message_says_is_not_the_engine_s() -> None:
    text = 'echo "vllm serve m -tp 8"; until pgrep -f "vllm serve"; do sleep 1; done; vllm serve m'
    assert read(script(text)).number("tensor_parallel") == 1


def test_a_script_that_starts_the_engine_twice_is_not_read() -> None:
    found = read(script("vllm serve m/x -tp 2 &\nvllm serve m/y -tp 4 &\nwait"))
    assert found.unreadable == "the shell script starts the engine in 2 places"
    assert found.unknown("tensor_parallel")


def test_ray_is_told_because_ranks_may_then_be_elsewhere() -> None:
    assert read(script(RAY_HEAD)).ray
    assert not read(script("vllm serve m/x")).ray


def test_arguments_in_one_text_stay_apart_where_one_of_them_is_set_in_a_condition() -> None:
    inner = 'ARGS="$*"; exec vllm serve m/x $ARGS'
    found = read(
        script(
            'if [ -n "$SMALL" ]; then X=--max-num-seqs=8; else X=--enforce-eager; fi\n'
            f"sh -c '{inner}' sh -tp=2 \"$X\" -pp=2"
        )
    )
    assert "X is set in a condition" in found.unknown("max_batch")
    assert found.number("max_length") is None
    assert not found.unknown("max_length")


@pytest.mark.parametrize(
    ("container", "model"),
    [
        (script(RAY_HEAD), "meta-llama/Llama-3.1-8B-Instruct"),
        ({"image": IMAGE, "args": ["m/x", "-q", "awq", "-O3"]}, "m/x"),
        ({"image": IMAGE, "args": ["serve", "m/x"]}, "m/x"),
        ({"image": IMAGE, "args": ["--model", "m/x"]}, "m/x"),
        ({"image": IMAGE, "args": ["--enforce-eager"]}, ""),
        (
            {
                "image": "kserve/huggingfaceserver:v0.15-gpu",
                "args": ["--model_name=chat", "--model_id=m/x", "--backend=vllm"],
            },
            "m/x",
        ),
        ({"image": "tensorrt-llm", "command": ["trtllm-serve", "serve", "m/x"]}, "m/x"),
        ({"image": "tensorrt-llm", "command": ["trtllm-serve", "m/x"]}, "m/x"),
        ({"image": "lmsysorg/sglang:v0.5", "args": ["--model-path", "m/x"]}, "m/x"),
    ],
)
def test_the_model_is_read_by_flag_or_by_place(container: dict[str, Any], model: str) -> None:
    assert read(container).model == model


def mounted(*args: str, **source: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    container = {
        "image": IMAGE,
        "args": ["--config", "/etc/engine/v.yaml", *args],
        "volumeMounts": [{"name": "settings", "mountPath": "/etc/engine"}],
    }
    return container, {"volumes": [{"name": "settings", **source}]}


FILE = """\
model: m/x
max-model-len: 16K
tensor_parallel_size: 2
max-num-seqs: 99
enable-prefix-caching: false
"""


@pytest.mark.parametrize(
    "source",
    [
        {"configMap": {"name": "vc"}},
        {"configMap": {"name": "vc", "items": [{"key": "v.yaml", "path": "v.yaml"}]}},
        {"projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "vc"}}]}},
    ],
)
def test_a_mounted_file_lies_under_the_command_line(source: dict[str, Any]) -> None:
    container, pod = mounted("--max-num-seqs=8", **source)
    found = read(container, Surroundings(pod, {"vc": {"v.yaml": FILE}}))
    assert (numbers(found), found.model) == ((2, 1, 16384, 8), "m/x")
    assert found.values["max_length"].source is FlagSource.CONFIG_FILE
    assert found.values["max_batch"].source is FlagSource.ARGUMENT


def test_a_file_mounted_by_its_sub_path_is_found() -> None:
    container, pod = mounted(configMap={"name": "vc"})
    mount = {"name": "settings", "mountPath": "/etc/engine/v.yaml", "subPath": "other.yaml"}
    container |= {"volumeMounts": [mount]}
    around = Surroundings(pod, {"vc": {"other.yaml": "tensor-parallel-size: 4"}})
    assert read(container, around).number("tensor_parallel") == 4


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"secret": {"secretName": "hush"}}, "/etc/engine/v.yaml is set by a Secret (hush)"),
        ({"configMap": {"name": "vc"}}, "set by the ConfigMap vc, which is not read"),
        ({"emptyDir": {}}, "in a volume that is no ConfigMap"),
    ],
)
def test_a_file_that_is_not_known_leaves_unknown_what_the_command_line_does_not_say(
    source: dict[str, Any], why: str
) -> None:
    container, pod = mounted("--max-num-seqs=8", **source)
    found = read(container, Surroundings(pod))
    assert found.number("max_batch") == 8
    assert why in found.unknown("tensor_parallel")


def test_tensorrt_llm_lays_its_file_over_the_command_line() -> None:
    container = {
        "image": "nvcr.io/nvidia/tensorrt-llm/release:1.2",
        "command": ["trtllm-serve", "m/x", "--max_batch_size=64", "--config=/c/x.yaml"],
        "volumeMounts": [{"name": "c", "mountPath": "/c"}],
    }
    pod = {"volumes": [{"name": "c", "configMap": {"name": "x"}}]}
    text = "max_batch_size: 16\nkv_cache_config:\n  dtype: fp8\n  free_gpu_memory_fraction: 0.8\n"
    found = read(container, Surroundings(pod, {"x": {"x.yaml": text}}))
    assert found.number("max_batch") == 16
    assert found.values["kv_precision"].text == "fp8"
    assert found.values["free_memory_fraction"].text == "0.8"
    assert read(container, Surroundings(pod)).number("max_batch") is None


def test_a_path_glued_to_config_is_ignored_by_vllm_and_that_is_said() -> None:
    found = read({"image": IMAGE, "args": ["m/x", "--config=/etc/v.yaml"]})
    assert found.number("tensor_parallel") == 1
    assert "--config=/etc/v.yaml is ignored" in found.remarks[0]


def test_flag_and_value_in_one_list_item_is_no_flag_and_that_is_said() -> None:
    found = read({"image": IMAGE, "args": ["m/x", "--max-model-len 8192"]})
    assert found.number("max_length") is None
    assert "write --max-model-len=8192" in found.remarks[0]


def test_a_command_in_one_list_item_is_the_name_of_no_program_and_that_is_said() -> None:
    line = "python3 -m vllm.entrypoints.openai.api_server --model m/x --tensor-parallel-size 2"
    found = read({"image": IMAGE, "command": [line]})
    assert found.number("tensor_parallel") == 1
    assert "is taken for the name of a program" in found.remarks[0]
    assert read({"image": IMAGE, "command": line.split()}).remarks == ()


SECRET = {"valueFrom": {"secretKeyRef": {"name": "hush", "key": "k"}}}


def test_a_secret_is_not_looked_into_and_said_to_be_what_is_not_known() -> None:
    env = [{"name": "LEN", **SECRET}]
    found = read({"image": IMAGE, "args": ["m/x", "--max-model-len=$(LEN)"], "env": env})
    assert "LEN is set by a Secret (hush)" in found.unknown("max_length")


def test_flags_in_a_variable_from_a_secret_make_all_that_come_before_them_doubtful() -> None:
    container = script(KSERVE, "--", "--max-num-seqs", "32")
    container["env"] = [{"name": "VLLM_ADDITIONAL_ARGS", **SECRET}]
    found = read(container)
    assert found.number("max_batch") == 32
    assert "VLLM_ADDITIONAL_ARGS is set by a Secret" in found.unknown("tensor_parallel")


@pytest.mark.parametrize("text", ["vllm serve m/x --max-model-len 8192 --api-key $KEY", RAY_HEAD])
def test_one_value_from_a_secret_leaves_the_other_flags_known(text: str) -> None:
    container = script(text)
    container["env"] = [{"name": "KEY", **SECRET}]
    assert read(container).number("max_length") in (8192, 32000)


@pytest.mark.parametrize(
    ("env", "maps", "length", "why"),
    [
        pytest.param(
            {"env": [{"name": "LEN", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "l"}}}]},
            {"c": {"l": "8192"}},
            8192,
            "",
            id="a key of a ConfigMap",
        ),
        pytest.param(
            {"env": [{"name": "LEN", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "l"}}}]},
            {},
            None,
            "set by the ConfigMap c, which is not read",
            id="a ConfigMap that is not known",
        ),
        pytest.param(
            {"envFrom": [{"prefix": "L", "configMapRef": {"name": "c"}}]},
            {"c": {"EN": "4096"}},
            4096,
            "",
            id="all of a ConfigMap, with a prefix",
        ),
        pytest.param(
            {"envFrom": [{"secretRef": {"name": "hush"}}]},
            {},
            None,
            "LEN may be set by the Secret hush",
            id="all of a Secret",
        ),
        pytest.param(
            {"env": [{"name": "LEN", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
            {},
            None,
            "LEN is set when the pod starts",
            id="a field of the pod",
        ),
        pytest.param({}, {}, None, "nobody defines LEN", id="nothing"),
    ],
)
def test_variables_are_known_as_far_as_their_source_is(
    env: dict[str, Any], maps: dict[str, dict[str, str]], length: int | None, why: str
) -> None:
    container = {"image": IMAGE, "args": ["m/x", "--max-model-len", "$(LEN)"], **env}
    found = read(container, Surroundings(config_maps=maps))
    assert found.number("max_length") == length
    assert why in found.unknown("max_length")


@pytest.mark.parametrize(
    ("text", "plain", "suffixed"),
    [
        ("8192", 8192, 8192),
        ("32k", None, 32_000),
        ("32K", None, 32_768),
        ("25.6k", None, 25_600),
        ("25.6K", None, None),
        ("1m", None, 1_000_000),
        ("1M", None, 1_048_576),
        ("2G", None, 2**31),
        ("1t", None, 10**12),
        ("-1", -1, -1),
        ("auto", None, None),
        ("8,192", None, None),
        ("", None, None),
        ('"8192"', None, None),
    ],
)
def test_numbers_are_read_as_vllm_reads_them(
    text: str, plain: int | None, suffixed: int | None
) -> None:
    assert (number_of(text), number_of(text, suffixes=True)) == (plain, suffixed)


def test_a_batch_takes_no_suffix_and_a_length_does() -> None:
    found = read({"image": IMAGE, "args": ["m/x", "--max-num-seqs=1k", "--max-model-len=1k"]})
    assert (found.number("max_batch"), found.number("max_length")) == (None, 1000)


def test_max_batch_follows_a_variable_through_the_script_s_own() -> None:
    text = "N=${SOJOURN_MAX_BATCH:-64}\nvllm serve m/x --max-num-seqs $N"
    assert engines.refers_to(engines.find("vllm"), script(text), "SOJOURN_MAX_BATCH")
    braces = script("vllm serve m/x --max-num-seqs $(SOJOURN_MAX_BATCH)")
    assert engines.refers_to(engines.find("vllm"), braces, "SOJOURN_MAX_BATCH")
    file = {"command": ["bash", "/start.sh"], "args": ["--max-num-seqs=$(SOJOURN_MAX_BATCH)"]}
    assert engines.refers_to(engines.find("vllm"), file, "SOJOURN_MAX_BATCH")
    assert not engines.refers_to(engines.find("vllm"), script(KSERVE), "SOJOURN_MAX_BATCH")


SIGNS = st.text(alphabet="ab=-$(){}[]'\"\\;|&<>#\n `@*:+?!", max_size=40)


@given(SIGNS, st.lists(SIGNS, max_size=3), SIGNS)
def test_no_script_whatever_makes_reading_fail(text: str, args: list[str], value: str) -> None:
    container = script(f"vllm serve m {text}", *args, X=value)
    container["envFrom"] = [{}, {"configMapRef": None}]
    found = engines.read_flags(engines.find("vllm"), container)
    assert all(isinstance(one.text, str) for one in found.values.values())
    assert isinstance(engines.refers_to(engines.find("vllm"), container, "X"), bool)


def test_variables_that_double_with_each_line_stay_small() -> None:
    """Whoever may write a Deployment must not fill the operator's memory with forty lines."""
    lines = ["A=--max-model-len=8192"] + ["A=$A$A"] * 60 + ["vllm serve m/x -tp 2 $A"]
    begun_s = time.process_time()
    found = read(script("\n".join(lines)))
    assert found.number("tensor_parallel") is None
    assert found.unknown("tensor_parallel")
    env = [{"name": "V0", "value": "x" * 10}]
    env += [{"name": f"V{i + 1}", "value": f"$(V{i})$(V{i})"} for i in range(60)]
    container = {"image": IMAGE, "args": ["m/x", "--max-model-len=$(V60)"], "env": env}
    assert "longer than" in read(container).unknown("max_length")
    nested = "eval 'A=$A$A; eval \"$A\"'\n" * 50
    read(script(f"A=x\n{nested}vllm serve m/x"))
    deep = "${A:-" * 3000 + "8" + "}" * 3000
    read(script(f"vllm serve m/x -tp {deep}"))
    assert time.process_time() - begun_s < 5.0
