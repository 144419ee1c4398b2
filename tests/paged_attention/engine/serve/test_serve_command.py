"""The command that serves a model: what it takes, what it refuses, and how it ends."""

import errno
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.request

import openai
import pytest

from paged_attention.engine.serve.__main__ import main, room_for
from tiny_checkpoints import byte_level, checkpoint

COMMAND = [sys.executable, "-m", "paged_attention.engine.serve", "--port", "0"]


@pytest.mark.slow
def test_a_checkpoint_is_served_from_its_own_folder_until_it_is_told_to_end(tmp_path):
    folder, words = tmp_path / "my-model", byte_level()
    a, b = words.encode("ab")
    checkpoint(folder, {a: b, b: words.eos_token_id}, words)
    options = ["--model", ".", "--allowed-host", "My.Example", "--body-seconds", "30"]
    options += ["--allowed-origin", "https://HUB.example:443/", "null"]
    with subprocess.Popen(
        [*COMMAND, *options], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        serving, name, on, address = process.stdout.readline().split()
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        assert name == "my-model" == client.models.list().data[0].id
        (choice,) = client.completions.create(model=name, prompt="a", temperature=0).choices
        assert (choice.text, choice.finish_reason) == ("b", "stop")
        for origin in ("https://hub.example", "null"):
            headers = {"Origin": origin, "Host": "my.example"}
            request = urllib.request.Request(f"{address}/health", headers=headers)
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.headers["Access-Control-Allow-Origin"] == origin
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_a_machine_without_a_compiler_serves_too_and_says_so(tmp_path):
    own = os.environ | {"CXX": "/bin/false", "LESSONS_BUILD_DIR": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(COMMAND, env=own, text=True, **pipes) as process:
        assert process.stdout.readline().startswith("Serving tiny_qwen3 on ")
        process.send_signal(signal.SIGINT)
        assert "It goes on without its kernels for a CPU: " in process.communicate()[1]


NUMBER = "9" * 5000
REFUSED = [
    (["--port", "99999"], "--port: must be from 0 to 65,535, not 99999"),
    (["--port", "-1"], "--port: must be from 0 to 65,535, not -1"),
    (["--port", "http"], "--port: invalid whole number value: 'http'"),
    (["--port", NUMBER], "--port: invalid whole number value: '999"),
    (["--host", ""], "--host: must be a name or an address; 0.0.0.0 is all of them"),
    (["--requests", "0"], "--requests: must be from 1 to 1,000,000, not 0"),
    (["--connections", "-3"], "--connections: must be from 1 to 1,000,000, not -3"),
    (["--connections", "1" + 30 * "0"], "--connections: must be from 1 to 1,000,000"),
    (["--num-blocks", "0"], "--num-blocks: must be from 1 to 2,147,483,647, not 0"),
    (["--num-blocks", "2147483648"], "--num-blocks: must be from 1 to 2,147,483,647"),
    (["--max-num-seqs", "0"], "--max-num-seqs: must be from 1 to 65,536, not 0"),
    (["--max-num-seqs", "1e3"], "--max-num-seqs: invalid whole number value: '1e3'"),
    (["--body-seconds", "0"], "--body-seconds: must be from 0.001 to 86,400, not 0"),
    (["--body-seconds", "nan"], "--body-seconds: must be from 0.001 to 86,400, not nan"),
    (["--body-seconds", "inf"], "--body-seconds: must be from 0.001 to 86,400, not inf"),
    (["--allowed-origin", "hub.example"], "must be like https://hub.example, not 'hub.exampl"),
    (["--allowed-origin", "https://a/b"], "must be like https://hub.example, not 'https://a"),
    (["--nothing"], "unrecognized arguments: --nothing"),
]


@pytest.mark.parametrize("words, shown", REFUSED, ids=lambda each: str(each)[:40])
def test_an_argument_that_cannot_be_is_refused_by_name(capsys, words, shown):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert shown in capsys.readouterr().err


CANNOT = [
    (["--num-blocks", "1000000000"], "--num-blocks 1,000,000,000 needs .* GiB .* would fill"),
    (["--model", __file__], "there is no folder '.*test_serve_command.py'"),
    (["--host", "no.such.host.invalid"], "it cannot listen on no.such.host.invalid port 0: "),
    (["--host", "192.0.2.1"], "it cannot listen on 192.0.2.1 port 0: "),
]


@pytest.mark.parametrize("words, shown", CANNOT, ids=lambda each: str(each)[:40])
def test_what_cannot_be_served_is_a_sentence(capsys, words, shown):
    assert main(["--port", "0", *words]) == 2
    out, err = capsys.readouterr()
    (line,) = [each for each in err.splitlines() if each.startswith("Cannot serve: ")]
    assert out == "" and re.search(shown, line) and "Traceback" not in err


def test_a_port_that_is_taken_is_a_sentence_before_a_model_is_looked_for(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["--port", port, "--model", "no such folder"]) == 2
    words = f"Cannot serve: it cannot listen on 127.0.0.1 port {port}: "
    assert words + os.strerror(errno.EADDRINUSE) in capsys.readouterr().err


def test_there_are_no_more_connections_than_open_files(capsys):
    now, ever = resource.getrlimit(resource.RLIMIT_NOFILE)
    if ever == resource.RLIM_INFINITY:
        pytest.skip("this system has no limit of open files")
    try:
        assert room_for(10) == 10 and capsys.readouterr().err == ""
        room = room_for(10**9)
        assert room == ever - 128 and resource.getrlimit(resource.RLIMIT_NOFILE)[0] == ever
        assert f"this process have {room} connections" in capsys.readouterr().err
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, ever))
