"""Who leads a partition, who is in sync and who may be elected when brokers come and go (rules B3, P9, P10, P11).

An `Outcome` is the cluster as one event leaves it. Whatever happens to a partition, `settle` brings it back to what
must hold: a reassignment that has all it needs is finished, who is fenced leaves the ISR, who may be elected is
remembered, and somebody leads if anybody can. A leader epoch rises at every loss of a leader and at every election, so
a process that comes back never leads under an epoch that its predecessor had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from appliance.base.config import TopicConfig, TopicConfigs
from appliance.controller.decisions import UNUSABLE, LogEnd, Rules
from appliance.controller.delta import MetadataDelta
from appliance.controller.image import BrokerState, MetadataImage, TopicState
from appliance.controller.records import (
    NO_LEADER,
    BrokerConfigSet,
    EarlierLeader,
    LeaderRecoveryState,
    LogState,
    PartitionChanged,
    PartitionState,
    Record,
    TopicConfigSet,
)

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"

Change = Callable[[TopicState, PartitionState], PartitionState | None]


class Outcome:
    """The brokers after an event, and what that means for partitions.

    Args:
        before: the image that the event met.
        events: its records about brokers, which go into the same commit.
        lost: brokers whose logs may lack what they had; they are not eligible any more.
    """

    def __init__(
        self, before: MetadataImage, rules: Rules, events: Iterable[Record] = (), lost: frozenset[int] = frozenset()
    ) -> None:
        delta = MetadataDelta(before)
        for record in events:
            delta.apply(record, position=-1)
        self.image = delta.build()
        self._before = before
        self._rules = rules
        self._lost = lost
        self._configs = TopicConfigs()

    def unfenced(self, broker_id: int) -> bool:
        """It may serve."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def may_lead(self, broker_id: int) -> bool:
        """It may be given something to lead: neither fenced nor about to stop."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.shutting_down

    def min_insync_replicas(self, topic: TopicState) -> int:
        """As the topic has it, or the brokers."""
        return self._config(topic).min_insync_replicas

    def changes(self, change: Change) -> Iterator[PartitionChanged]:
        """The records that follow when every partition is asked."""
        for topic_id, topic in self.image.topics_by_id.items():
            for partition in topic.partitions:
                changed = change(topic, partition)
                if changed is not None:
                    yield PartitionChanged(topic_id, changed)

    def settle(
        self,
        topic: TopicState,
        before: PartitionState,
        wanted: PartitionState | None = None,
        *,
        prefer: int = NO_LEADER,
        unclean: bool = False,
        always: bool = False,
    ) -> PartitionState | None:
        """The partition after the event, or None when it stays as it is.

        Args:
            wanted: what the event makes of it, if it touches the partition itself.
            prefer: who is to lead if it can.
            unclean: an operator accepts the loss of records; else the topic's config says so.
            always: a new partition epoch even if nothing else is new (rule P8).
        """
        state = _completed(wanted or before)
        leader, state = self._leader(topic, before, state, prefer, unclean)
        if leader != NO_LEADER:
            # Whoever was elected may be all that a reassignment waited for.
            state = _completed(state)
            # With nobody to lead, who is in sync stays as it is: any of them may be the first to come back.
            keep = tuple(b for b in state.isr if b == leader or self.may_lead(b))
            state = _with(state, isr=keep, data_lost=False)
        state = _with(state, elr=self._eligible(topic, before, state))
        if leader != before.leader or (state.data_lost and not before.data_lost):
            state = self._led_by(leader, before, state)
        if state == before and not always:
            return None
        return _with(state, partition_epoch=before.partition_epoch + 1)

    def _leader(
        self, topic: TopicState, before: PartitionState, state: PartitionState, prefer: int, unclean: bool
    ) -> tuple[int, PartitionState]:
        """Rule P10. The ISR changes with the leader when that is not one of it."""
        in_sync = () if state.data_lost else tuple(b for b in state.replicas if b in state.isr)
        if prefer in in_sync and self.may_lead(prefer):
            return prefer, state
        if before.leader in in_sync and self.may_lead(before.leader):
            return before.leader, state
        able = [b for b in in_sync if self.may_lead(b)]
        # About to stop, but nobody can take over: it leads to its end (rule B10).
        able += [b for b in (before.leader, *in_sync) if b in in_sync and self.unfenced(b)]
        if able:
            return able[0], state
        for broker_id in state.replicas:
            if broker_id in state.elr and self.may_lead(broker_id):
                elr = _union(state.elr, state.isr, without=(broker_id,))
                return broker_id, _with(state, isr=(broker_id,), elr=elr)
        if unclean or self.unclean_is_allowed(topic):
            chosen = self._longest(topic, before, self.able(state, by_operator=unclean), by_operator=unclean)
            if chosen != NO_LEADER:
                return chosen, _with(state, isr=(chosen,), elr=(), data_lost=False)
        return NO_LEADER, state

    def unclean_is_allowed(self, topic: TopicState) -> bool:
        """By the topic's config, or the brokers'."""
        return self._config(topic).unclean_leader_election_enable

    def able(self, state: PartitionState, *, by_operator: bool = False) -> list[int]:
        """Who could be elected uncleanly. One that lost all is an operator's choice alone."""
        return [
            b for b in state.replicas if self.may_lead(b) and (by_operator or not state.data_lost or b not in state.isr)
        ]

    def log_end(self, topic: TopicState, partition: PartitionState, broker_id: int) -> LogEnd | None:
        """What a living replica has said of its log since nobody leads; None when it was not asked yet."""
        end = self._rules.log_ends.get((topic.topic_id, partition.partition, broker_id))
        if end is None or end.leader_epoch != partition.leader_epoch:
            return None
        return end if end.broker_epoch == self.image.brokers[broker_id].broker_epoch else None

    def _longest(self, topic: TopicState, before: PartitionState, able: Sequence[int], *, by_operator: bool) -> int:
        """Who has most, as far as that is known, else the first. Nobody before all have been asked (rule P10)."""
        if len(able) <= 1:
            # There is nothing to compare.
            return able[0] if able else NO_LEADER
        ends = {b: self.log_end(topic, before, b) for b in able}
        if not by_operator and None in ends.values():
            return NO_LEADER
        usable = {b: end[2:] if end is not None else (-1, -1) for b, end in ends.items()}
        return max((b for b in able if usable[b][1] != UNUSABLE), key=lambda b: usable[b], default=NO_LEADER)

    def _eligible(self, topic: TopicState, before: PartitionState, state: PartitionState) -> tuple[int, ...]:
        """Rule P9: who left while too few stayed still has all that was acknowledged, for nothing is since."""
        if len(state.isr) >= min(self.min_insync_replicas(topic), len(state.replicas)):
            return ()
        elected_uncleanly = is_unclean(before, state)
        left = () if elected_uncleanly else before.isr
        elr = _union(state.elr, left, without=(*state.isr, *self._lost))
        return tuple(b for b in elr if b in state.replicas)

    def _led_by(self, leader: int, before: PartitionState, state: PartitionState) -> PartitionState:
        recovery = state.leader_recovery_state
        if leader != NO_LEADER:
            # One that crashed and was not alone has left the ISR: where it is in it with others it has caught up.
            was_alone = before.isr == state.isr == (leader,)
            alone_after_a_crash = was_alone and self.image.brokers[leader].log_state is LogState.UNCLEAN
            if alone_after_a_crash or is_unclean(before, state):
                # Its tail may be lost: it reads the tier before it serves.
                recovery = LeaderRecoveryState.RECOVERING
            elif before.isr != (leader,):
                recovery = LeaderRecoveryState.RECOVERED
        return _with(
            state,
            leader=leader,
            leader_epoch=before.leader_epoch + 1,
            leader_recovery_state=recovery,
            earlier_leaders=self._earlier_leaders(leader, before),
        )

    def _earlier_leaders(self, leader: int, before: PartitionState) -> tuple[EarlierLeader, ...]:
        """Rule P1: who may still believe that it leads."""
        kept = [e for e in before.earlier_leaders if e.broker_id != leader and not self._knows(e)]
        old = self._before.brokers.get(before.leader)
        now = self.image.brokers.get(before.leader)
        if old is not None and now is not None and now.broker_epoch == old.broker_epoch and not now.dead:
            kept = [e for e in kept if e.broker_id != old.broker_id]
            live = not now.fenced or now.shutting_down
            kept.append(EarlierLeader(old.broker_id, old.broker_epoch, live))
        return tuple(kept)

    def _knows(self, earlier: EarlierLeader) -> bool:
        """Its process has ended, or has said that it knows."""
        broker = self.image.brokers.get(earlier.broker_id)
        if broker is not None and (broker.dead or broker.broker_epoch != earlier.broker_epoch):
            return True
        known = self._rules.positions.get((earlier.broker_id, earlier.broker_epoch), -1)
        return 0 <= earlier.commit <= known

    def _config(self, topic: TopicState) -> TopicConfig:
        # Most topics say the same about what counts here, or nothing: one reading serves them all.
        own = {key: topic.configs[key] for key in (MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION) if key in topic.configs}
        return self._configs.of(own, self._broker_config)

    @cached_property
    def _broker_config(self) -> Any:
        return self._rules.config_of(self.image)


