"""A Ray cluster of several raylets on this machine: python -m tests.support.ray_nodes SLOTS... (one node for each).

Prints its address and ends with its standard input. Obeys, and answers each line with `done`: `lose N` kills node N
(`node-N`), `return N` starts it anew, `kill-head` kills what only the head has (Ray's GCS), `start-head` starts that
again. RAY_AUTH_TOKEN_PATH must name a token.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

# Ray knows them in this spelling only.
GCS_STORAGE, GCS_STORAGE_PATH = "RAY_gcs_storage", "RAY_gcs_storage_path"
COMMON = {"object_store_memory": 80 << 20}


def main(slots: list[int]) -> None:
    # Sockets lie in it, so its path has to be short. Ray reads the variable when it is imported.
    folder = os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="ray-nodes-", dir="/tmp")
    if os.environ.get(GCS_STORAGE) == "rocksdb":
        path = Path(folder, "gcs")
        path.mkdir()
        os.environ[GCS_STORAGE_PATH] = str(path)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **COMMON})
    nodes = {number: add(cluster, number, count) for number, count in enumerate(slots, 1)}
    print(cluster.address, flush=True)
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "lose":
            cluster.remove_node(nodes.pop(int(numbers[0])), allow_graceful=False)
        elif word == "return":
            nodes[int(numbers[0])] = add(cluster, int(numbers[0]), slots[int(numbers[0]) - 1])
        elif word == "kill-head":
            cluster.head_node.kill_gcs_server()
        elif word == "start-head":
            cluster.head_node.start_gcs_server()
        print("done", flush=True)
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def add(cluster: Any, number: int, slots: int) -> Any:
    return cluster.add_node(
        num_cpus=1, resources={"broker_slot": slots}, labels={"appliance-node": f"node-{number}"}, **COMMON
    )


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
