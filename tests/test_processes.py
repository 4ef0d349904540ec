"""How the processes of a run wait for each other, tried with threads that share a store."""

import time
from collections.abc import Callable
from threading import Thread

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from transformer_cli.errors import ProcessError
from transformer_cli.training.distributed import Processes, _Group


def in_each(of: Callable[[Processes], None], count: int = 3) -> None:
    """Calls a function in as many processes as are to be tried, and waits for them."""
    store = HashStore()
    threads = [Thread(target=of, args=(_Group(store, rank, count),), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()


@pytest.mark.parametrize("last", [0, 1, 2])
def test_nobody_goes_on_before_all_have_met(last: int) -> None:
    events: list[str] = []

    def meets(process: Processes) -> None:
        if process.rank == last:
            time.sleep(0.3)
        events.append("comes")
        process.barrier()
        events.append("goes on")

    in_each(meets)
    assert events == ["comes"] * 3 + ["goes on"] * 3


def test_the_main_process_makes_first_and_waits_for_the_others_to_have_made() -> None:
    # An exchange that the main one alone has come to would be given up after a minute.
    events: list[tuple[str, int]] = []

    def makes(process: Processes) -> None:
        def make() -> int:
            time.sleep(0.2 * process.rank)
            events.append(("made", process.rank))
            return process.rank

        assert process.main_first(make) == process.rank
        events.append(("goes on", process.rank))

    in_each(makes)
    assert events[:3] == [("made", 0), ("made", 1), ("made", 2)]
    assert sorted(events[3:]) == [("goes on", 0), ("goes on", 1), ("goes on", 2)]


def test_who_waits_for_a_process_that_has_failed_is_told() -> None:
    told: list[str] = []

    def fails(process: Processes) -> None:
        if process.rank == 1:
            assert isinstance(process, _Group)
            process.note_failure()
            return
        with pytest.raises(ProcessError) as error:
            process.barrier()
        told.append(str(error.value))

    in_each(fails)
    assert [words.partition(":")[0] for words in sorted(told)] == [
        "process 0 lost the others",
        "process 2 lost the others",
    ]


def test_when_the_main_process_fails_the_others_end_and_leave_the_word_to_it() -> None:
    ended: list[int] = []

    def fails(process: Processes) -> None:
        assert isinstance(process, _Group)
        if process.rank == 0:
            process.note_failure()
            return
        with pytest.raises(SystemExit) as end:
            process.broadcast(bytes)
        process.note_failure()  # as the others must not hear, who would take it for the cause
        ended.append(end.value.code)

    in_each(fails)
    assert ended == [1, 1]


def test_one_process_alone_waits_for_nobody() -> None:
    alone = Processes()
    alone.barrier()
    assert alone.main_first(lambda: 7) == 7
