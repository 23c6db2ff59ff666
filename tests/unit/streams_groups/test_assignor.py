"""Which member runs and which keeps copies of which tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from appliance.streams_groups.assignor import assign
from appliance.streams_groups.stored import Assignment
from appliance.streams_groups.topology import Configured


def topology_of(tasks: int) -> Configured:
    return Configured({"0": tasks}, frozenset({"0"}))


@given(
    tasks=st.integers(0, 12),
    processes=st.lists(st.sampled_from("pqrs"), min_size=1, max_size=6),
    gone=st.integers(0, 6),
    replicas=st.integers(0, 3),
)
def test_all_is_run_evenly_copies_lie_elsewhere_and_what_needs_not_move_stays(
    tasks: int, processes: list[str], gone: int, replicas: int
) -> None:
    everybody = {f"m{number}": process for number, process in enumerate(processes)}
    before = assign(topology_of(tasks), everybody, {}, replicas)
    members = dict(list(everybody.items())[: max(1, len(everybody) - gone)])
    made = assign(topology_of(tasks), members, before, replicas)
    run = [task for each in made.values() for task in each.active]
    assert sorted(run) == [("0", number) for number in range(tasks)]
    shares = [len(each.active) for each in made.values()]
    assert max(shares) - min(shares) <= 1
    held: dict[str, list[tuple[str, int]]] = {}
    for member_id, each in made.items():
        held.setdefault(members[member_id], []).extend([*each.active, *each.standby])
    assert all(len(of_process) == len(set(of_process)) for of_process in held.values())
    copies = sum(len(each.standby) for each in made.values())
    assert copies == tasks * min(replicas, len(held) - 1)
    for member_id, each in made.items():
        kept = each.active & before[member_id].active
        assert len(kept) >= min(len(before[member_id].active), tasks // len(members))
    assert assign(topology_of(tasks), members, made, replicas) == made, "nothing moves without need"


def test_a_task_goes_to_where_a_copy_of_its_state_is() -> None:
    members = {"a": "p", "b": "q", "c": "r"}
    before = assign(topology_of(6), members, {}, 1)
    left = assign(topology_of(6), {"a": "p", "b": "q"}, before, 1)
    for member_id in "ab":
        copied = before[member_id].standby & before["c"].active
        assert copied <= left[member_id].active


def test_nothing_is_assigned_while_topics_are_missing() -> None:
    assert assign(Configured(status=(3, "r")), {"a": "p"}, {}, 1) == {"a": Assignment()}
