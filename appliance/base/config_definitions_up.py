"""What `appliance up` itself is told; each key is also a flag (`--data-dir`) and a variable (`APPLIANCE_DATA_DIR`)."""

from __future__ import annotations

from appliance.base.config_types import ConfigKey, ConfigType, Value, row, table

BOOLEAN, INT, STRING, LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING, ConfigType.LIST
MAX_PORT = 65_535


def _up(
    name: str,
    type_: ConfigType,
    default: Value,
    doc: str,
    *,
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
) -> ConfigKey:
    return row(name, type_, default, doc, low=low, high=high, choices=choices, ours=True)


UP_CONFIGS = table(
    _up("brokers", INT, 1, "How many brokers to start.", low=1, high=1000),
    _up(
        "controllers",
        INT,
        None,
        "How many controllers: one is active, the others stand by. By default 2 for 3 brokers and more, else 1.",
        low=1,
        high=9,
    ),
    _up(
        "data.dir",
        STRING,
        "appliance-data",
        "The folder of everything that is kept; logs too, unless `log.dirs` names several folders.",
    ),
    _up("host", STRING, "127.0.0.1", "The address to listen on. Any but a loopback one needs `insecure`."),
    _up("advertised.host", STRING, None, "The host that clients are told; by default `host`."),
    _up(
        "port",
        INT,
        9092,
        "The first broker's port, the others count on from it; 0 takes free ones.",
        low=0,
        high=MAX_PORT,
    ),
    _up("http.port", INT, 8082, "The port of HTTP ingest; 0 takes a free one.", low=0, high=MAX_PORT),
    _up("connect.port", INT, 8083, "The port of the connectors' REST API; 0 takes a free one.", low=0, high=MAX_PORT),
    _up("runtime", STRING, "ray", "What starts and watches the processes.", choices=("ray", "local")),
    _up("ray.address", STRING, None, "An existing Ray cluster to place brokers on, as host:port or `auto`."),
    _up("insecure", BOOLEAN, False, "Listen without TLS on a network, too."),
    _up(
        "services",
        LIST,
        ("all",),
        "Which installed services to start beside the brokers: `all`, `none` or their names.",
    ),
    _up(
        "log.level",
        STRING,
        "info",
        "How much is logged on standard error.",
        choices=("debug", "info", "warning", "error"),
    ),
)
"""The keys of `appliance up` by name. `object.store.url` is a broker config, and its flag is `--object-store`."""
