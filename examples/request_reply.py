"""Questions and answers: a correlation ID says which answer belongs to which question.

    python examples/request_reply.py 127.0.0.1:9420

prints

    2 + 3 is 5
    20 + 22 is 42
"""

import asyncio
import os
import sys
import uuid

from penstock.client import Outgoing, aio

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PENSTOCK_KOKAQ", "127.0.0.1:9420")


async def answer() -> None:
    """The server: every answer has the correlation ID of its question."""
    async with aio.connect(f"kokaq://{ADDRESS}/default/questions") as client:
        async for question in client.consume(poll=0.05):
            total = sum(int(word) for word in question.text.split(" + "))
            # The time to live removes answers whose requester has stopped waiting.
            reply = Outgoing(str(total).encode(), correlation_id=question.correlation_id, ttl=60)
            await client.publish(reply, queue="default/answers")
            await question.ack()


async def ask(questions: list[str]) -> None:
    """The client: asks everything at once and sorts out the answers as they come."""
    async with aio.connect(f"kokaq://{ADDRESS}/default/answers") as client:
        open_questions = {uuid.uuid4().bytes: question for question in questions}
        for correlation_id, question in open_questions.items():
            await client.publish(question, queue="default/questions", correlation_id=correlation_id)
        async for message in client.consume(poll=0.05):
            question = open_questions.pop(message.correlation_id or b"", "")
            if question:
                print(question, "is", message.text)
            await message.ack()
            if not open_questions:
                break


async def main() -> None:
    """Start the server, ask, and stop it."""
    async with aio.connect(f"kokaq://{ADDRESS}") as client:
        for queue in ("default/questions", "default/answers"):
            await client.create_queue(queue, exist_ok=True)
    server = asyncio.create_task(answer())
    await ask(["2 + 3", "20 + 22"])
    server.cancel()


asyncio.run(main())
