"""The loop in a thread of its own: work is run or refused, never left waiting."""

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from workbench.share._execute import LoopThread


async def answer():
    return 42


def test_work_is_run_and_its_result_given():
    with LoopThread() as loop:
        assert loop.wait(answer()) == 42


def test_a_closed_loop_refuses_work_and_closes_once():
    loop = LoopThread()
    loop.close()
    loop.close()
    with pytest.raises(RuntimeError, match="the loop is closed"):
        loop.wait(answer(), timeout_s=5)


def test_work_that_comes_while_the_loop_closes_is_refused_not_left_waiting():
    loop = LoopThread()
    running, cleaning, released = (threading.Event() for _ in range(3))
    seen = {}

    async def slow_to_clean_up():
        try:
            running.set()
            await asyncio.sleep(60)
        finally:
            cleaning.set()
            await asyncio.to_thread(released.wait, 20)

    def wait(name, work, timeout_s):
        try:
            loop.wait(work, timeout_s)
        except (RuntimeError, CancelledError) as error:
            seen[name] = str(error)

    first = threading.Thread(target=wait, args=("first", slow_to_clean_up(), None))
    closer = threading.Thread(target=loop.close)
    first.start()
    assert running.wait(5)
    closer.start()
    assert cleaning.wait(5)
    late = threading.Thread(target=wait, args=("late", asyncio.sleep(60), 5))
    late.start()
    late.join(3)
    is_refused = not late.is_alive()
    released.set()
    for thread in (closer, first, late):
        thread.join(10)
    assert is_refused
    assert "the loop is closed" in seen["late"]
