"""Who owns what, and what the leader withholds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.group.ownership import Claims, Ownership
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import ConsumerSubscription

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def told(*owned: TopicPartition, generation: int = 1) -> ConsumerSubscription:
    return ConsumerSubscription(("t",), None, owned, generation)


def test_what_another_member_owns_is_withheld() -> None:
    found = Ownership.of({"a": told(P), "b": told()})
    assert [found.may_have(member, P) for member in "ab"] == [True, False]
    assert [found.may_have(member, Q) for member in "ab"] == [True, True]


def test_the_member_of_the_latest_generation_owns_it() -> None:
    found = Ownership.of({"a": told(P, generation=3), "b": told(P, generation=4), "c": told()})
    assert [found.may_have(member, P) for member in "abc"] == [False, True, False]


def test_members_of_one_generation_that_contradict_each_other_both_give_up() -> None:
    found = Ownership.of({"a": told(P), "b": told(P, Q)})
    assert not found.may_have("a", P)
    assert not found.may_have("b", P)
    assert found.may_have("b", Q)


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.builds(
            ConsumerSubscription,
            st.just(("t",)),
            st.none(),
            st.sets(st.sampled_from([P, Q])).map(tuple),
            st.integers(-1, 3),
        ),
    ),
    st.sampled_from([P, Q]),
)
def test_at_most_one_member_may_have_an_owned_partition(members, partition) -> None:
    found = Ownership.of(members)
    claimed = any(partition in each.owned for each in members.values())
    allowed = [member for member in members if found.may_have(member, partition)]
    if claimed:
        assert len(allowed) <= 1
        assert all(partition in members[member].owned for member in allowed)
    else:
        assert allowed == list(members)


def test_a_member_joins_again_if_a_claim_is_not_met() -> None:
    claims = Claims()
    assert claims.claim() == ()
    assert not claims.take({P, Q}, 1)
    assert (claims.claim(), claims.generation_id) == ((P, Q), 1)
    assert claims.take({P}, 2)
    assert claims.owned == {P, Q}
    claims.keep({P})
    assert claims.claim() == (P,)


def test_a_member_that_lost_what_it_claimed_joins_again() -> None:
    """The leader has withheld it from the other members."""
    claims = Claims()
    claims.take({P, Q}, 1)
    claims.claim()
    claims.clear()
    assert claims.take({P}, 3)
    claims.keep({P})
    assert claims.owned == {P}
    claims.claim()
    assert not claims.take({P}, 4)
