"""The definitions, compared with those in Apache Kafka's own jars by reflection."""

from __future__ import annotations

import re
import subprocess

import pytest

from appliance.base.config import BROKER_CONFIGS, TOPIC_CONFIGS
from appliance.base.config_differences import DIFFERENT_DEFAULTS, DIFFERENT_LIMITS
from appliance.base.config_types import ConfigKey
from tests.support.kafka_jars import java_command

pytestmark = pytest.mark.java

PROGRAM = """
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class Definitions {
    static void print(String kind, ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : definitions.configKeys().values()) {
            String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "required";
            String limit = key.validator == null ? "" : key.validator.toString();
            System.out.println(String.join("\\t", "DEFINED", kind, key.name, key.type.name(),
                value == null ? "" : value, value == null ? "null" : "set",
                Boolean.toString(key.internalConfig), limit));
        }
    }

    public static void main(String[] arguments) throws Exception {
        print("topic", LogConfig.configDefCopy());
        print("broker", (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null));
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((topic, synonyms) -> {
            List<String> names = new ArrayList<>();
            synonyms.forEach(synonym -> names.add(synonym.name()));
            System.out.println("SYNONYMS\\t" + topic + "\\t" + String.join(",", names));
        });
        for (String name : DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS)
            System.out.println("DYNAMIC\\t" + name);
        System.out.println("AUTHORIZER\\t" + StandardAuthorizer.SUPER_USERS_CONFIG);
        System.out.println("AUTHORIZER\\t" + StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG);
    }
}
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Rows of the program's answer."""
    source = tmp_path_factory.mktemp("definitions") / "Definitions.java"
    source.write_text(PROGRAM)
    command = java_command(str(source))
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def defined(kafka: list[list[str]], kind: str) -> dict[str, list[str]]:
    return {row[2]: row for row in kafka if row[:2] == ["DEFINED", kind]}


OF_THE_AUTHORIZER = {"allow.everyone.if.no.acl.found", "super.users"}
"""Kafka's definitions do not have them: its authorizer reads them by itself."""


def ours() -> list[tuple[str, ConfigKey]]:
    broker = [("broker", key) for key in BROKER_CONFIGS.values() if key.name not in OF_THE_AUTHORIZER]
    return [("topic", key) for key in TOPIC_CONFIGS.values()] + broker


def test_all_of_kafkas_topic_configs_are_there(kafka: list[list[str]]) -> None:
    theirs = defined(kafka, "topic")
    assert len(theirs) == 34
    assert set(theirs) == {key.name for key in TOPIC_CONFIGS.values() if not key.ours}


def test_what_we_call_ours_kafka_does_not_have_and_the_rest_it_has(kafka: list[list[str]]) -> None:
    assert [key.name for kind, key in ours() if key.ours == (key.name in defined(kafka, kind))] == []


def test_those_of_the_authorizer_are_kafkas(kafka: list[list[str]]) -> None:
    assert {row[1] for row in kafka if row[0] == "AUTHORIZER"} == OF_THE_AUTHORIZER
    assert not any(BROKER_CONFIGS[name].ours for name in OF_THE_AUTHORIZER)


def test_types_and_what_is_internal_are_kafkas(kafka: list[list[str]]) -> None:
    for kind, key in ours():
        if not key.ours:
            row = defined(kafka, kind)[key.name]
            assert (key.type.name, str(key.internal).lower()) == (row[3], row[6]), key.name


def test_every_default_that_differs_is_listed_with_kafkas(kafka: list[list[str]]) -> None:
    different = {}
    for kind, key in ours():
        if not key.ours:
            row = defined(kafka, kind)[key.name]
            theirs = None if row[5] == "null" else row[4]
            if theirs != key.text(key.default):
                different[key.name] = theirs
    assert different == {name: difference.kafka for name, difference in DIFFERENT_DEFAULTS.items()}


def test_every_limit_that_differs_is_listed(kafka: list[list[str]]) -> None:
    different = {
        key.name
        for kind, key in ours()
        if not key.ours and _limit(defined(kafka, kind)[key.name][7]) != _sorted_choices(key.allowed)
    }
    assert different == set(DIFFERENT_LIMITS)


def test_synonyms_and_their_order_are_kafkas(kafka: list[list[str]]) -> None:
    theirs = {row[1]: tuple(row[2].split(",")) for row in kafka if row[0] == "SYNONYMS"}
    assert {key.name: key.synonyms for key in TOPIC_CONFIGS.values() if key.synonyms and not key.ours} == theirs


def test_nothing_of_kafkas_is_dynamic_that_is_not_so_there(kafka: list[list[str]]) -> None:
    theirs = {row[1] for row in kafka if row[0] == "DYNAMIC"}
    assert {key.name for key in BROKER_CONFIGS.values() if key.dynamic and not key.ours} <= theirs


def test_a_limit_is_understood() -> None:
    assert _limit("[1,...,9] or -1") == "1 … 9 or -1"
    assert _limit("[0,...]") == "0 …"
    assert _limit("[compact, delete]") == "compact, delete"


def _limit(text: str) -> str:
    """Kafka's words for a limit in ours."""
    if "partitionId" in text:
        return "* or partition:broker pairs"
    if match := re.fullmatch(r"\[(-?\d+),\.\.\.\]", text):
        return f"{match[1]} …"
    if match := re.fullmatch(r"\[(-?\d+),\.\.\.,(-?\d+)\](?: or (-?\d+))?", text):
        return f"{match[1]} … {match[2]}" + (f" or {match[3]}" if match[3] else "")
    if match := re.fullmatch(r"\[([^\[\]]+)\]", text):
        return _sorted_choices(match[1])
    return text


def _sorted_choices(text: str) -> str:
    return ", ".join(sorted(item.strip() for item in text.split(","))) if "," in text else text
