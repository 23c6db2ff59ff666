"""The broker configs of listeners: their names and protocols, TLS, and who may connect.

Each key of TLS and SASL may be given for one listener alone: `listener.name.<name in lower case>.<key>`.
"""

from __future__ import annotations

from appliance.base.config_types import ConfigKey, ConfigType, Importance, Value, one_of, row

BOOLEAN, STRING, INT, LONG, LIST, PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
HIGH, LOW = Importance.HIGH, Importance.LOW
_OPENSSL = "TLS is OpenSSL's, there are no Java providers"

_LISTENERS = (
    row(
        "listeners",
        LIST,
        ("PLAINTEXT://:9092",),
        "The addresses to listen on, as NAME://host:port; the first broker's, the others count on from its ports.",
        importance=HIGH,
    ),
    row(
        "advertised.listeners",
        LIST,
        None,
        "The addresses that clients are told, as NAME://host:port; by default the listeners' own.",
        importance=HIGH,
    ),
    row(
        "inter.broker.listener.name",
        STRING,
        None,
        "Name of the listener that brokers use among themselves; by default that of "
        "`security.inter.broker.protocol`, or the only one.",
    ),
    row(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which protocol a listener's name stands for.",
        importance=LOW,
    ),
    row(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "The protocol between brokers, where `inter.broker.listener.name` is not set.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
)


def _tls(name: str, type_: ConfigType, default: Value, doc: str, *, no_effect: str = "") -> ConfigKey:
    return row(name, type_, default, doc, no_effect=no_effect)


_TLS = (
    _tls("ssl.keystore.type", STRING, "JKS", "The format of the key and its certificates: PEM."),
    _tls(
        "ssl.keystore.location",
        STRING,
        None,
        "A PEM file with the private key and the chain of its certificate. Read again when it changes.",
    ),
    _tls("ssl.keystore.key", PASSWORD, None, "The private key itself in PEM, instead of a file."),
    _tls("ssl.keystore.certificate.chain", PASSWORD, None, "The chain of certificates that goes with it, in PEM."),
    _tls("ssl.key.password", PASSWORD, None, "The password of the private key."),
    _tls("ssl.keystore.password", PASSWORD, None, "The password of a keystore.", no_effect="PEM files have none"),
    _tls("ssl.truststore.type", STRING, "JKS", "The format of the certificates that are trusted: PEM."),
    _tls(
        "ssl.truststore.location",
        STRING,
        None,
        "A PEM file with the certificates that are trusted. Read again when it changes.",
    ),
    _tls("ssl.truststore.certificates", PASSWORD, None, "The trusted certificates themselves in PEM."),
    _tls("ssl.truststore.password", PASSWORD, None, "The password of a truststore.", no_effect="PEM files have none"),
    row(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients show a certificate.",
        choices=("required", "requested", "none"),
    ),
    row(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "How the name in a client's certificate becomes a user: `RULE:pattern/replacement/[L|U]` with commas between, "
        "or DEFAULT for the name as it is.",
        importance=LOW,
    ),
    _tls("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), "The versions of TLS that are taken."),
    _tls("ssl.cipher.suites", LIST, (), "The cipher suites, by OpenSSL's or the standard's names; empty: the usual."),
    row(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "`https`: brokers check that another broker's certificate names its host. Empty: they do not.",
        importance=LOW,
    ),
    _tls("ssl.protocol", STRING, "TLSv1.3", "The newest version of TLS.", no_effect="see `ssl.enabled.protocols`"),
    _tls("ssl.provider", STRING, None, "A provider of TLS.", no_effect=_OPENSSL),
    _tls("ssl.keymanager.algorithm", STRING, "SunX509", "How keys are managed.", no_effect=_OPENSSL),
    _tls("ssl.trustmanager.algorithm", STRING, "PKIX", "How certificates are checked.", no_effect=_OPENSSL),
    row(
        "ssl.secure.random.implementation",
        STRING,
        None,
        "Where random numbers come from.",
        importance=LOW,
        no_effect=_OPENSSL,
    ),
    row(
        "ssl.allow.dn.changes",
        BOOLEAN,
        False,
        "Whether a new certificate may have another name.",
        importance=LOW,
        no_effect="a new certificate is taken as it is",
    ),
    row(
        "ssl.allow.san.changes",
        BOOLEAN,
        False,
        "Whether a new certificate may have other alternative names.",
        importance=LOW,
        no_effect="a new certificate is taken as it is",
    ),
    row(
        "ssl.reload.interval.ms",
        INT,
        10_000,
        "How often the files of keys and certificates are looked at for a change.",
        low=100,
        ours=True,
    ),
)

_SASL = (
    row(
        "sasl.enabled.mechanisms",
        LIST,
        ("GSSAPI",),
        "The mechanisms that a SASL listener offers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
    ),
    row(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        "GSSAPI",
        "The mechanism by which brokers show each other who they are.",
    ),
    row(
        "sasl.jaas.config",
        PASSWORD,
        None,
        "The entry of a mechanism, as `listener.name.<name>.<mechanism>.sasl.jaas.config`: PLAIN's users as "
        '`user_<name>="password"`, and `username` and `password` of the broker itself.',
    ),
    row(
        "connections.max.reauth.ms",
        LONG,
        0,
        "How long a client may go on before it has to authenticate anew (KIP-368); 0: for ever.",
    ),
    row(
        "sasl.server.max.receive.size",
        INT,
        524_288,
        "The largest request before a client has authenticated.",
    ),
)

_OAUTH = (
    row(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        None,
        "Where the public keys of tokens are: file:, http: or https:.",
    ),
    row(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        3_600_000,
        "How often they are read again.",
        importance=LOW,
    ),
    row(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        100,
        "How long after one read another may follow, when a token's key is not known.",
        importance=LOW,
    ),
    row(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        LONG,
        10_000,
        "The longest wait between reads that fail.",
        importance=LOW,
        no_effect="the wait does not grow",
    ),
    row(
        "sasl.oauthbearer.expected.audience",
        LIST,
        (),
        "Whom a token has to be meant for, one of these; empty: anybody.",
        importance=LOW,
    ),
    row("sasl.oauthbearer.expected.issuer", STRING, None, "Who has to have issued a token.", importance=LOW),
    row("sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim that names the user.", importance=LOW),
    row(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        30,
        "How far the clock of who issued a token may be away from ours.",
        importance=LOW,
    ),
    row(
        "sasl.server.callback.handler.class",
        ConfigType.CLASS,
        None,
        "A class that checks credentials.",
        no_effect="OAUTHBEARER checks tokens by `sasl.oauthbearer.jwks.endpoint.url`, there are no Java classes",
    ),
)

_AUTHENTICATION = (
    row(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        "How long a connection whose authentication failed waits for its end.",
        low=0,
        importance=LOW,
    ),
)

_AUTHORIZATION = (
    row(
        "authorizer.class.name",
        STRING,
        "",
        "Who decides what clients may do: `org.apache.kafka.metadata.authorizer.StandardAuthorizer`, by access control "
        "lists; empty: everybody may do everything.",
        importance=LOW,
        check=one_of("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        allowed="empty, org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ),
    row(
        "super.users",
        STRING,
        "",
        "Who may do everything, as `User:one;User:another`. Brokers among themselves have to be among them.",
        importance=LOW,
    ),
    row(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        "Whether everybody may do everything to a resource that no access control list is about.",
        importance=LOW,
    ),
)

SECURITY_CONFIGS = (*_LISTENERS, *_TLS, *_SASL, *_OAUTH, *_AUTHENTICATION, *_AUTHORIZATION)
