"""A member gives up first and gets later, and never what somebody else has."""

from __future__ import annotations

import uuid

from appliance.consumer_groups.reconciling import is_part_of, next_step
from appliance.consumer_groups.stored import Current, MemberState

T, U = uuid.UUID(int=1), uuid.UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def free(topic: uuid.UUID, partition: int) -> bool:
    return False


def taken(topic: uuid.UUID, partition: int) -> bool:
    return True


def test_a_member_that_has_its_target_stays_as_it_is() -> None:
    current = Current(3, 2, STABLE, {T: {0: 1}})
    assert next_step(current, 3, {T: (0, 1)}, free, None) is current


def test_free_partitions_are_given_at_once_in_the_epoch_of_the_target() -> None:
    assert next_step(Current(), 3, {T: (0, 1)}, free, {}) == Current(3, 0, STABLE, {T: {0: 3, 1: 3}})


def test_what_it_keeps_keeps_the_epoch_in_which_it_was_given() -> None:
    current = Current(1, 0, STABLE, {T: {0: 1}})
    assert next_step(current, 2, {T: (0, 1)}, free, None).assigned == {T: {0: 1, 1: 2}}


def test_it_stays_in_its_epoch_until_it_has_given_up_what_it_must() -> None:
    current = Current(1, 0, STABLE, {T: {0: 1, 1: 1}})
    asked = next_step(current, 2, {T: (0,)}, free, None)
    assert asked == Current(1, 0, UNREVOKED, {T: {0: 1}}, {T: {1: 1}})
    assert next_step(asked, 2, {T: (0,)}, free, None) is asked
    assert next_step(asked, 2, {T: (0,)}, free, {T: [0, 1]}) is asked
    assert next_step(asked, 2, {T: (0,)}, free, {T: [0]}) == Current(2, 1, STABLE, {T: {0: 1}})


def test_what_it_says_it_does_not_have_needs_not_be_given_up() -> None:
    current = Current(1, 0, STABLE, {T: {0: 1, 1: 1}})
    assert next_step(current, 2, {T: (0,)}, free, {}) == Current(2, 1, STABLE, {T: {0: 1}})


def test_it_gets_nothing_while_it_has_something_to_give_up() -> None:
    current = Current(1, 0, STABLE, {T: {0: 1}})
    asked = next_step(current, 2, {U: (0,)}, free, None)
    assert asked == Current(1, 0, UNREVOKED, {}, {T: {0: 1}})
    assert next_step(asked, 2, {U: (0,)}, free, {}) == Current(2, 1, STABLE, {U: {0: 2}})


def test_it_waits_for_what_others_still_have_in_the_epoch_of_the_target() -> None:
    waiting = next_step(Current(), 2, {T: (0,)}, taken, {})
    assert waiting == Current(2, 0, UNRELEASED)
    assert next_step(waiting, 2, {T: (0,)}, taken, None) is waiting
    assert next_step(waiting, 2, {T: (0,)}, free, None) == Current(2, 0, STABLE, {T: {0: 2}})


def test_it_gets_the_free_ones_of_what_it_waits_for() -> None:
    step = next_step(Current(), 2, {T: (0, 1)}, lambda topic, partition: partition == 0, {})
    assert step == Current(2, 0, UNRELEASED, {T: {1: 2}})


def test_a_target_that_changed_meanwhile_is_what_it_goes_for() -> None:
    asked = Current(1, 0, UNREVOKED, {T: {0: 1}}, {T: {1: 1}})
    again = next_step(asked, 5, {U: (0,)}, free, {T: [0]})
    assert again == Current(2, 1, UNREVOKED, {}, {T: {0: 1}})
    assert next_step(again, 5, {U: (0,)}, free, {}) == Current(5, 2, STABLE, {U: {0: 5}})


def test_topics_that_it_reads_no_longer_are_given_up_before_there_is_a_new_target() -> None:
    current = Current(2, 1, STABLE, {T: {0: 2}, U: {0: 2}})
    asked = next_step(current, 2, {T: (0,), U: (0,)}, free, None, frozenset((U,)))
    assert asked == Current(2, 1, UNREVOKED, {U: {0: 2}}, {T: {0: 2}})
    assert next_step(asked, 2, {T: (0,), U: (0,)}, free, {U: [0]}, frozenset((U,))).epoch == 2


def test_part_of() -> None:
    assigned = {T: {0: 1, 1: 1}}
    assert is_part_of({T: [0]}, assigned)
    assert is_part_of({}, assigned)
    assert not is_part_of({T: [0, 2]}, assigned)
    assert not is_part_of({U: [0]}, assigned)
    assert not is_part_of(None, assigned)
