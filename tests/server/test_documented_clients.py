"""The examples of clients in docs/serve.md, run with a served sample directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.examples import blocks_in, check_printed, commands_of, run_command, run_python
from models import kafka_tools, kcat
from models.seed import some
from spark.kafka_connector import connector_jars

from kafkastore import samples
from kafkastore.server import serve

pytestmark = pytest.mark.kafka

DOCUMENT = Path(__file__).parents[2] / "docs" / "serve.md"
ADDRESS = "127.0.0.1:9092"
CLIENTS = DOCUMENT.read_text(encoding="utf-8").split("\n## Clients\n")[1].split("\n## ")[0]
BLOCKS = blocks_in(CLIENTS)
COMMANDS = [
    command for block in BLOCKS if block.language == "console" for command in commands_of(block)
]
SCRIPTS = [block.text for block in BLOCKS if block.language == "python"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with serve(samples.unpack(tmp_path_factory.mktemp("samples"))[-1]) as served:
        yield served.bootstrap_servers


def test_every_command_is_of_a_tool_that_is_run_here():
    programs = {command.line.split()[0] for command in COMMANDS}
    assert programs == {"kcat"} | (programs & set(kafka_tools.MAIN_CLASSES))
    assert len(programs) >= 5


def test_kcat_prints_what_the_page_shows(address, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", kcat.search_path())
    for command in COMMANDS:
        if command.line.startswith("kcat "):
            line = command.line.replace(ADDRESS, address)
            run_command(command._replace(line=line), tmp_path)


@pytest.mark.parametrize("version", some(kafka_tools.VERSIONS, 1, __name__))
def test_kafka_s_tools_print_what_the_page_shows(address, require_broker, version):
    require_broker(version)
    commands = [each for each in COMMANDS if each.line.startswith("kafka-")]
    printed = kafka_tools.run_tools(
        version, [each.line.replace(ADDRESS, address) for each in commands]
    )
    for command, (_, text) in zip(commands, printed, strict=True):
        check_printed(command, text)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.split()[1])
def test_a_script_prints_what_its_comments_say(address, tmp_path, script):
    assert ADDRESS in script
    if "spark.jars.packages" in script:
        jars = ",".join(map(str, connector_jars()))
        script = re.sub(r'"spark.jars.packages", "[^"]+"', f'"spark.jars", "{jars}"', script)
    printed = run_python(script.replace(ADDRESS, address), tmp_path).splitlines()
    assert printed == re.findall(r"# (\S.*)$", script, re.MULTILINE)
