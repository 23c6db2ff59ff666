from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from appliance.base.errors import UserError
from appliance.security.principals import PrincipalMapper, distinguished_name, parse_principal
from tests.support.kafka_jars import java_command

RULES = [
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,RULE:^cn=(.*?),ou=(.*?),dc=(.*?)$/$1@$2/U,DEFAULT",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT",
    r"RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    r"RULE:^CN=(.*?),.*$/a\/$1/U",
]
NAMES = [
    "CN=kafka,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
    "CN=Admin User,OU=Admin,O=Example,L=Here,ST=There,C=DE",
    "cn=someone,ou=people,dc=example",
    "CN=a.b",
    "O=nobody",
]
PROGRAM = """
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

public class Mapper {
    public static void main(String[] lines) throws Exception {
        var reader = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        int rules = Integer.parseInt(reader.readLine());
        var mappers = new java.util.ArrayList<SslPrincipalMapper>();
        for (int i = 0; i < rules; i++) mappers.add(SslPrincipalMapper.fromRules(reader.readLine()));
        for (String name; (name = reader.readLine()) != null; )
            for (var mapper : mappers) {
                try { System.out.println(mapper.getName(name)); }
                catch (Exception e) { System.out.println("NONE"); }
            }
    }
}
"""


@pytest.mark.java
def test_names_become_users_as_in_apache_kafka(tmp_path: Path) -> None:
    source = tmp_path / "Mapper.java"
    source.write_text(PROGRAM)
    words = "\n".join([str(len(RULES)), *RULES, *NAMES])
    done = subprocess.run(
        java_command(str(source)), input=words, capture_output=True, text=True, timeout=60, check=True
    )
    mappers = [PrincipalMapper(rules) for rules in RULES]
    ours = [mapper.name_of(name) or "NONE" for name in NAMES for mapper in mappers]
    assert ours == done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("rules", ["RULE:^CN=(.*$/$1/", "RULE:a/b", "NONE", "RULE:a/b/X"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(UserError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapper(rules)


def test_a_subject_is_written_as_rfc_2253_has_it() -> None:
    subject = (
        (("countryName", "DE"),),
        (("organizationName", 'Sons, "Daughters" & Co'),),
        (("commonName", "#a"), ("userId", "7")),
        (("emailAddress", "a@b"),),
    )
    expected = r"1.2.840.113549.1.9.1=#1603614062,CN=\#a+UID=7,O=Sons\, \"Daughters\" & Co,C=DE"
    assert distinguished_name(subject) == expected


def test_a_principal_is_a_type_and_a_name() -> None:
    assert str(parse_principal("User:CN=a,O=b:c")) == "User:CN=a,O=b:c"
    for text in ("alice", "User:", ":alice"):
        with pytest.raises(ValueError, match="type:name"):
            parse_principal(text)
