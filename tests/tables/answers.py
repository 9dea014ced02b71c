"""What requests to a router are answered, looked at after each call that changes the cloud."""

import contextlib

from tests.kit.fakes.faults import WRITES


def answers_of(stage, requests):
    """{(host, path, port): answer}; None without a router, or without a listener at the port."""
    fronts = {
        listener["protocol_port"] for tree in stage.routers() for listener in tree["listeners"]
    }
    return {
        request: stage.answer(*request) if request[2] in fronts else None for request in requests
    }


@contextlib.contextmanager
def watched(stage, allowed):
    """Look at all answers while the block runs; yield a list of what was never to be seen.

    :param allowed: {(host, path, port): answers}; None is no answer.
    """
    found = []

    async def look(_request, proceed):
        response = await proceed()
        for request, answer in answers_of(stage, allowed).items():
            if answer not in allowed[request]:
                found.append(f"{request} was answered {answer}")
        return response

    rule = stage.cloud.faults.add(
        action=look, times=None, when=lambda request: request.method in WRITES
    )
    try:
        yield found
    finally:
        rule.remove()


async def until_answered(stage, expected):
    """Wait until requests are answered so: {(host, path, port): answer}."""

    async def answered():
        return answers_of(stage, expected) == expected

    try:
        await stage.until(answered)
    except TimeoutError:
        raise AssertionError(f"{answers_of(stage, expected)}, not {expected}") from None
