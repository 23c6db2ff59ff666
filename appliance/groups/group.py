"""A classic group while somebody is in it: members, leader, generation, and the protocols that all of them support.

None of this is in the log but the outcome, a stored generation. A new coordinator begins with that and forgets the
rest: who was about to join joins again. An empty group needs no object at all.
"""

from __future__ import annotations

from appliance.base.errors import ErrorCode, invariant
from appliance.coordinator.calls import Call
from appliance.groups.members import Member, Protocols, member_from
from appliance.groups.states import PREVIOUS_STATES, GroupState
from appliance.groups.stored import StoredGeneration
from appliance.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics


class Group:
    """One group. Changes of its members and its state, with their rules, but no decisions."""

    def __init__(self, group_id: str, stored: StoredGeneration | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_since_ms = stored.state_timestamp_ms if stored else 0
        """Wall-clock time of the last change of state."""
        self.generation_id = stored.generation_id if stored else 0
        self.protocol_type = stored.protocol_type if stored else ""
        self.protocol_name = stored.protocol_name if stored else None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.pending_members: dict[str, None] = {}
        """Ids that were given out with MEMBER_ID_REQUIRED and have not come back yet (KIP-394), in their order."""
        self.pending_sync: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup yet (KIP-389 and its time-out)."""
        self.subscribed_topics: frozenset[str] | None = None
        """Of a group of consumers: what its members read, if that could be made out."""
        self.new_member_added = False
        """During the delay of a first rebalance: somebody came, so it is worth waiting longer."""
        self.storing_generation: int | None = None
        """The generation whose assignments are on their way into the log."""
        self.awaiting_join_count = 0
        self._supporters: dict[str, int] = {}
        if stored is not None and stored.members:
            for member in stored.members:
                self.add(member_from(member, stored.protocol_type, stored.protocol_name))
            self.leader_id = stored.leader_id
            self.state = GroupState.STABLE
            self._read_subscriptions()

    # Members

    def add(self, member: Member) -> None:
        """A new member; the first one says of what type the group is."""
        invariant(
            member.instance_id is None or member.instance_id not in self.static_members,
            f"group {self.group_id}: instance id {member.instance_id} has two members",
        )
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count_protocols(member.protocols, 1)
        if member.awaiting_join is not None:
            self.awaiting_join_count += 1
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> list[Call]:
        """A member, or an id that was only given out, is gone. Returns the requests that waited."""
        calls: list[Call] = []
        member = self.members.pop(member_id, None)
        if member is not None:
            calls = [call for call in (self.take_join(member), self.take_sync(member)) if call is not None]
            self._count_protocols(member.protocols, -1)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        return calls

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """A member has joined again and may say something new."""
        self._count_protocols(member.protocols, -1)
        member.protocols = protocols
        self._count_protocols(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def rename(self, member: Member, member_id: str) -> None:
        """A static member gets a new member id and keeps everything else, its place among the members too."""
        invariant(member.instance_id is not None, f"member {member.member_id} is not static")
        old_id, member.member_id = member.member_id, member_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[member.instance_id or ""] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[member_id] = None

    def identify(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether a request may speak for this member."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else take another member that has. False: nobody has joined."""
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.awaiting_join is None:
            joined = next((m.member_id for m in self.members.values() if m.awaiting_join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    # Requests that wait

    def park_join(self, member: Member, call: Call) -> Call | None:
        """Keep a JoinGroup until the rebalance is over. Returns an older one of the same member, to be answered."""
        superseded, member.awaiting_join = member.awaiting_join, call
        if superseded is None:
            self.awaiting_join_count += 1
        return superseded

    def take_join(self, member: Member) -> Call | None:
        """The JoinGroup that waits, which is answered now."""
        call, member.awaiting_join = member.awaiting_join, None
        if call is not None:
            self.awaiting_join_count -= 1
        return call

    def take_sync(self, member: Member) -> Call | None:
        """The SyncGroup that waits, which is answered now."""
        call, member.awaiting_sync = member.awaiting_sync, None
        return call

    @property
    def all_joined(self) -> bool:
        """Whether every member has sent JoinGroup, and nobody is about to."""
        return self.awaiting_join_count == len(self.members) and not self.pending_members

    # State

    def enter(self, state: GroupState, wall_ms: int) -> None:
        """Change the state."""
        invariant(
            self.state in PREVIOUS_STATES[state],
            f"group {self.group_id} cannot go from {self.state.value} to {state.value}",
        )
        self.previous_state, self.state, self.state_since_ms = self.state, state, wall_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def next_generation(self, wall_ms: int) -> None:
        """The join phase is over: these are the members."""
        self.generation_id += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.enter(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.enter(GroupState.EMPTY, wall_ms)
        self._read_subscriptions()

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members may take to come back: the longest that any of them asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def forgettable(self) -> bool:
        """Whether nobody is in it or about to be."""
        return self.state is GroupState.EMPTY and not self.members and not self.pending_members

    def as_stored(self, assignments: dict[str, bytes]) -> StoredGeneration:
        """The generation as it goes into the log."""
        return StoredGeneration(
            self.protocol_type,
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            self.state_since_ms,
            tuple(
                member.stored(self.protocol_name, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ),
        )

    # Protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols could be in the group."""
        if self.state is GroupState.EMPTY:
            return protocol_type != "" and len(protocols) > 0
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that most members like best, among those that all of them support."""
        candidates = {name for name, supporters in self._supporters.items() if supporters == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = member.vote(candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def may_read(self, topic: str) -> bool:
        """Whether members read this topic, as far as we can tell: its offsets are in use."""
        if self.subscribed_topics is None:
            return self.is_of_consumers
        return topic in self.subscribed_topics

    def _count_protocols(self, protocols: Protocols, change: int) -> None:
        for name, _ in protocols:
            self._supporters[name] = self._supporters.get(name, 0) + change
            if not self._supporters[name]:
                del self._supporters[name]

    def _read_subscriptions(self) -> None:
        if self.is_of_consumers:
            self.subscribed_topics = subscribed_topics(
                member.metadata_for(self.protocol_name) for member in self.members.values()
            )
        else:
            self.subscribed_topics = None
