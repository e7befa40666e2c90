"""The conversations in docs/protocols, byte for byte, each with a fresh broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.wire import kokaq, phpmq, sspq
from support.brokers import BrokerProcess
from support.conversations import Conversation, Walk, conversations

ALL = conversations()


def test_every_protocol_has_a_conversation() -> None:
    assert {each.protocol for each in ALL} == {"phpmq", "sspq", "kokaq"}
    assert all(any(step.who == "<" for step in each.steps) for each in ALL)


@pytest.mark.parametrize("conversation", ALL, ids=str)
def test_a_broker_answers_as_documented(conversation: Conversation, tmp_path: Path) -> None:
    options = "".join(f", {option}" for option in conversation.options.split())
    others = "".join(f"{name} = []\n" for name in ("phpmq", "sspq", "kokaq") if name != conversation.protocol)
    listener = f'{conversation.protocol} = [{{ address = "127.0.0.1:0"{options} }}]'
    with BrokerProcess(tmp_path, others + listener) as broker:
        walk = Walk(lambda: broker.dial(conversation.protocol))
        walk.run(conversation)
        assert broker.stop() == 0
        assert broker.events("protocol error") == []
    for said in walk.transcript:
        check_codecs(conversation.protocol, said[">"], said["<"])


def check_codecs(protocol: str, requests_sent: bytes, answered: bytes) -> None:
    """Our codecs decode both sides, and encode them to the same bytes."""
    if protocol == "sspq":
        both = sspq.encode(sspq.Decoder().feed(requests_sent)), sspq.encode(sspq.Decoder().feed(answered))
        assert both == (requests_sent, answered)
    elif protocol == "phpmq":
        theirs, ours = phpmq.ServerDecoder(), phpmq.ClientDecoder()
        frames = theirs.feed(requests_sent), ours.feed(answered)
        assert theirs.style is not None
        assert (theirs.error, ours.error) == (None, None)
        assert phpmq.encode(frames[0], theirs.style) == requests_sent
        assert phpmq.encode(frames[1], ours.style or theirs.style) == answered
    else:
        learned = kokaq.ServerDecoder()
        requests = learned.feed(requests_sent)
        reader = kokaq.ClientDecoder(variant=learned.variant)
        responses = reader.feed(answered)
        assert (learned.close(), reader.close()) == (None, None)
        assert kokaq.encode_requests(requests, learned.variant) == requests_sent
        tags = next(frame.tags for frame in kokaq.singles(requests) if frame.payload is not None)
        assert kokaq.encode_responses(responses, learned.variant, tags) == answered
        opaques = [[each.opaque for each in kokaq.singles(frames)] for frames in (requests, responses)]
        assert opaques[0] == opaques[1]
