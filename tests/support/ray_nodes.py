"""A Ray cluster of several raylets on this machine: python -m tests.support.ray_nodes SLOTS... (one node for each).

Prints its address and ends with its standard input. RAY_AUTH_TOKEN_PATH must name a token.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile


def main(slots: list[int]) -> None:
    # Sockets lie in it, so its path has to be short. Ray reads the variable when it is imported.
    folder = os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="ray-nodes-", dir="/tmp")
    from ray.cluster_utils import Cluster

    common = {"object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **common})
    for number, count in enumerate(slots, 1):
        cluster.add_node(
            num_cpus=1,
            resources={"broker_slot": count},
            labels={"appliance-node": f"node-{number}"},
            **common,
        )
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