def follow_configs(image: MetadataImage, altered: Sequence[Record], rules: Rules) -> Iterator[PartitionChanged]:
    """What altered configs mean for partitions.

    Another `min.insync.replicas` empties the ELR (rule P9): what was acknowledged under the old one is not known to be
    in the logs that the new one would count on. Unclean elections that are allowed from now on are held.
    """
    keys = {record.key for record in altered if isinstance(record, (TopicConfigSet, BrokerConfigSet))}
    if keys.isdisjoint((MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION)):
        return
    earlier, outcome = Outcome(image, rules), Outcome(image, rules, altered)

    def change(topic: TopicState, partition: PartitionState) -> PartitionState | None:
        if not partition.elr and partition.leader != NO_LEADER:
            return None
        least = earlier.min_insync_replicas(image.topics_by_id[topic.topic_id])
        wanted = partition if outcome.min_insync_replicas(topic) == least else _with(partition, elr=())
        return outcome.settle(topic, partition, wanted)

    yield from outcome.changes(change)


def is_unclean(before: PartitionState, after: PartitionState) -> bool:
    """Whether somebody leads who may lack what was acknowledged."""
    chosen = after.isr[0]
    return len(after.isr) == 1 and (
        chosen not in (*before.isr, *before.elr) or (before.data_lost and not after.data_lost)
    )


def may_take_over(broker: BrokerState | None) -> bool:
    """Whether the broker may be given something to lead."""
    return broker is not None and not broker.fenced and not broker.shutting_down


def _completed(state: PartitionState) -> PartitionState:
    """Rule P11: when all targets are in sync the reassignment is done."""
    if not state.adding and not state.removing:
        return state
    target = tuple(b for b in state.replicas if b not in state.removing)
    if not set(target) <= set(state.isr):
        return state
    isr = tuple(b for b in state.isr if b in target)
    elr = tuple(b for b in state.elr if b in target)
    return _with(state, replicas=target, isr=isr, elr=elr, adding=(), removing=())


def _union(first: Iterable[int], second: Iterable[int], without: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(b for b in dict.fromkeys((*first, *second)) if b not in without)


def _with(state: PartitionState, **changes: Any) -> PartitionState:
    return msgspec.structs.replace(state, **changes)
